"""Scores in the columns of open-rag-eval (seed 004), under our names."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rageval_hooks.offline.records.cells import is_number
from rageval_hooks.offline.records.tables.open_rag_eval import (
    CITATION_NAMES,
    CONSISTENCY,
    NUGGET_NAMES,
    REPEATED,
    SCORE_COLUMNS,
    passage_keys,
)
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.score import Score, Target
from rageval_hooks.turn import Passage

__all__ = ["has_place", "of_each_run", "read_scores"]

_ATTEMPTS = {"yes": (1.0, "answered"), "no": (0.0, "declined")}
"""The text of the cell → value and label of our score."""

_NAMES_BY_RANK = ("precision@", "ap@")
_RANKS = "retrieval_score_precision_metrics"
_NAMES = {
    "retrieval_score_mean_umbrela_score": "umbrela.mean",
    "generation_score_mean_nugget_assignment_score": "nuggets.all",
    "generation_score_vital_nuggetizer_score": "nuggets.vital",
    "generation_score_hallucination_score": "hhem",
    "generation_score_citation_f1_score": "citation.f1",
    # Both their names and those of our earlier versions.
    **{f"generation_score_citation_scores/{name}": f"citation.{name}" for name in ("precision", "recall", "f1")},
    **{f"generation_score_citation_scores/{theirs}": f"citation.{ours}" for ours, theirs in CITATION_NAMES.items()},
    **{f"generation_score_autonugget_scores/nuggetizer_scores/{theirs}": ours for ours, theirs in NUGGET_NAMES.items()},
    **{
        f"generation_score_autonugget_scores/nuggetizer_scores/{theirs.capitalize().replace(' ', '_')}": ours
        for ours, theirs in NUGGET_NAMES.items()
    },
    f"{_RANKS}/MRR": "mrr",
}
# The path of a score by rank: "retrieval_score_precision_metrics/AP@/5".
_BY_RANK = re.compile(rf"{_RANKS}/(precision|AP)@/(\d+)")


def has_place(score: str) -> bool:
    """Return True if a table of this kind has a column for a score of the whole turn."""
    if score == "no_answer" or score.startswith(_NAMES_BY_RANK):
        return True
    return score in _NAMES.values()


def read_scores(cells: Mapping[str, Any], passages: Sequence[Passage]) -> tuple[Score, ...]:
    """Return the scores that the cells of an answer have; other values are ignored.

    Args:
        cells: by the names of :data:`SCORE_COLUMNS`.
        passages: of the answer, which the grades are about.
    """
    numbers: dict[str, float] = {}
    for column in SCORE_COLUMNS:
        numbers.update(_numbers(cells.get(column), column))
    # Several columns repeat a score: the mean nugget score is also in the cell of all nugget scores.
    values = {_name(path): number for path, number in numbers.items()}
    wholes = [Score(name=name, value=number) for name, number in values.items() if name is not None]
    attempt = _attempt(cells.get("generation_score_no_answer_score"))
    return (*_passage_grades(numbers, passages), *wholes, *attempt)


def _passage_grades(numbers: Mapping[str, float], passages: Sequence[Passage]) -> Iterator[Score]:
    for index, key in enumerate(passage_keys(passages)):
        grade = numbers.get(f"retrieval_score_umbrela_scores/{key}")
        if grade is not None:
            target = Target(kind="passage", index=index, id=passages[index].id)
            yield Score(name="umbrela", value=grade, target=target)


def _name(path: str) -> str | None:
    """Return our name of a score: ``precision@5`` for ``retrieval_score_precision_metrics/precision@/5``."""
    found = _BY_RANK.fullmatch(path)
    if found is None:
        return _NAMES.get(path)
    return f"{found[1].lower()}@{found[2]}"


def _numbers(cell: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers in a cell, each with its path."""
    value = _parsed(cell)
    if isinstance(value, Mapping):
        for name, part in value.items():
            if not isinstance(part, str):
                yield from _numbers(part, f"{path}/{name}")
    elif is_number(value) and math.isfinite(value):
        yield path, float(value)


def of_each_run(row: Mapping[str, Any], runs: int) -> list[dict[str, float]]:
    """Return the scores of each run that only the columns about all runs have, by the names of run columns.

    Their consistency file has the values of a score over the runs in one cell, and no columns of the single runs.

    Args:
        row: the row of a question.
        runs: its number of runs.
    """
    found: list[dict[str, float]] = [{} for _ in range(runs)]
    for name, ours in REPEATED.items():
        values = mapping_or_empty(_parsed(row.get(f"{CONSISTENCY}{name}"))).get("values")
        if not isinstance(values, list) or len(values) != runs:
            continue
        # Anything but numbers is not a score.
        if not all(map(is_number, values)):
            continue
        column = next(column for column, score in _NAMES.items() if score == ours)
        for cells, value in zip(found, values, strict=True):
            cells[column] = float(value)
    return found


def _parsed(cell: Any) -> Any:
    """Return what a cell holds as JSON: objects in JSON, and numbers, which CSV has as text."""
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return None


def _attempt(cell: Any) -> Iterator[Score]:
    """Yield whether a question was answered, as the metric says it: ``{"query_answered": "yes"}``."""
    said = mapping_or_empty(_parsed(cell)).get("query_answered")
    if str(said) in _ATTEMPTS:
        value, label = _ATTEMPTS[str(said)]
        yield Score(name="no_answer", value=value, label=label)
