"""Scores next to people's labels: reading labelled rows, and measuring each score on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import ScoreDefinition
from rageval_hooks.offline.agreement.statistics import (
    Labelled,
    auroc,
    auroc_interval,
    balanced_accuracy,
    best_threshold,
    calibration_error,
    kappa,
    kappa_interval,
)
from rageval_hooks.offline.records import BadRow
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.reading import read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.report.definitions import define_score
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Score

__all__ = ["Agreement", "LabelledRow", "labelled_rows", "measure"]

_GOOD: Final = frozenset("1 1.0 true yes y pass passed good supported faithful correct relevant grounded".split())
_BAD: Final = frozenset(
    "0 0.0 false no n fail failed bad unsupported unfaithful incorrect irrelevant ungrounded hallucinated".split()
)
_GROUPS: Final = ("group", "extra.group", "document", "doc_id", "conversation_id")
"""Fields that may name the document of a row, if the user names none."""


@dataclass(frozen=True)
class LabelledRow:
    """An answer that people labelled.

    Attributes:
        record: the answer, perhaps with scores.
        label: True if people found it good.
        group: rows of one document have the same group.
    """

    record: Record
    label: bool
    group: str


class Agreement(Data):
    """How well one score agrees with the labels.

    Attributes:
        score: the score's name.
        models: the models that computed it.
        rows: rows that have the score.
        left_out: labelled rows without it: it was skipped or failed there.
        auroc: probability that a good row scores better than a bad one.
        auroc_low: lower bound of its interval.
        auroc_high: upper bound of its interval.
        threshold: the threshold that kappa and balanced accuracy are for, in the score's own direction.
        fitted: True if that threshold is the best one on these rows, which makes both look better than they are.
        kappa: Cohen's kappa of the labels pass and fail with those of people.
        kappa_low: lower bound of its interval.
        kappa_high: upper bound of its interval.
        balanced_accuracy: mean of the shares of good rows that pass and of bad rows that fail.
        fail_precision: share of the rows that fail which are bad; None if no row fails.
        fail_recall: share of the bad rows that fail.
        fail_f1: their harmonic mean; 0 if no row fails.
        calibration_error: mean distance of the score from the share of good rows; None for a score beyond 0..1.
        direction: which values are better.
    """

    score: str
    models: tuple[str, ...]
    rows: int
    left_out: int
    auroc: float
    auroc_low: float
    auroc_high: float
    threshold: float
    fitted: bool
    kappa: float
    kappa_low: float
    kappa_high: float
    balanced_accuracy: float
    fail_precision: float | None
    fail_recall: float
    fail_f1: float
    calibration_error: float | None
    direction: str


def labelled_rows(
    path: Path,
    label: str,
    group: str | None,
    *,
    mapping: ColumnMap | None = None,
    encoding: str | None = None,
) -> tuple[list[LabelledRow], list[str]]:
    """Read labelled rows.

    Args:
        path: a file of any format that ``rageval-hooks score`` reads, or writes.
        label: the column of the label.
        group: the column that names a row's document; None to look for a usual one.
        mapping: columns that the user named.
        encoding: of a text file; None to detect it.

    Returns:
        The rows, and why others cannot be used, with their lines.

    Raises:
        ConfigurationError: no row has a label, or all have the same one.
    """
    rows: list[LabelledRow] = []
    bad: list[str] = []
    for line, item in read_items(path, ("response",), mapping=mapping, encoding=encoding):
        if isinstance(item, BadRow):
            bad.append(f"line {line}: {item.reason}")
            continue
        given = _field(item, label)
        value = _label(given)
        if value is not None:
            rows.append(LabelledRow(item, value, _group(item, group)))
        elif given is None:
            bad.append(f"line {line}: {label} has no label")
        else:
            bad.append(f"line {line}: {label} has the label {str(given)[:40]!r}, not 1 or 0")
    _check(path, rows, label)
    return rows, bad


def _check(path: Path, rows: Sequence[LabelledRow], label: str) -> None:
    if not rows:
        raise ConfigurationError(
            f"no row of {path} has a label in the column {label!r}: 1 for a good answer, 0 for a bad one. "
            "--label names another column"
        )
    if len({row.label for row in rows}) == 1:
        raise ConfigurationError(f"all {len(rows)} labels in {path} are the same: agreement needs good and bad answers")


def _field(record: Record, path: str) -> Any:
    """Return what a row has under a name, such as ``label`` or ``extra.group``."""
    if path == "document" and record.document is not None:
        return record.document
    found: Any = record.turn.metadata
    # A column may have a dot in its name.
    if path in record.turn.metadata:
        return found[path]
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _label(given: Any) -> bool | None:
    text = str(given).strip().casefold()
    if text in _GOOD:
        return True
    if text in _BAD:
        return False
    return None


def _group(record: Record, group: str | None) -> str:
    names = _GROUPS if group is None else (group,)
    for name in names:
        value = _field(record, name)
        if value is not None:
            return str(value)
    # Rows about the same passage are about the same document.
    passages = record.turn.passages
    return passages[0].text if passages else record.id


def measure(
    rows: Sequence[LabelledRow], *, seed: int = 0, resamples: int = 1000, level: float = 0.95
) -> list[Agreement]:
    """Measure every score of the rows that both good and bad rows have, best agreement first.

    Args:
        rows: labelled rows with their scores.
        seed: for the random numbers of the intervals.
        resamples: number of bootstrap samples.
        level: confidence of the intervals.
    """
    found = [
        _measured(name, part, len(rows), seed, resamples, level)
        for name, part in _by_score(rows).items()
        if len({row.label for row, _ in part}) == 2
    ]
    return sorted(found, key=lambda agreement: -agreement.auroc)


Scored = list[tuple[LabelledRow, Score]]


def _by_score(rows: Iterable[LabelledRow]) -> dict[str, Scored]:
    found: dict[str, Scored] = {}
    for row in rows:
        for score in row.record.scores():
            found.setdefault(score.name, []).append((row, score))
    return found


def _measured(name: str, part: Scored, labelled: int, seed: int, resamples: int, level: float) -> Agreement:
    definition = define_score(name, part[0][1].metric)
    data = Labelled.of([(_oriented(score.value, definition), int(row.label), row.group) for row, score in part])
    threshold, fitted = _threshold(part, definition, data)
    passed = data.values >= _oriented(threshold, definition) - 1e-9
    low, high = auroc_interval(data, seed, resamples, level)
    kappa_low, kappa_high = kappa_interval(passed, data.labels, data.groups, seed, resamples, level)
    is_share = definition.low == 0 and definition.high == 1
    failing, bad, both = int((~passed).sum()), int((~data.labels).sum()), int((~passed & ~data.labels).sum())
    return Agreement(
        score=name,
        models=tuple(sorted({score.model for _, score in part if score.model})),
        rows=len(part),
        left_out=labelled - len(part),
        auroc=auroc(data),
        auroc_low=low,
        auroc_high=high,
        threshold=threshold,
        fitted=fitted,
        kappa=kappa(passed, data.labels),
        kappa_low=kappa_low,
        kappa_high=kappa_high,
        balanced_accuracy=balanced_accuracy(data, _oriented(threshold, definition)),
        fail_precision=both / failing if failing else None,
        fail_recall=both / bad,
        fail_f1=2 * both / (failing + bad),
        calibration_error=calibration_error(_as_share(data, definition)) if is_share else None,
        direction=definition.direction,
    )


def _oriented(value: float, definition: ScoreDefinition) -> float:
    return value if definition.direction == "higher" else -value


def _as_share(data: Labelled, definition: ScoreDefinition) -> Labelled:
    """Return a score of 0..1 so that 1 is good."""
    if definition.direction == "higher":
        return data
    return Labelled(1 + data.values, data.labels, data.groups)


def _threshold(part: Scored, definition: ScoreDefinition, data: Labelled) -> tuple[float, bool]:
    """Return the threshold that the score's labels follow; without labels, the best one on these rows."""
    # Oriented values: higher is better for all scores.
    passing = _oriented_values(part, "pass", definition)
    failing = _oriented_values(part, "fail", definition)
    default = definition.default_threshold(part[0][1])
    has_labels = bool(passing or failing)
    if has_labels and default is not None and _separates(_oriented(default, definition), passing, failing):
        return default, False
    if passing:
        return _oriented(min(passing), definition), False
    # A score without an upper bound is a number such as tokens, where hundredths mean nothing. One that no metric
    # defines is known by its values.
    is_defined = bool(definition.description)
    is_share = definition.high is not None if is_defined else bool((abs(data.values) <= 1).all())
    step = 0.01 if is_share else 1.0
    best, _ = best_threshold([data], step)
    return _oriented(best, definition), True


def _oriented_values(part: Scored, label: str, definition: ScoreDefinition) -> list[float]:
    return [_oriented(score.value, definition) for _, score in part if score.label == label]


def _separates(threshold: float, passing: Iterable[float], failing: Iterable[float]) -> bool:
    """Return True if the labels follow this threshold."""
    bound = threshold - 1e-9
    return min(passing, default=math.inf) >= bound > max(failing, default=-math.inf)


def unusable(bad: Sequence[str], most: int = 3) -> Iterator[str]:
    """Yield a few of the rows that cannot be used, and how many more there are."""
    yield from bad[:most]
    if len(bad) > most:
        yield f"and {len(bad) - most} more rows cannot be used"
