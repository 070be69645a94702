"""From a file to records: finds out what its rows are, and reads them in one pass."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.integrations.conversation import turns_from_conversation
from rageval_hooks.offline.records import open_rag_eval, tables, traces
from rageval_hooks.offline.records.columns import ColumnMap, check_columns, has_column
from rageval_hooks.offline.records.formats import BadRow, Row, SourceFile, format_of
from rageval_hooks.offline.records.formats.json_files import read_document
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import explain, record_from_row
from rageval_hooks.offline.records.targets import TargetIds, place_target
from rageval_hooks.score import Evaluation

Item = Record | BadRow
Items = Iterator[tuple[int, Item]]

# So few rows are read fast, and most files show their form in them.
_SAMPLE_ROWS = 100

# Names of the array in the files of a conversation.
_MESSAGES = ("conversation_turns", "messages", "turns", "conversation", "chat")
_CONTEXTS = ("contexts", "vector_data", "passages", "documents", "retrieved_contexts")


class RowSource:
    """The rows of a file: the first ones sampled, then all of them in one pass.

    Args:
        path: the file.
        encoding: of a text file; None to detect it.

    Attributes:
        sample: the data of the first rows.
        columns: the names in them.
        notes: decisions about the file that the user should know.

    Raises:
        ConfigurationError: there is no such file, or its format or the encoding is not known.
        TurnError: the file cannot be read as its format.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self._file = SourceFile(path, encoding)
        self._rows = self._read()
        self._first = list(islice(self._rows, _SAMPLE_ROWS))
        self.sample = [row.data for row in self._first if isinstance(row, Row)]
        self.columns: list[str] = list(dict.fromkeys(chain.from_iterable(self.sample)))
        self.notes = self._file.notes

    def __iter__(self) -> Iterator[Row | BadRow]:
        """Yield all rows, once: the sample was read from the same pass, which continues behind it."""
        return chain(self._first, self._rows)

    def _read(self) -> Iterator[Row | BadRow]:
        with self._file.reading():
            yield from format_of(self.path).read(self._file)


