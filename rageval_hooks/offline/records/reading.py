"""From the rows of a file to records: finds out what the rows are, and reads them in one pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.cells import unpacked
from rageval_hooks.offline.records.columns import Fields, check_columns, has_column, take_fields
from rageval_hooks.offline.records.from_columns import explain, record_from_row
from rageval_hooks.offline.records.mapping import ColumnMap
from rageval_hooks.offline.records.nesting import unnested
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import BadRow, Row
from rageval_hooks.offline.records.source import RowSource
from rageval_hooks.offline.records.suggestions import suggest_map
from rageval_hooks.offline.records.tables.native import is_native, native_record, numeric_columns
from rageval_hooks.offline.records.tables.open_rag_eval_forms import (
    has_their_scores,
    is_long,
    is_wide,
    long_rows,
    their_record,
    wide_rows,
)
from rageval_hooks.offline.records.targets import TargetIds, place_target
from rageval_hooks.offline.records.traces import is_export, read_traces
from rageval_hooks.score import Evaluation

__all__ = ["Item", "ReadOptions", "read_items"]

Item = Record | BadRow
Items = Iterator[tuple[int, Item]]
Make = Callable[[Mapping[str, Any], str, tuple[str, ...]], Record]
Note = Callable[[str], object]


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a file is read.

    Attributes:
        required: fields that rows with columns must have.
        scores: columns of a table of ours that are scores if they hold only numbers.
        mapping: columns that the user named.
        encoding: of a text file; None to detect it.
        note: called with each decision that the user should know, such as a guessed encoding.
    """

    required: tuple[str, ...] = ("query", "response")
    scores: Collection[str] = ()
    mapping: ColumnMap | None = None
    encoding: str | None = None
    note: Note = lambda _: None


def read_items(
    path: Path,
    required: Iterable[str] = ("query", "response"),
    scores: Collection[str] = (),
    *,
    mapping: ColumnMap | None = None,
    encoding: str | None = None,
    note: Note = lambda _: None,
) -> Items:
    """Yield each record of a file, or row that cannot be used, with the line on which it begins.

    Records without an id are named by their number, or ``row-2`` if others have ids. Of two records with the same id
    and run, the second cannot be used.

    Args:
        path: the file.
        required: fields that rows with columns must have.
        scores: columns of a table of ours that are scores if they hold only numbers.
        mapping: columns that the user named.
        encoding: of a text file; None to detect it.
        note: called with each decision that the user should know, such as a guessed encoding.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, or the file cannot be read at all.
    """
    options = ReadOptions(required=tuple(required), scores=scores, mapping=mapping, encoding=encoding, note=note)
    seen: dict[tuple[str, int], int] = {}
    with RowSource(path, encoding) as source:
        for line, item in _with_targets(_items(source, options)):
            if not isinstance(item, Record):
                yield line, item
                continue
            before = seen.get(item.key)
            if before is None:
                seen[item.key] = line
                yield line, item
            else:
                reason = f"the id {item.id!r}, run {item.run}, is on line {before} already: give each row its own"
                yield line, BadRow(line, reason, item.model_dump(mode="json", exclude_defaults=True))


def _with_targets(items: Items) -> Items:
    """Add the ranks of target passages that the file does not state."""
    # The first rows show whether ids of targets and passages can be compared.
    first = [found for _, found in zip(range(100), items, strict=False)]
    ids = TargetIds()
    for _, item in first:
        if isinstance(item, Record):
            ids.add(item.target, item.turn.passages)
    for line, item in chain(first, items):
        yield line, place_target(item, ids) if isinstance(item, Record) else item


def _items(source: RowSource, options: ReadOptions) -> Items:
    sample = source.good_sample
    first = sample[0] if sample else {}
    encoding = source.file.encoding if source.format.has_text_cells or not source.columns else None
    if encoding is not None and encoding.guessed:
        options.note(f"{source.path} is read as {encoding.name}: --encoding names another encoding")
    if is_export(first):
        return read_traces(source)
    if _is_evaluation(first):
        return _evaluations(source)
    return _from_columns(source, options)


def _from_columns(source: RowSource, options: ReadOptions) -> Items:
    columns = source.columns or list(dict.fromkeys(chain.from_iterable(source.good_sample)))
    required = options.required
    rows: Iterator[Row | BadRow] = iter(source)
    make = _maker(source, columns, options)
    if is_wide(columns):
        rows = wide_rows(rows)
    elif is_long(columns):
        rows = long_rows(rows)
        required = tuple(field for field in required if field != "passages")
    elif source.columns is None and options.mapping is None:
        rows = unnested(rows)
    if not is_wide(columns) and not any(map(holds_turn, source.good_sample)):
        _check(source, columns, required, options)
    prefix = "row-" if has_column("id", columns) else ""
    return _records(rows, make, required, prefix)


