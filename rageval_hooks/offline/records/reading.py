"""From the rows of a file to records: finds out what the rows are, and reads them in one pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.column_check import check_first_rows
from rageval_hooks.offline.records.columns import has_column
from rageval_hooks.offline.records.evaluations import is_evaluation, read_evaluations
from rageval_hooks.offline.records.from_columns import explain, record_from_row
from rageval_hooks.offline.records.mapping import ColumnMap
from rageval_hooks.offline.records.nesting import unnested
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import BadRow, Row
from rageval_hooks.offline.records.source import RowSource
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

__all__ = ["Item", "ReadOptions", "read_items"]

Item = Record | BadRow
Items = Iterator[tuple[int, Item]]
Make = Callable[[Mapping[str, Any], str, tuple[str, ...]], Record]
Note = Callable[[str], object]

_FIRST_ITEMS = 100
# Of the hash of a text: enough to tell two answers apart.
_BITS = 28
_MASK = (1 << _BITS) - 1


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
    with RowSource(path, encoding) as source:
        known = _KnownKeys(numbers_runs=not _says_runs(source))
        for line, item in _with_targets(_items(source, options)):
            if isinstance(item, Record):
                item = known.add(line, item)
            yield line, item


def _says_runs(source: RowSource) -> bool:
    """Return True if the rows themselves say which run they are of."""
    first = next(iter(source.good_sample), {})
    columns = source.columns or list(dict.fromkeys(chain.from_iterable(source.good_sample)))
    return holds_turn(first) or is_wide(columns) or has_column("run", columns)


class _KnownKeys:
    """The lines of the records so far. Only hashes of ids and texts are kept, because files have millions of rows.

    Args:
        numbers_runs: True to take a second answer to the same question under the same id for another run.
    """

    def __init__(self, *, numbers_runs: bool) -> None:
        self._numbers_runs = numbers_runs
        self._lines: dict[int, int] = {}
        self._runs: dict[int, int] = {}

    def add(self, line: int, record: Record) -> Item:
        """Return the record, with the number of its run; a bad row if its id and run are those of a record before."""
        key = hash(record.key)
        before = self._lines.get(key)
        if before is None:
            # One number for both: a second dictionary would double the memory.
            self._lines[key] = line << 2 * _BITS | _text_hash(record)
            return record
        if self._numbers_runs and self._is_another_answer(before, record):
            run = self._runs[key] = self._runs.get(key, record.run) + 1
            return record.model_copy(update={"run": run})
        reason = (
            f"the id {record.id!r}, run {record.run}, is on line {before >> 2 * _BITS} already: give each row its own"
        )
        return BadRow(line, reason, record.model_dump(mode="json", exclude_defaults=True))

    def _is_another_answer(self, before: int, record: Record) -> bool:
        """Return True if the question is the same as before, and the answer is not: a file with several systems."""
        difference = before ^ _text_hash(record)
        return difference >> _BITS & _MASK == 0 and difference & _MASK != 0


def _text_hash(record: Record) -> int:
    turn = record.turn
    return (hash(turn.query) & _MASK) << _BITS | hash(turn.response) & _MASK


def _with_targets(items: Items) -> Items:
    """Add the ranks of target passages that the file does not state."""
    # The first rows show whether ids of targets and passages can be compared.
    first = list(islice(items, _FIRST_ITEMS))
    ids = TargetIds()
    for _, item in first:
        if isinstance(item, Record):
            ids.add(item.target, item.turn.passages)
    for line, item in chain(first, items):
        if isinstance(item, Record):
            item = place_target(item, ids)
        yield line, item


def _items(source: RowSource, options: ReadOptions) -> Items:
    _note_encoding(source, options.note)
    first = next(iter(source.good_sample), {})
    if is_export(first):
        return read_traces(source)
    if is_evaluation(first):
        return read_evaluations(source)
    return _from_columns(source, options)


def _note_encoding(source: RowSource, note: Note) -> None:
    """Tell the user that the encoding of a text file was guessed."""
    # The encoding is detected when it is asked for, which is slow and meaningless for Parquet and Excel.
    if not source.format.is_binary and source.file.encoding.guessed:
        note(f"{source.path} is read as {source.file.encoding.name}: --encoding names another encoding")


def _from_columns(source: RowSource, options: ReadOptions) -> Items:
    columns = source.columns or list(dict.fromkeys(chain.from_iterable(source.good_sample)))
    required = options.required
    if is_long(columns):
        # The passages are in the column "passage", one per row, and are joined below.
        required = tuple(field for field in required if field != "passages")
    # Rows of this package have no columns, and those of runs side by side have their number in the names.
    has_turns = any(map(holds_turn, source.good_sample))
    if not has_turns and not is_wide(columns):
        check_first_rows(source, columns, required, options.mapping, options.note)
    make = _maker(source, columns, options)
    # A number could be the id of another row.
    prefix = "row-" if has_column("id", columns) else ""
    return _records(_one_row_per_answer(source, columns, options), make, required, prefix)


def _one_row_per_answer(source: RowSource, columns: list[str], options: ReadOptions) -> Iterator[Row | BadRow]:
    if is_wide(columns):
        return wide_rows(source)
    if is_long(columns):
        return long_rows(source)
    if source.may_nest_questions and options.mapping is None:
        return unnested(source)
    return iter(source)


def _maker(source: RowSource, columns: list[str], options: ReadOptions) -> Make:
    """Return the function that makes a record of a row, its name and the required fields."""
    table = source.format.has_text_cells or is_wide(columns)
    from_row = partial(record_from_row, table=table, mapping=options.mapping)
    # Columns that the user named come before what a layout says about them.
    if options.mapping is not None:
        return from_row
    if has_their_scores(columns):
        return their_record
    if is_native(columns):
        return partial(native_record, scores=_numeric(source, columns, options))
    return from_row


def _numeric(source: RowSource, columns: list[str], options: ReadOptions) -> Collection[str]:
    """Return the columns named as scores that hold only numbers."""
    named = set(options.scores) & set(columns)
    if not named:
        return ()
    # Only reports that name such columns need this second pass.
    with RowSource(source.path, options.encoding) as again:
        return numeric_columns(named, again)


def _records(rows: Iterable[Row | BadRow], make: Make, required: tuple[str, ...], prefix: str) -> Items:
    for row in rows:
        if isinstance(row, BadRow):
            yield row.line, row
            continue
        try:
            yield row.line, _record(row, make, required, prefix)
        except (ValidationError, TurnError) as error:
            yield row.line, BadRow(row.line, explain(error), row.data)


def _record(row: Row, make: Make, required: tuple[str, ...], prefix: str) -> Record:
    if holds_turn(row.data):
        return Record.model_validate(row.data)
    return make(row.data, f"{prefix}{row.number}", required)