def read_records(
    path: str | os.PathLike[str],
    *,
    required: Iterable[str] = ("query", "response"),
    scores: Collection[str] = (),
    on_bad: Callable[[BadRow], None] | None = None,
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> Iterator[Record]:
    """Yield the records of a file, one at a time.

    Readable are JSON Lines, JSON, CSV, Parquet and Excel files, compressed ones too. They may hold records of this
    package, evaluations of the exporter ``jsonl``, rows with the columns of
    :data:`rageval_hooks.offline.records.columns.ALIASES`, or traces (OTLP-JSON, spans of Phoenix).

    Args:
        path: the file.
        required: fields that rows with columns must have.
        scores: columns of a table of ours that are scores where they hold a number.
        on_bad: called with each row that cannot be used; without it such a row is an error.
        mapping: field → column, for columns with other names: ``{"passages": "contexts[].text"}``; an empty name for
            a field that the file does not have.
        encoding: of a text file; None to detect it.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, the file is unreadable, or a row cannot be used and there is no ``on_bad``.
    """
    columns = ColumnMap(mapping) if mapping else None
    for _, item in read_items(Path(path), required, scores, mapping=columns, encoding=encoding):
        if isinstance(item, Record):
            yield item
        elif on_bad is not None:
            on_bad(item)
        else:
            raise TurnError(f"{path}, line {item.line}: {item.reason}")


def read_items(
    path: Path,
    required: Iterable[str] = ("query", "response"),
    scores: Collection[str] = (),
    *,
    mapping: ColumnMap | None = None,
    encoding: str | None = None,
    note: Callable[[str], object] = lambda _: None,
) -> Items:
    """Yield each record of a file, or row that cannot be used, with the line on which it begins.

    Records without an id are named by their number, or ``row-2`` if others have ids. Of two records with the same id
    and run, the second cannot be used.

    Args:
        path: the file.
        required: fields that rows with columns must have.
        scores: columns of a table of ours that are scores where they hold a number.
        mapping: columns that the user named.
        encoding: of a text file; None to detect it.
        note: called with each decision that the user should know, such as a guessed encoding.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, or the file cannot be read at all.
    """
    source = RowSource(path, encoding)
    for line in source.notes:
        note(line)
    first = next(iter(source.sample), {})
    columns, needed = source.columns, tuple(required)
    rows: Iterable[Row | BadRow] = source

    # Columns that the user named come before what our own tables say about them.
    is_ours = mapping is None and tables.is_ours(columns)

    def make(row: Mapping[str, Any], name: str) -> Record:
        if is_ours:
            return tables.record_of(row, name, needed, scores)
        return record_from_row(row, name, needed, mapping)

    numbers_runs = False
    if traces.is_export(first):
        items = _read_traces(source)
    # Records of older releases have no version, but an id next to the turn, which evaluations lack.
    elif holds_turn(first) and "rageval_record" not in first and ("id" not in first or "stage" in first):
        items = _read_evaluations(source)
    else:
        if open_rag_eval.is_long(columns):
            # The passages are in the column "passage", one per row.
            rows = open_rag_eval.joined_rows(source)
            needed = tuple(field for field in needed if field != "passages")
        else:
            sample = [row for row in source.sample if not holds_turn(row)]
            check_columns(f"{path}: ", sample, needed, mapping, note=note)
            numbers_runs = not has_column("run", columns) and not holds_turn(first)
        # A number could be the id of another row.
        items = _read_rows(rows, make, "row-" if has_column("id", columns) else "")
    yield from _with_unique_keys(_with_targets(items), numbers_runs=numbers_runs)


def _read_rows(rows: Iterable[Row | BadRow], make: Callable[[Mapping[str, Any], str], Record], prefix: str) -> Items:
    for row in rows:
        if isinstance(row, BadRow):
            yield row.line, row
            continue
        try:
            # Rows of ours and of other tools may be in one file.
            ours = Record.model_validate(row.data) if holds_turn(row.data) else None
            yield row.line, ours or make(row.data, f"{prefix}{row.number}")
        except (ValidationError, TurnError) as error:
            yield row.line, BadRow(row.line, explain(error), row.data)


def _with_unique_keys(items: Items, *, numbers_runs: bool) -> Items:
    """Replace records whose id and run are those of a record before: by another run, or by a row that cannot be used.

    Args:
        items: the records.
        numbers_runs: True to take a second answer to the same question under the same id for another run.
    """
    # Hashes only, because files have millions of rows: id and run → line, question and answer.
    seen: dict[int, tuple[int, int, int]] = {}
    runs: dict[int, int] = {}
    for line, item in items:
        if isinstance(item, BadRow):
            yield line, item
            continue
        key, query, response = hash(item.key), hash(item.turn.query), hash(item.turn.response)
        if key not in seen:
            seen[key] = (line, query, response)
        elif numbers_runs and seen[key][1] == query and seen[key][2] != response:
            runs[key] = runs.get(key, item.run) + 1
            item = item.model_copy(update={"run": runs[key]})
        else:
            first = seen[key][0]
            reason = f"the id {item.id!r}, run {item.run}, is on line {first} already: give each row its own"
            item = BadRow(line, reason, item.model_dump(mode="json", exclude_defaults=True))
        yield line, item


def _with_targets(items: Items) -> Items:
    """Add the ranks of target passages that the file does not state."""
    # The first records show whether ids of targets and passages can be compared.
    first = list(islice(items, _SAMPLE_ROWS))
    ids = TargetIds()
    for _, item in first:
        if isinstance(item, Record):
            ids.add(item.target, item.turn.passages)
    for line, item in chain(first, items):
        yield line, place_target(item, ids) if isinstance(item, Record) else item


class _Group(NamedTuple):
    """Rows with the same key, wherever they are in the file; the line is that of the first."""

    line: int
    key: str
    rows: list[Mapping[str, Any]]


def _grouped(rows: Iterable[Row | BadRow], keys_of: Callable[[Row], Iterable[str]]) -> Iterator[_Group | BadRow]:
    """Yield rows by their keys, in the order of each key's first row.

    Rows wait in a temporary file: only their places are in memory.

    Args:
        rows: the rows.
        keys_of: returns the keys of a row; a row with several is in several groups.
    """
    lines: dict[str, int] = {}
    places: dict[str, list[int]] = {}
    with TemporaryFile() as file:
        for row in rows:
            if isinstance(row, BadRow):
                yield row
                continue
            for key in dict.fromkeys(keys_of(row)):
                places.setdefault(key, []).append(file.tell())
                lines.setdefault(key, row.line)
            # Cells of Parquet may be times.
            file.write(json.dumps(row.data, default=str).encode() + b"\n")

        # A row of OTLP has many spans of several traces.
        @lru_cache(maxsize=128)
        def row_at(place: int) -> Mapping[str, Any]:
            file.seek(place)
            found: Mapping[str, Any] = json.loads(file.readline())
            return found

        for key, found in places.items():
            yield _Group(lines[key], key, [row_at(place) for place in found])


def _read_evaluations(source: RowSource) -> Items:
    """Yield a record for each turn that the exporter ``jsonl`` wrote, with the scores that came later."""

    def key_of(row: Row) -> list[str]:
        turn = row.data.get("turn")
        identity = turn.get("id") if isinstance(turn, Mapping) else None
        # Turns without an id stay apart: each row is its own group.
        return [str(identity) if identity else f"\0{row.number}"]

    for number, group in enumerate(_grouped(source, key_of), 1):
        if isinstance(group, BadRow):
            yield group.line, group
            continue
        try:
            found = [Evaluation.model_validate(row) for row in group.rows]
        except ValidationError as error:
            yield group.line, BadRow(group.line, explain(error), group.rows[0])
            continue
        # Lines of later scores may have the turn without its content.
        turn = next((evaluation.turn for evaluation in found if evaluation.stage == "inline"), found[0].turn)
        results = tuple(chain.from_iterable(evaluation.results for evaluation in found))
        yield group.line, Record(id=turn.id or str(number), turn=turn, results=results)


def _read_traces(source: RowSource) -> Items:
    """Yield the turns of exported traces, each with the line on which its trace begins."""
    for group in _grouped(source, lambda row: [span.trace_id for span in traces.spans_of(row.data) if span.trace_id]):
        if isinstance(group, BadRow):
            yield group.line, group
            continue
        # A row of OTLP-JSON has spans of several traces.
        spans = [span for row in group.rows for span in traces.spans_of(row) if span.trace_id == group.key]
        try:
            for record in traces.records_of(spans):
                yield group.line, record
        except ValidationError as error:
            yield group.line, BadRow(group.line, f"trace {group.key}: {explain(error)}", {"trace_id": group.key})


def read_conversation(messages: Path, contexts: Path) -> Iterator[tuple[int, Record]]:
    """Yield a record for each answer of a conversation, with its number.

    Args:
        messages: a JSON array of messages, or an object with one under one of the usual names.
        contexts: a JSON array of passages for all answers, or of one such array per answer; or an object with it.

    Raises:
        ConfigurationError: there is no such file.
        TurnError: it is not JSON, or the two do not fit together; the message says where.
    """
    # The passages of a turn are matched to its answer by their position.
    turns = turns_from_conversation(_array(messages, _MESSAGES), _array(contexts, _CONTEXTS))
    for number, turn in enumerate(turns, 1):
        yield number, Record(id=turn.id, turn=turn)


def _array(path: Path, names: tuple[str, ...]) -> list[Any]:
    file = SourceFile(path)
    with file.reading():
        found = read_document(file)
    # Exports nest the array in objects: `{"data": {"messages": [...]}}`.
    while isinstance(found, dict):
        found = next((found[name] for name in (*names, "data") if isinstance(found.get(name), (dict, list))), None)
    if not isinstance(found, list):
        raise TurnError(f"{path} has no array under one of {', '.join(names)}")
    return found


def count_rows(path: Path) -> int | None:
    """Return about how many rows a file has, for a progress bar; None if that is unknown without reading it whole."""
    if path.suffix.lower() not in (".jsonl", ".ndjson", ".csv", ".tsv"):
        return None
    try:
        with path.open("rb") as file:
            # In blocks of a megabyte: iterating over lines takes ten times as long.
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return None
