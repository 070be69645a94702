"""From the rows of a file to records: finds out what the rows are, and reads them in one pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.integrations.conversation import turns_from_conversation
from rageval_hooks.offline.records import open_rag_eval, tables, traces
from rageval_hooks.offline.records.columns import ColumnMap, check_columns, has_column
from rageval_hooks.offline.records.formats.base import BadRow, Row, SourceFile
from rageval_hooks.offline.records.formats.json_files import read_document
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import explain, record_from_row
from rageval_hooks.offline.records.source import RowSource, grouped, split_rows
from rageval_hooks.offline.records.targets import TargetIds, place_target
from rageval_hooks.score import Evaluation

Item = Record | BadRow
Items = Iterator[tuple[int, Item]]
Make = Callable[[Mapping[str, Any], str], Record]

# The first records show whether ids of targets and passages can be compared.
_FIRST_ITEMS = 100

# Names of the array in the files of a conversation.
_MESSAGES = ("conversation_turns", "messages", "turns", "conversation", "chat")
_CONTEXTS = ("contexts", "vector_data", "passages", "documents", "retrieved_contexts")


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
    source = RowSource(path, encoding, splits=mapping is None)
    for line in source.notes:
        note(line)
    first = next(iter(source.sample), {})
    says_run = True
    if traces.is_export(first):
        items: Items = traces.read_traces(source)
    # Records of older releases have no version, but an id next to the turn, which evaluations lack.
    elif "rageval_record" in first or (holds_turn(first) and "id" in first and "stage" not in first):
        items = _records(source, partial(record_from_row, mapping=mapping), "")
    elif holds_turn(first):
        items = _read_evaluations(source)
    else:
        is_wide = open_rag_eval.is_wide(source.columns, first)
        says_run = has_column("run", source.columns) or is_wide
        items = _from_columns(source, tuple(required), scores, mapping, note, is_wide=is_wide)
    yield from _with_unique_keys(_with_targets(items), numbers_runs=not says_run)


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
    first = list(islice(items, _FIRST_ITEMS))
    ids = TargetIds()
    for _, item in first:
        if isinstance(item, Record):
            ids.add(item.target, item.turn.passages)
    for line, item in chain(first, items):
        yield line, place_target(item, ids) if isinstance(item, Record) else item


def _read_evaluations(source: RowSource) -> Items:
    """Yield a record for each turn that the exporter ``jsonl`` wrote, with the scores that came later."""

    def key_of(row: Row) -> list[str]:
        turn = row.data.get("turn")
        identity = turn.get("id") if isinstance(turn, Mapping) else None
        # Turns without an id stay apart: each row is its own group.
        return [str(identity) if identity else f"\0{row.number}"]

    for number, group in enumerate(grouped(source, key_of), 1):
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


def _from_columns(
    source: RowSource,
    required: tuple[str, ...],
    scores: Collection[str],
    mapping: ColumnMap | None,
    note: Callable[[str], object],
    *,
    is_wide: bool,
) -> Items:
    columns = source.columns
    rows: Iterable[Row | BadRow] = source
    if is_wide:
        # Runs side by side have their number in the names of columns.
        rows = split_rows(source, open_rag_eval.runs_of)
    else:
        if open_rag_eval.is_long(columns):
            # The passages are in the column "passage", one per row.
            rows = open_rag_eval.joined_rows(source)
            required = tuple(field for field in required if field != "passages")
        check_columns(
            f"{source.path}: ",
            source.sample,
            required,
            mapping,
            more=source.again,
            is_table=source.is_table,
            note=note,
        )
    make: Make = partial(record_from_row, required=required, mapping=mapping)
    # Columns that the user named come before what a layout says about them.
    if mapping is None and (is_wide or open_rag_eval.has_scores(columns)):
        make = partial(open_rag_eval.record_of, required=required)
    elif mapping is None and tables.is_ours(columns):
        make = partial(tables.record_of, required=required, scores=scores)
    # A number could be the id of another row.
    return _records(rows, make, "row-" if has_column("id", columns) else "")


def _records(rows: Iterable[Row | BadRow], make: Make, prefix: str) -> Items:
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
