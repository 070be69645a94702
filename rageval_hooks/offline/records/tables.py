"""This package's own tables: one row per answer, with a column per score and columns about it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from rageval_hooks.errors import TurnError
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.offline.records.columns import has_column
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import record_from_row
from rageval_hooks.offline.records.values import is_missing
from rageval_hooks.score import Failed, Result, Score, Skipped, is_about_turn

Table = tuple[list[str], Iterator[Mapping[str, Any]]]
"""The header and the rows."""

_FIXED = ("id", "run", "query", "response")
_OPTIONAL = ("reference", "target", "rank", "missed", "document", "answerable", "error")
"""The next columns, each if a record of the file has a value for it."""

_LABEL, _PROBABILITY, _REASON = ".label", ".probability", ".reason"
_SUFFIXES = (_LABEL, _PROBABILITY, _REASON)
# The beginnings of a reason in a cell: "failed: TimeoutError: no answer".
_FAILED, _SKIPPED = "failed: ", "skipped: "

# Scores by rank: "precision@5", "ap@10", "hit@3".
_BY_RANK = re.compile(r"(precision|ap|hit)@\d+")


class Records(Protocol):
    """Returns the records each time it is called: a table needs to know its columns before its rows."""

    def __call__(self, order: Sequence[int] | None = None, /) -> Iterator[Record]:
        """Return all records, or those at some positions, in that order."""


def our_table(records: Records) -> Table:
    """Return the header and the rows of a table with one row per answer.

    Each score of a whole turn has a column of its name. Next to it are ``<name>.label`` if there are labels,
    ``<name>.probability`` if turns were sampled, and ``<name>.reason`` if some scores are missing. A score of a metric
    that is not ours always has one of these: it distinguishes the score from other columns when the table is read.
    """
    # The header needs all records, so they are read twice: results do not fit into memory.
    optional: set[str] = set()
    suffixes: dict[str, set[str]] = {}
    for record in records():
        optional.update(name for name, value in _about(record).items() if value is not None)
        for result in filter(is_about_turn, record.results):
            suffixes.setdefault(result.name, set()).update(cells(result))
    header = [*_FIXED, *(name for name in _OPTIONAL if name in optional)]
    for name, found in suffixes.items():
        if not _is_known_score(name) and _LABEL not in found:
            found.add(_REASON)
        header += [name + suffix for suffix in ("", *_SUFFIXES) if suffix in found]
    return header, map(_row, records())


def _about(record: Record) -> dict[str, Any]:
    """Return the optional columns of a record."""
    error = record.turn.error
    return {
        "reference": record.turn.reference,
        "target": record.target,
        "rank": record.rank,
        "missed": record.missed or None,
        "document": record.document,
        "answerable": None if record.answerable else False,
        "error": None if error is None else f"{error.type}: {error.message}",
    }


def _row(record: Record) -> dict[str, Any]:
    row = {"id": record.id, "run": record.run, "query": record.turn.query, "response": record.turn.response}
    row |= _about(record)
    for result in filter(is_about_turn, record.results):
        row |= {result.name + suffix: value for suffix, value in cells(result).items()}
    return row


def cells(result: Result) -> Mapping[str, Any]:
    """Return the cells of a result, by the suffix of their column."""
    if isinstance(result, Failed):
        return {_REASON: f"{_FAILED}{result.error_type}: {result.message}"}
    if isinstance(result, Skipped):
        # A verdict without a number says so: "declined".
        return {_REASON: f"{_SKIPPED}{result.reason}"} | ({} if result.label is None else {_LABEL: result.label})
    cells: dict[str, Any] = {"": result.value}
    if result.label is not None:
        cells[_LABEL] = result.label
    # Without sampling, a column of ones would say nothing.
    if result.probability != 1:
        cells[_PROBABILITY] = result.probability
    return cells


def is_ours(columns: Sequence[str]) -> bool:
    """Return True for a table of this package. It has no passages."""
    return tuple(columns[: len(_FIXED)]) == _FIXED and not has_column("passages", columns)


def record_of(row: Mapping[str, Any], name: str, required: tuple[str, ...], scores: Collection[str] = ()) -> Record:
    """Return a record with the scores of a row. Columns that a user added become metadata.

    Args:
        row: values by column.
        name: id of the record if the row has none.
        required: fields that must have a column.
        scores: columns that are scores where they hold a number.

    Raises:
        TurnError: a value does not fit its column.
    """
    # A score that is missing in every row may have only the column of its reasons: "groundedness.reason".
    columns = dict.fromkeys((*map(_score_of, row), *row))
    results = {
        column: _result(column, row)
        for column in columns
        if column not in _FIXED
        and column not in _OPTIONAL
        and (
            column + _REASON in row
            or (column in row and (_is_known_score(column) or column + _LABEL in row))
            or (column in scores and _is_number(row.get(column)))
        )
    }
    rest = {column: value for column, value in row.items() if _score_of(column) not in results}
    rest = {column: value for column, value in rest.items() if column not in results}
    missed = str(rest.pop("missed", "")).lower() == "true"
    record = record_from_row(rest, name, required)
    found = tuple(result for result in results.values() if result is not None)
    return record.model_copy(update={"results": found, "missed": missed})


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _is_known_score(name: str) -> bool:
    """Return True for the name of one of our own metrics or of its scores."""
    # Ranks are options of metrics, so that their scores are not in the list of names.
    return name in _known_names() or _BY_RANK.fullmatch(name) is not None


@cache
def _known_names() -> frozenset[str]:
    metrics = REGISTRY.builtin()
    return frozenset((*metrics, *(score.name for metric in metrics.values() for score in metric.scores)))


def _score_of(column: str) -> str:
    """Return the score that a column is about: ``groundedness`` for ``groundedness.label``."""
    suffix = next(filter(column.endswith, _SUFFIXES), "")
    return column.removesuffix(suffix)


def _result(name: str, row: Mapping[str, Any]) -> Result | None:
    value, label, probability = row.get(name), row.get(name + _LABEL), row.get(name + _PROBABILITY)
    if is_missing(value):
        reason = str(row.get(name + _REASON))
        if reason.startswith(_SKIPPED):
            label = None if is_missing(label) else str(label)
            return Skipped(name=name, reason=reason.removeprefix(_SKIPPED), label=label)
        if not reason.startswith(_FAILED):
            return None
        kind, _, message = reason.removeprefix(_FAILED).partition(": ")
        return Failed(name=name, error_type=kind or "Error", message=message)
    try:
        return Score(
            name=name,
            value=float(str(value)),
            label=None if is_missing(label) else str(label),
            probability=1.0 if is_missing(probability) else float(str(probability)),
        )
    except (TypeError, ValueError):
        raise TurnError(f"{name} is {value!r}, not a number") from None
