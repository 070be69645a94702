"""Agreement in words, as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from rageval_hooks.offline.agreement.measure import Agreement

__all__ = ["in_words", "strength", "to_json", "to_markdown", "to_text"]

_HEADER: Final = (
    "score",
    "in words",
    "AUROC",
    "kappa",
    "threshold",
    "balanced accuracy",
    "precision of fail",
    "recall of fail",
    "F1 of fail",
    "calibration error",
    "rows",
)

# From this AUROC on, if the whole interval is above chance.
_WORDS: Final = (
    (0.9, "sorts answers nearly as people do"),
    (0.8, "sorts answers well"),
    (0.7, "sorts answers fairly"),
    (0.6, "sorts answers a little better than chance"),
    (0.0, "hardly better than chance"),
)


def in_words(agreement: Agreement) -> str:
    """Say how well a score sorts good from bad answers."""
    return strength(agreement.auroc, agreement.auroc_low, agreement.auroc_high)


def strength(auroc: float, low: float, high: float) -> str:
    """Say what an AUROC with its interval means."""
    if high < 0.5:
        return "sorts answers the wrong way round"
    if low <= 0.5:
        return "not distinguishable from chance"
    return next(words for least, words in _WORDS if auroc >= least)


def to_json(found: Sequence[Agreement]) -> str:
    """Return the figures as JSON."""
    return json.dumps([{**item.model_dump(mode="json"), "in_words": in_words(item)} for item in found], indent=1)


def to_markdown(found: Sequence[Agreement]) -> str:
    """Return a table in Markdown."""
    lines = [_HEADER, tuple("---" for _ in _HEADER), *map(_cells, found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def to_text(found: Sequence[Agreement]) -> str:
    """Return one paragraph per score."""
    return "\n".join(line for item in found for line in _paragraph(item))


def _paragraph(item: Agreement) -> Iterator[str]:
    models = f" ({', '.join(item.models)})" if item.models else ""
    yield f"{item.score}{models}: {in_words(item)}"
    _, _, auroc, kappa, threshold, accuracy, precision, recall, f1, error, rows = _cells(item)
    yield f"  AUROC {auroc} on {rows}"
    yield f"  with the threshold {threshold}: Cohen's kappa {kappa}, balanced accuracy {accuracy}"
    yield f"  as an alarm: precision of fail {precision or 'unknown, no row fails'}, recall {recall}, F1 {f1}"
    if error:
        yield f"  calibration error {error}"


def _cells(item: Agreement) -> tuple[str, ...]:
    sign = "≥" if item.direction == "higher" else "≤"
    return (
        item.score,
        in_words(item),
        f"{item.auroc:.2f} ({item.auroc_low:.2f} to {item.auroc_high:.2f})",
        f"{item.kappa:.2f} ({item.kappa_low:.2f} to {item.kappa_high:.2f})",
        f"{sign} {item.threshold:.2f}{' (fitted to these rows)' if item.fitted else ''}",
        f"{item.balanced_accuracy:.2f}",
        "" if item.fail_precision is None else f"{item.fail_precision:.2f}",
        f"{item.fail_recall:.2f}",
        f"{item.fail_f1:.2f}",
        "" if item.calibration_error is None else f"{item.calibration_error:.2f}",
        f"{item.rows} rows" + (f", {item.left_out} without the score" if item.left_out else ""),
    )
