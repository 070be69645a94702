"""Checks the columns of a file before any row is used, so that a wrong file fails at once and with a suggestion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.cells import unpacked
from rageval_hooks.offline.records.columns import Fields, has_column, missing_column, take_fields
from rageval_hooks.offline.records.mapping import ColumnMap
from rageval_hooks.offline.records.nesting import unnested
from rageval_hooks.offline.records.rows import BadRow, Row
from rageval_hooks.offline.records.source import RowSource
from rageval_hooks.offline.records.suggestions import suggest_map
from rageval_hooks.runtime.selecting import without

__all__ = ["check_first_rows", "check_mapping"]

_WITHOUT_QUERY = "faithfulness,groundedness,unsupported_facts"

_TEXT_FIELDS = ("query", "response")
_NOTED_FIELDS = ("query", "response", "passages", "reference")
"""Fields for which a wrong choice of the column changes scores."""


def check_first_rows(
    source: RowSource,
    columns: Sequence[str],
    required: Collection[str],
    mapping: ColumnMap | None,
    note: Callable[[str], object],
) -> None:
    """Check that a file has the required columns; note which of several columns and lists of rows were taken.

    Args:
        source: the file.
        columns: its columns, or those of its first rows.
        required: the fields that must have a column.
        mapping: the columns that the user named.
        note: called for each field that more than one column could hold.

    Raises:
        TurnError: a column is missing from the whole file, or a column that the user named is not in it.
    """
    rows = _first_rows(source, mapping)
    if not columns or not rows:
        return
    if mapping is not None:
        check_mapping(source, columns, rows, mapping)
    fields = [take_fields(row, mapping) for row in rows]
    missing = _missing(source, required, fields)
    if missing:
        # A suggestion must not take the column of another field.
        used: set[str] = set()
        for found in fields:
            used.update(found.columns.values())
        raise _error(source.path, missing, required, columns, suggest_map(missing, rows, used))
    for line in source.file.notes:
        note(line)
    for choice in _choices(fields):
        note(f"{choice}: --map names another column")


def check_mapping(
    source: RowSource, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], mapping: ColumnMap
) -> None:
    """Check that the columns that the user named are there. A misspelled one would be empty in every row.

    Args:
        source: the file.
        columns: its columns, or those of its first rows.
        rows: its first rows.
        mapping: the columns that the user named.

    Raises:
        TurnError: a column is not there, or nothing is found under a path.
    """
    # A column that is there may be empty.
    unknown = [field for field, column in mapping.paths.items() if column not in columns]
    unseen = _not_found(unknown, rows, mapping)
    # The header of a table is complete. Other columns may come late, and so may the first value under a path.
    absent = [field for field in unseen if source.columns is not None and not mapping.is_path(field)]
    if unseen and not absent:
        with source.reopened() as again:
            absent = _not_found(unseen, (row.data for row in again if isinstance(row, Row)), mapping)
    if absent:
        raise _unknown_column(source.path, absent[0], columns, mapping)


def _unknown_column(path: Path, field: str, columns: Sequence[str], mapping: ColumnMap) -> TurnError:
    column = mapping.paths[field]
    close = get_close_matches(column, columns, n=1)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    message = f"{path}: nothing is under {column!r}, which --map names for the {field}."
    return TurnError(f"{message}{guess} Found: {', '.join(columns)}")


def _not_found(fields: Iterable[str], rows: Iterable[Mapping[str, Any]], mapping: ColumnMap) -> list[str]:
    """Return the fields for which no row has a value."""
    left = list(fields)
    for row in rows:
        if not left:
            break
        left = [field for field in left if not _is_found(field, mapping.value(field, row))]
    return left


def _is_found(field: str, value: object) -> bool:
    # No passages in any row is a result; a text is never an empty list.
    return value is not None and (field == "passages" or value != [])


def _first_rows(source: RowSource, mapping: ColumnMap | None) -> list[Mapping[str, Any]]:
    rows: Iterable[Row | BadRow] = source.sample
    if source.may_nest_questions and mapping is None:
        rows = unnested(rows)
    return [row.data for row in rows if isinstance(row, Row)]


def _missing(source: RowSource, required: Collection[str], fields: Sequence[Fields]) -> list[str]:
    taken: set[str] = set()
    for found in fields:
        taken.update(found.values)
    wanted = list(required)
    absent = without(wanted, taken)
    # A text that is an object in every row has to be mapped: the column is there, but the text is inside it.
    texts = taken.intersection(wanted, _TEXT_FIELDS)
    unread = [name for name in _TEXT_FIELDS if name in texts and _only_objects(name, fields, source)]
    return _still_missing(source, absent) + unread


def _still_missing(source: RowSource, missing: list[str]) -> list[str]:
    """Return those fields that no row of the whole file has; in JSON Lines a column may come late."""
    if source.columns is not None or not missing:
        return missing
    left = missing
    with source.reopened() as again:
        # A test set may have its references only in the rows of one source.
        for row in again:
            if isinstance(row, Row):
                left = [name for name in left if not has_column(name, row.data)]
            if not left:
                break
    return left


def _only_objects(name: str, fields: Sequence[Fields], source: RowSource) -> bool:
    """Return True if a field that should be text is an object in every row."""
    values = [found.values[name] for found in fields if name in found.values]
    if source.format.has_text_cells:
        # In JSON a text is a text, also if it holds JSON: a model was asked to write it.
        values = list(map(unpacked, values))
    return all(isinstance(value, Mapping) for value in values)


def _error(
    path: Path, missing: Sequence[str], required: Collection[str], columns: Sequence[str], suggestion: str
) -> TurnError:
    """Return the error for fields without a column.

    It says what is accepted, what there is, and the ``--map`` that would do.
    """
    hint = f". Try {suggestion}" if suggestion else _what_else(missing, required, columns)
    absent = [name for name in missing if not has_column(name, columns)]
    if absent:
        return TurnError(f"{path}: {missing_column(absent[0], columns, hint)}")
    # The column is there, but holds an object in which the field was not found.
    return TurnError(f"{path}: the {missing[0]} was not found in the columns {', '.join(columns)}{hint}")


def _what_else(missing: Sequence[str], required: Collection[str], columns: Sequence[str]) -> str:
    """Return the end of the message where no ``--map`` can be proposed."""
    options = " ".join(f"--map {name}=COLUMN" for name in missing)
    hint = f". Name the column with {options}"
    if missing == ["response"] and has_column("reference", columns):
        hint += ". If the file has questions only, ask your application first: rageval-hooks run"
    if missing == ["query"] and "response" in required:
        hint += f". If there are no questions, name metrics that need none: --metrics {_WITHOUT_QUERY}"
    return hint


def _choices(fields: Sequence[Fields]) -> Iterable[str]:
    """Return a sentence for each field that several columns could hold."""
    choices: dict[str, str] = {}
    for found, name in product(fields, _NOTED_FIELDS):
        others = found.others.get(name)
        if others:
            listed = ", ".join(map(repr, others))
            choices.setdefault(name, f"the {name} is taken from {found.columns[name]!r}, not from {listed}")
    return choices.values()
