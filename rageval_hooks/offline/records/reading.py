"""From a file to records: finds out what its rows are, and reads them in one pass."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.integrations.conversation import turns_from_conversation
from rageval_hooks.integrations.opentelemetry.facts import tree_of
from rageval_hooks.integrations.opentelemetry.spans import TracedSpan, is_export, span_rows
from rageval_hooks.integrations.opentelemetry.turn_building import TURN_ID, NoTurn, turns_from_spans
from rageval_hooks.offline.records.columns import ColumnMap, find_columns, has_column
from rageval_hooks.offline.records.formats import BadRow, Row, SourceFile, format_of
from rageval_hooks.offline.records.formats.json_files import read_document
from rageval_hooks.offline.records.record import Record, Systems, are_comparable, holds_turn, place_target
from rageval_hooks.offline.records.rows import explain, is_ours, record_from_row, record_of_table
from rageval_hooks.runtime.narrowing import is_missing, is_number, mapping_or_empty
from rageval_hooks.score import Evaluation, Score
from rageval_hooks.turn import NO_SPAN

Item = Record | BadRow
Items = Iterator[tuple[int, Item]]

# So few rows are read fast, and most files show their form in them.
_SAMPLE_ROWS = 100

# Names of the array in the files of a conversation.
_MESSAGES = ("conversation_turns", "messages", "turns", "conversation", "chat")
_CONTEXTS = ("contexts", "vector_data", "passages", "documents", "retrieved_contexts")


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What decides on the rows of a file. With other options the rows are others: results of the two are never mixed.

    Attributes:
        columns: the columns that the user named, and those that are ignored.
        encoding: of a text file; None to detect it.
        sheet: the worksheet of a workbook, or the array of a JSON document; None to choose it.
    """

    columns: ColumnMap | None = None
    encoding: str | None = None
    sheet: str | None = None

    def settings(self) -> dict[str, Any]:
        """Return those that were given, by the names that a user knows."""
        given = {
            "map": self.columns and self.columns.columns,
            "ignore": (self.columns and sorted(self.columns.ignored)) or None,
            "encoding": self.encoding,
            "sheet": self.sheet,
        }
        return {name: value for name, value in given.items() if value is not None}


READ_AS_IS = ReadOptions()


class RowSource:
    """The rows of a file: the first ones sampled, then all of them in one pass.

    Args:
        path: the file.
        options: how to read it.

    Attributes:
        sample: the data of the first rows.
        columns: the names in them.
        notes: decisions about the file that the user should know.

    Raises:
        ConfigurationError: there is no such file, or its format or the encoding is not known.
        TurnError: the file cannot be read as its format.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        file = SourceFile(path, options.encoding, options.sheet)

        def rows() -> Iterator[Row | BadRow]:
            with file.reading():
                yield from format_of(path).read(file)

        self._rows = rows()
        self._first = list(islice(self._rows, _SAMPLE_ROWS))
        self.sample = [row.data for row in self._first if isinstance(row, Row)]
        self.columns: list[str] = list(dict.fromkeys(chain.from_iterable(self.sample)))
        self.notes = file.notes

    def __iter__(self) -> Iterator[Row | BadRow]:
        """Yield all rows, once: the sample was read from the same pass, which continues behind it."""
        return chain(self._first, self._rows)


def columns_of(path: Path, required: Sequence[str], options: ReadOptions) -> ColumnMap:
    """Return the columns of a file with rows of another tool, as ``--map-file`` keeps them.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, or the file cannot be read.
    """
    sample = [row for row in RowSource(path, options).sample if not holds_turn(row)]
    return find_columns(f"{path}: ", sample, required, options.columns)


def columns_in(path: Path, options: ReadOptions) -> list[str]:
    """Return the columns in the first rows of a file; none for records of this package."""
    source = RowSource(path, options)
    return [] if any(map(holds_turn, source.sample)) else source.columns


def read_records(
    path: str | os.PathLike[str],
    *,
    required: Iterable[str] = ("query", "response"),
    scores: Collection[str] = (),
    on_bad: Callable[[BadRow], None] | None = None,
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
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
        sheet: the worksheet of a workbook, or the array of a JSON document, by its keys.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, the file is unreadable, or a row cannot be used and there is no ``on_bad``.
    """
    options = ReadOptions(columns=ColumnMap(mapping) if mapping else None, encoding=encoding, sheet=sheet)
    for _, item in read_items(Path(path), required, scores, options=options):
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
    context: Path | None = None,
    options: ReadOptions = READ_AS_IS,
    note: Callable[[str], object] = lambda _: None,
) -> Items:
    """Yield each record of a file, or row that cannot be used, with the line on which it begins.

    Records without an id are named by their number, or ``row-2`` if others have ids. Of two records with the same id
    and run, the second cannot be used.

    Args:
        path: the file.
        required: fields that rows with columns must have.
        scores: columns of a table of ours that are scores where they hold a number.
        context: what was retrieved, if the file is a conversation: chat messages.
        options: how to read it.
        note: called with each decision that the user should know, such as a guessed encoding.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, or the file cannot be read at all.
    """
    if context is not None:
        yield from _read_conversation(path, context)
        return
    source = RowSource(path, options)
    for line in source.notes:
        note(line)
    first = next(iter(source.sample), {})
    columns, needed = source.columns, tuple(required)
    numbers_runs = is_table_of_ours = False
    found = ColumnMap({})
    if is_export(first):
        items = _read_groups(source, _spans_by_trace, _records_of_trace)
    elif holds_turn(first) and "rageval_record" not in first:
        items = _read_groups(source, _evaluation_by_turn, _record_of_evaluations)
    else:
        rows: Iterable[Row | BadRow] = source
        # open-rag-eval's connectors write a row per passage. With a column of all of them, "passage" is no such column.
        if {"passage", _ANSWER}.issubset(columns) and not has_column("passages", columns):
            rows = _joined_rows(source)
            needed = tuple(field for field in needed if field != "passages")
            found = _JOINED
        else:
            sample = [row for row in source.sample if not holds_turn(row)]
            # A second answer to the same question under the same id is another run.
            numbers_runs = not has_column("run", columns) and not holds_turn(first)
            # Columns that the user named come before what our own tables say about them.
            is_table_of_ours = options.columns is None and is_ours(columns)
            if not is_table_of_ours:
                found = find_columns(f"{path}: ", sample, needed, options.columns, note=note)

        def make(row: Mapping[str, Any], name: str) -> Record:
            # Rows of ours and of other tools may be in one file.
            if holds_turn(row):
                return Record.model_validate(row)
            if is_table_of_ours:
                return record_of_table(row, name, needed, scores)
            return record_from_row(row, name, found, needed)

        # A number could be the id of another row.
        items = _read_rows(rows, make, "row-" if has_column("id", columns) else "")
    systems = Systems()
    for place, item in _with_unique_keys(_with_targets(items), numbers_runs=numbers_runs):
        if isinstance(item, Record):
            systems.add(item)
        yield place, item
    if described := systems.described():
        note(f"{path}: {described}")