def _maker(source: RowSource, columns: list[str], options: ReadOptions) -> Make:
    """Return the function that makes a record of a row, its name and the required fields."""
    if options.mapping is None and has_their_scores(columns):
        return their_record
    if options.mapping is None and is_native(columns):
        named = set(options.scores) & set(columns)
        return partial(native_record, scores=_numeric(source, named, options) if named else ())
    table = source.format.has_text_cells or is_wide(columns)
    return partial(record_from_row, table=table, mapping=options.mapping)


def _numeric(source: RowSource, named: set[str], options: ReadOptions) -> Collection[str]:
    """Return the named columns that hold only numbers. Only reports that name such columns need this second pass."""
    with RowSource(source.path, options.encoding) as again:
        return numeric_columns(named, again)


def _check(source: RowSource, columns: list[str], required: tuple[str, ...], options: ReadOptions) -> None:
    """Check that a file has the required columns, before any row is used; say which of several columns was taken.

    Raises:
        TurnError: a column is missing from the whole file.
    """
    rows = [row.data for row in _unnested_sample(source, options)]
    if not columns or not rows:
        return
    fields = [take_fields(row, options.mapping) for row in rows]
    taken = {name for found in fields for name in found.values}
    missing = _still_missing(source, [name for name in required if name not in taken])
    missing += [name for name in required if name in taken and _only_objects(name, fields)]
    if missing:
        used = {column for found in fields for column in found.columns.values()}
        _fail_missing(source.path, missing, columns, suggest_map(missing, rows, used))
    _note_choices(fields, options.note)


def _unnested_sample(source: RowSource, options: ReadOptions) -> list[Row]:
    rows: Iterable[Row | BadRow] = source.sample
    if source.columns is None and options.mapping is None:
        rows = unnested(rows)
    return [row for row in rows if isinstance(row, Row)]


def _still_missing(source: RowSource, missing: list[str]) -> list[str]:
    """Return those fields that no row of the whole file has; in JSON Lines a column may come late."""
    if source.columns is not None or not missing:
        return missing
    left = set(missing)
    with RowSource(source.path) as again:
        for row in again:
            if isinstance(row, Row):
                left -= {name for name in left if has_column(name, row.data)}
            if not left:
                break
    return [name for name in missing if name in left]


def _only_objects(name: str, fields: list[Fields]) -> bool:
    """Return True if a field that is text was found as an object in every row, so that it has to be mapped."""
    if name not in ("query", "response"):
        return False
    values = [found.values[name] for found in fields if name in found.values]
    return all(isinstance(unpacked(value), Mapping) for value in values)


def _fail_missing(path: Path, missing: list[str], columns: list[str], suggestion: str) -> None:
    """Raise the error for fields without a column.

    Raises:
        TurnError: always; the message says what is accepted, what there is, and the ``--map`` that would do.
    """
    hint = f". Try {suggestion}" if suggestion else ". --map FIELD=COLUMN names one"
    try:
        check_columns(columns, missing[:1], hint)
    except TurnError as error:
        raise TurnError(f"{path}: {error}") from None
    # The column is there, but holds an object in which the field was not found.
    raise TurnError(f"{path}: the {missing[0]} was not found in the columns {', '.join(columns)}{hint}")


def _note_choices(fields: list[Fields], note: Note) -> None:
    """Say which column was taken if several could be meant."""
    said: dict[str, str] = {}
    for found in fields:
        for name, others in found.others.items():
            if others and name in ("query", "response", "passages", "reference"):
                column = found.columns[name]
                said.setdefault(name, f"the {name} is taken from {column!r}, not from {', '.join(map(repr, others))}")
    for line in said.values():
        note(f"{line}: --map names another column")


def _records(rows: Iterator[Row | BadRow], make: Make, required: tuple[str, ...], prefix: str) -> Items:
    for row in rows:
        if isinstance(row, BadRow):
            yield row.line, row
            continue
        try:
            if holds_turn(row.data):
                yield row.line, Record.model_validate(row.data)
            else:
                yield row.line, make(row.data, f"{prefix}{row.number}", required)
        except ValidationError as error:
            yield row.line, BadRow(row.line, explain(error), row.data)
        except TurnError as error:
            yield row.line, BadRow(row.line, str(error), row.data)


def _is_evaluation(row: Mapping[str, Any]) -> bool:
    return holds_turn(row) and "id" not in row


def _evaluations(source: RowSource) -> Items:
    """Yield the turns that the exporter ``jsonl`` wrote, each with the scores that came later."""
    for number, group in enumerate(source.groups(_turn_id), 1):
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
    # Turns without an id stay apart: each row is its own group.
    return (str(identity) if identity else f"\0{row.number}",)
