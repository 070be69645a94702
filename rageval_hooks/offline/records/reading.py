"""What the rows of a file are, and the records in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Union

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.aliases import check_columns, explain, has_column, record_from_row
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import BadRow, Row, columns_of, read_groups, read_rows
from rageval_hooks.offline.records.spans import is_export
from rageval_hooks.offline.records.table_forms import (
    has_their_scores,
    is_long,
    is_native,
    is_wide,
    long_rows,
    native_record,
    numeric_columns,
    their_record,
    wide_rows,
)
from rageval_hooks.offline.records.traces import read_traces
from rageval_hooks.score import Evaluation

__all__ = ["Item", "read_items"]

Item = Union[Record, BadRow]
Items = Iterator[tuple[int, Item]]

_PEEK = 100


def read_items(path: Path, required: Iterable[str] = ("query", "response"), scores: Collection[str] = ()) -> Items:
    """Yield what stands in a file: each record, or row that is none, with the line on which it begins.

    Records without an id are named by their number, ``row-2`` where others have ids. Of two with the same id and run,
    the second is bad.

    Args:
        path: the file.
        required: fields that rows with columns must have.
        scores: columns of a table of ours that are scores, if they hold numbers alone, whatever stands beside them.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, or the file cannot be read at all.
    """
    seen: dict[tuple[str, int], int] = {}
    for line, item in _items(path, tuple(required), scores):
        if isinstance(item, Record):
            before = seen.get(item.key)
            if before is not None:
                reason = f"the id {item.id!r}, run {item.run}, is on line {before} already: give each row its own"
                yield line, BadRow(line, reason, item.model_dump(mode="json", exclude_defaults=True))
                continue
            seen[item.key] = line
        yield line, item


def _items(path: Path, required: tuple[str, ...], scores: Collection[str]) -> Items:
    rows = read_rows(path)
    first = list(islice(rows, _PEEK))
    sample = next((row.data for row in first if isinstance(row, Row)), {})
    if is_export(sample):
        return read_traces(path)
    if _is_evaluation(sample):
        return _evaluations(path)
    everything: Iterator[Row | BadRow] = chain(first, rows)
    found = [row.data for row in first if isinstance(row, Row)]
    table = columns_of(path)
    columns = list(dict.fromkeys(chain.from_iterable(found))) if table is None else table
    named = numeric_columns(scores, read_rows(path)) if is_native(columns) and set(scores) & set(columns) else ()
    form = _Form(_make(columns, table is not None, named), required, "row-" if has_column("id", columns) else "")
    if is_wide(columns):
        return _each(wide_rows(everything), form)
    if is_long(columns):
        form = replace(form, required=tuple(field for field in required if field != "passages"))
        everything = long_rows(everything)
    if not any(map(holds_turn, found)):
        _check(path, columns, form.required, table is not None)
    return _each(everything, form)


Make = Callable[[Mapping[str, Any], str, tuple[str, ...]], Record]


@dataclass(frozen=True)
class _Form:
    """How rows become records.

    Attributes:
        make: makes one of a row, its name if it has no id, and the fields that it must have.
        required: these fields.
        prefix: before the number in such a name.
    """

    make: Make
    required: tuple[str, ...]
    prefix: str


def _make(columns: list[str], table: bool, scores: Collection[str]) -> Make:
    if has_their_scores(columns):
        return their_record
    if is_native(columns):
        return partial(native_record, scores=scores)
    return partial(record_from_row, table=table or is_wide(columns))


def _check(path: Path, columns: list[str], required: tuple[str, ...], table: bool) -> None:
    """Say at once that a column is missing from a whole file; where each row has its own, from all that there are."""
    if not columns:
        return
    try:
        check_columns(columns, required)
    except TurnError as error:
        if table:
            raise TurnError(f"{path}: {error}") from None
        everything = chain.from_iterable(row.data for row in read_rows(path) if isinstance(row, Row))
        _check(path, list(dict.fromkeys(everything)), required, True)


def _each(rows: Iterator[Row | BadRow], form: _Form) -> Items:
    for row in rows:
        if isinstance(row, BadRow):
            yield row.line, row
            continue
        try:
            ours = holds_turn(row.data)
            name = f"{form.prefix}{row.number}"
            yield row.line, Record.model_validate(row.data) if ours else form.make(row.data, name, form.required)
            continue
        except ValidationError as error:
            reason = explain(error)
        except TurnError as error:
            reason = str(error)
        yield row.line, BadRow(row.line, reason, row.data)


def _is_evaluation(row: Mapping[str, Any]) -> bool:
    return holds_turn(row) and "id" not in row


def _evaluations(path: Path) -> Items:
    """Yield the turns that the exporter ``jsonl`` has written, each with the scores that came later."""
    for number, group in enumerate(read_groups(path, _turn_id), 1):
        if isinstance(group, BadRow):
            yield group.line, group
            continue
        try:
            found = [Evaluation.model_validate(row) for row in group.rows]
        except ValidationError as error:
            yield group.line, BadRow(group.line, explain(error), group.rows[0])
            continue
        turn = next((evaluation.turn for evaluation in found if evaluation.stage == "inline"), found[0].turn)
        results = tuple(result for evaluation in found for result in evaluation.results)
        yield group.line, Record(id=turn.id or str(number), turn=turn, results=results)


def _turn_id(row: Row) -> tuple[str]:
    turn = row.data.get("turn")
    identity = turn.get("id") if isinstance(turn, Mapping) else None
    return (str(identity) if identity else f"\0{row.number}",)