def _read_rows(rows: Iterable[Row | BadRow], make: Callable[[Mapping[str, Any], str], Record], prefix: str) -> Items:
    for number, row in enumerate(rows, 1):
        if isinstance(row, BadRow):
            yield row.line, row
            continue
        try:
            yield row.line, make(row.data, f"{prefix}{number}")
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


def _with_targets(items: Iterable[tuple[int, Item]]) -> Items:
    """Add the ranks of target passages that the records do not state."""
    items = iter(items)
    # The first records show whether ids of targets and passages can be compared.
    first = list(islice(items, _SAMPLE_ROWS))
    comparable = are_comparable([item for _, item in first if isinstance(item, Record)])
    for line, item in chain(first, items):
        yield line, place_target(item, comparable=comparable) if isinstance(item, Record) else item


# --------------------------------------------------------------------------- rows that belong together

# What the connectors of open-rag-eval write: the column of the answer, and where the system gave none.
_ANSWER = "generated_answer"
_NO_ANSWER, _API_ERROR = "NO_ANSWER", "API_ERROR"
_JOINED = ColumnMap(
    {"id": "query_id", "run": "query_run"} | {name: name for name in ("query", "response", "error", "passages")}
)


def _joined_rows(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Join successive rows of the same question and run, each with one passage."""

    def question_and_run(row: Row | BadRow) -> tuple[Any, ...] | None:
        return None if isinstance(row, BadRow) else tuple(map(row.data.get, ("query_id", "query", "query_run")))

    for key, group in groupby(rows, key=question_and_run):
        found = list(group)
        data = [row.data for row in found if isinstance(row, Row)]
        if key is None:
            yield from found
            continue
        # The answer is repeated in each row, or is in one of them.
        answer = next((row[_ANSWER] for row in data if not is_missing(row[_ANSWER])), "")
        passages = [(row["passage"], row.get("passage_id")) for row in data if not is_missing(row["passage"])]
        joined = {
            **{name: value for name, value in data[0].items() if name not in ("passage", "passage_id", _ANSWER)},
            "response": "" if answer in (_NO_ANSWER, _API_ERROR) else answer,
            "error": answer if answer == _API_ERROR else None,
            "passages": [{"text": str(text), "id": identity} for text, identity in passages],
        }
        yield Row(found[0].line, joined)


Parts = Sequence[dict[str, Any]]


class Part(NamedTuple):
    """A part of a record.

    Attributes:
        key: what it shares with the others of the same record; None if only their trace is known.
        data: the part.
        trace: the id of the trace, if other parts may be known by it alone.
    """

    key: str | None
    data: Mapping[str, Any]
    trace: str | None = None


def _read_groups(
    source: RowSource,
    parts_of: Callable[[Row], Iterable[Part]],
    make: Callable[[int, Parts], Iterable[Record | BadRow]],
) -> Items:
    """Yield the records that parts of rows make together, wherever these are in the file, in the order of the first.

    Args:
        source: the rows. Their parts wait in a temporary database on disk.
        parts_of: returns the parts of a row. One that is known by its trace alone belongs to the one record of it.
        make: returns the records of the parts with the same key, given the line of the first.
    """
    with closing(sqlite3.connect("", check_same_thread=False)) as database:
        database.execute("CREATE TABLE parts (key TEXT, trace TEXT, line INTEGER, data TEXT)")
        known_by_trace = False
        for row in source:
            if isinstance(row, BadRow):
                yield row.line, row
                continue
            try:
                # Cells of Parquet may be times.
                parts = [
                    (None if part.key is None else json.dumps(part.key), part.trace, row.line, text)
                    for part in parts_of(row)
                    if (text := json.dumps(part.data, default=str))
                ]
            except ValidationError as error:
                yield row.line, BadRow(row.line, explain(error), row.data)
                continue
            known_by_trace |= any(key is None for key, *_ in parts)
            database.executemany("INSERT INTO parts VALUES (?, ?, ?, ?)", parts)
        if known_by_trace:
            database.execute("CREATE INDEX by_trace ON parts (trace)")
            # The first key of the trace, if it is also the last.
            database.execute(
                "UPDATE parts SET key = COALESCE((SELECT MIN(key) FROM parts AS others WHERE others.trace = parts.trace"
                " HAVING MIN(key) = MAX(key)), json_quote(trace)) WHERE key IS NULL"
            )
        groups = database.execute(
            "SELECT key, line, data FROM parts JOIN (SELECT key, MIN(rowid) AS first FROM parts GROUP BY key)"
            " USING (key) ORDER BY first, parts.rowid"
        )
        for _, group in groupby(groups, key=itemgetter(0)):
            _, lines, texts = zip(*group, strict=True)
            found = list(map(json.loads, texts))
            try:
                for record in make(lines[0], found):
                    yield lines[0], record
            except ValidationError as error:
                yield lines[0], BadRow(lines[0], explain(error), found[0])


def _evaluation_by_turn(row: Row) -> Iterator[Part]:
    turn = mapping_or_empty(row.data.get("turn"))
    span = mapping_or_empty(turn.get("span"))
    if span.get("span_id") == NO_SPAN:  # feedback on a trace
        yield Part(None, row.data, span.get("trace_id"))
    else:
        # Turns without an id stay apart.
        yield Part(turn.get("id") or f"\0{row.line}", row.data, span.get("trace_id"))


def _record_of_evaluations(line: int, parts: Parts) -> Iterator[Record | BadRow]:
    """Yield the record of a turn that the exporter ``jsonl`` wrote, with the scores that came later."""
    found = [Evaluation.model_validate(part) for part in parts]
    if not any(evaluation.turn.span is None or evaluation.turn.span.is_known for evaluation in found):
        yield BadRow(line, "feedback on a trace that has no turn in this file, or several", parts[0])
        return
    # Lines of later scores may have the turn without its content.
    turn = next((evaluation.turn for evaluation in found if evaluation.stage == "inline"), found[0].turn)
    results = tuple(chain.from_iterable(evaluation.results for evaluation in found))
    yield Record(id=turn.id or str(line), turn=turn, results=results)


def _spans_by_trace(row: Row) -> Iterator[Part]:
    # A row of OTLP-JSON has spans of several traces.
    for span in span_rows(row.data):
        if trace := TracedSpan.of(span).trace_id:
            yield Part(trace, span)


def _records_of_trace(line: int, parts: Parts) -> Iterator[Record | BadRow]:
    """Yield the turns of a trace with the scores that it has. One without retrieval or without an answer is none."""
    spans = list(map(TracedSpan.of, parts))
    for found in turns_from_spans(spans):
        if isinstance(found, NoTurn):
            if found.cause == "no_content":
                yield BadRow(line, found.reason, {"span_id": found.span_id})
        elif found.has_retrieval or found.missing or not (found.span and found.span.external):
            yield Record(id=found.id, turn=found, results=_scores_of(found.id, spans))


def _scores_of(turn_id: str, spans: Sequence[TracedSpan]) -> tuple[Score, ...]:
    """Return the scores of a whole turn that we wrote onto spans; of each the first."""
    all_spans = chain.from_iterable(top.inside() for top in tree_of(spans))
    root = next(one for one in all_spans if turn_id in (one.span.span_id, one.span.text(TURN_ID)))
    found: dict[str, Score] = {}
    # The spans of evaluations have every score, the turn's own only the main ones.
    own = sorted((one.span for one in root.inside() if one.span.kind == "EVALUATOR"), key=lambda span: span.started_at)
    for span in (*own, root.span):
        for name, value in span.below("rageval.score.").items():
            if is_number(value) and name not in found:
                about = {
                    "label": span.text(f"rageval.label.{name}") or None,
                    "explanation": span.text(f"rageval.explanation.{name}") or None,
                    "annotator": span.text("rageval.annotator") or "CODE",
                    "metric": span.text("rageval.metric") or None,
                }
                found[name] = Score.model_validate({"name": name, "value": value, **about})
    return tuple(found.values())


# --------------------------------------------------------------------------- conversations


def _read_conversation(messages: Path, contexts: Path) -> Iterator[tuple[int, Record]]:
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
