"""This package's own tables: one row per answer, with a column per score and columns about it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.cells import is_missing
from rageval_hooks.offline.records.columns import has_column
from rageval_hooks.offline.records.from_columns import record_from_row
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow, Row
from rageval_hooks.offline.records.tables.layouts import Records, Table
from rageval_hooks.offline.records.tables.native_columns import (
    FIXED,
    LABEL,
    OPTIONAL,
    PROBABILITY,
    REASON,
    SUFFIXES,
    is_known_score,
)
from rageval_hooks.runtime.selecting import without
from rageval_hooks.score import Failed, Result, Score, Skipped, is_about_turn

__all__ = ["is_native", "native_record", "native_rows", "numeric_columns"]

_ABOUT = frozenset((*FIXED, *OPTIONAL))
# The beginnings of a reason in a cell: "failed: TimeoutError: no answer".
_FAILED, _SKIPPED = "failed: ", "skipped: "


def native_rows(records: Records) -> Table:
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
            suffixes.setdefault(result.name, set()).update(_cells(result))
    header = [*FIXED, *(name for name in OPTIONAL if name in optional)]
    for name, found in suffixes.items():
        header += _score_columns(name, found)
    return header, map(_row, records())


def _score_columns(name: str, suffixes: set[str]) -> list[str]:
    # A score that is not ours is recognized by a column next to it, so it always gets one.
    if not is_known_score(name) and LABEL not in suffixes:
        suffixes = {*suffixes, REASON}
    return [name + suffix for suffix in ("", *SUFFIXES) if suffix in suffixes]


def _about(record: Record) -> dict[str, Any]:
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
    turn = record.turn
    row: dict[str, Any] = {"id": record.id, "run": record.run, "query": turn.query, "response": turn.response}
    row.update(_about(record))
    for result in filter(is_about_turn, record.results):
        for suffix, value in _cells(result).items():
            row[result.name + suffix] = value
    return row


def _cells(result: Result) -> Mapping[str, Any]:
    """Return the cells of a result, by the suffix of their column."""
    if isinstance(result, Failed):
        return {REASON: f"{_FAILED}{result.error_type}: {result.message}"}
    if not isinstance(result, Score):
        return {REASON: f"{_SKIPPED}{result.reason}"}
    cells: dict[str, Any] = {"": result.value}
    if result.label is not None:
        cells[LABEL] = result.label
    # Without sampling, a column of ones would say nothing.
    if result.probability != 1:
        cells[PROBABILITY] = result.probability
    return cells


def is_native(columns: Sequence[str]) -> bool:
    """Return True for a table of this package. It has no passages."""
    return tuple(columns[: len(FIXED)]) == FIXED and not has_column("passages", columns)


def native_record(row: Mapping[str, Any], name: str, required: tuple[str, ...], scores: Collection[str] = ()) -> Record:
    """Return a record with the scores of a row. Columns that a user added become metadata.

    Args:
        row: values by column.
        name: id of the record if the row has none.
        required: fields that must have a column.
        scores: columns that are scores, whatever is next to them.

    Raises:
        TurnError: a value does not fit its column.
    """
    names = _score_names(row, scores)
    taken = {"missed", *names}
    rest = {column: value for column, value in row.items() if taken.isdisjoint((column, _score_of(column)))}
    record = record_from_row(rest, name, required, table=True)
    results = tuple(filter(None, (_result(score, row) for score in names)))
    missed = str(row.get("missed")).lower() == "true"
    return record.model_copy(update={"results": results, "missed": missed})


def _score_names(row: Mapping[str, Any], named: Collection[str]) -> list[str]:
    """Return the scores of a table in their order: known ones, named ones, and those with our columns next to them."""
    # A score that is missing in every row may have only the column of its reasons: "groundedness.reason".
    candidates = dict.fromkeys([*map(_score_of, row), *row])
    scores = [name for name in candidates if name in named or _is_score(name, row)]
    return without(scores, _ABOUT)


def _is_score(name: str, row: Mapping[str, Any]) -> bool:
    if name + REASON in row:
        return True
    if name not in row:
        return False
    return is_known_score(name) or name + LABEL in row


def _score_of(column: str) -> str:
    """Return the score that a column is about: ``groundedness`` for ``groundedness.label``."""
    for suffix in SUFFIXES:
        if column.endswith(suffix):
            return column.removesuffix(suffix)
    return column


def numeric_columns(names: Iterable[str], rows: Iterable[Row | BadRow]) -> frozenset[str]:
    """Return those columns that hold numbers in every row that has a value for them."""
    # One row with a text is enough to exclude a column.
    left = set(names) - _ABOUT
    found: set[str] = set()
    for row in rows:
        if isinstance(row, BadRow):
            continue
        present = {name for name in left if not is_missing(row.data.get(name))}
        found |= present
        for name in present:
            if not _is_number(row.data[name]):
                left.discard(name)
    return frozenset(left & found)


def _is_number(value: Any) -> bool:
    """Return True for a finite number, also as the text that a CSV file has."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _result(name: str, row: Mapping[str, Any]) -> Result | None:
    value = row.get(name)
    if not is_missing(value):
        return _score(name, value, row)
    return _missing_result(name, str(row.get(name + REASON)))


def _missing_result(name: str, reason: str) -> Failed | Skipped | None:
    """Return what the reason says, such as ``failed: TimeoutError: no answer``; None for another reason."""
    if reason.startswith(_SKIPPED):
        return Skipped(name=name, reason=reason.removeprefix(_SKIPPED))
    if not reason.startswith(_FAILED):
        return None
    kind, _, message = reason.removeprefix(_FAILED).partition(": ")
    return Failed(name=name, error_type=kind or "Error", message=message)


def _score(name: str, value: Any, row: Mapping[str, Any]) -> Score:
    label = row.get(name + LABEL)
    probability = row.get(name + PROBABILITY)
    try:
        return Score(
            name=name,
            value=float(value),
            label=None if is_missing(label) else str(label),
            probability=1.0 if is_missing(probability) else float(str(probability)),
        )
    except (TypeError, ValueError):
        raise TurnError(f"{name} is {value!r}, not a number") from None
