"""From the rows of a file to records: finds out what the rows are, and reads them in one pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records import open_rag_eval, tables, traces
from rageval_hooks.offline.records.columns import ColumnMap, Fields, has_column, missing_column, suggest, take_fields
from rageval_hooks.offline.records.formats.json import questions_in
from rageval_hooks.offline.records.from_row import explain, record_from_row
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import BadRow, Row
from rageval_hooks.offline.records.source import RowSource
from rageval_hooks.offline.records.targets import TargetIds, place_target
from rageval_hooks.offline.records.values import unpacked
from rageval_hooks.score import Evaluation

__all__ = ["Item", "as_options", "check_mapping", "hint_for", "read_items", "split_rows"]

Item = Record | BadRow
Items = Iterator[tuple[int, Item]]
Split = Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]
Make = Callable[[Mapping[str, Any], str], Record]

_FIRST_ITEMS = 100
_WITHOUT_QUERY = "faithfulness,groundedness,unsupported_facts"


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
        scores: columns of a table of ours that are scores if they hold only numbers.
        mapping: columns that the user named.
        encoding: of a text file; None to detect it.
        note: called with each decision that the user should know, such as a guessed encoding.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, or the file cannot be read at all.
    """
    with RowSource(path, encoding) as source:
        if source.guessed_encoding is not None:
            note(f"{path} is read as {source.guessed_encoding}: --encoding names another encoding")
        first = next(iter(source.good_sample), {})
        says_run = True
        if traces.is_export(first):
            items = traces.read_traces(source)
        elif holds_turn(first) and "rageval_record" not in first and ("stage" in first or "id" not in first):
            items = _read_evaluations(source)
        elif holds_turn(first):
            items = _records(source, partial(record_from_row, mapping=mapping), "")
        else:
            says_run = has_column("run", source.columns) or open_rag_eval.is_wide(source.columns, first)
            items = _from_columns(source, tuple(required), scores, mapping, note)
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
    # The first rows show whether ids of targets and passages can be compared.
    first = list(islice(items, _FIRST_ITEMS))
    ids = TargetIds()
    for _, item in first:
        if isinstance(item, Record):
            ids.add(item.target, item.turn.passages)
    for line, item in chain(first, items):
        yield line, place_target(item, ids) if isinstance(item, Record) else item


def _read_evaluations(source: RowSource) -> Items:
    """Yield a record for each turn that the exporter ``jsonl`` wrote, with the scores that came later."""
    for number, group in enumerate(source.groups(_turn_id), 1):
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


def _turn_id(row: Row) -> tuple[str]:
    turn = row.data.get("turn")
    identity = turn.get("id") if isinstance(turn, Mapping) else None
    # Turns without an id stay apart: each row is its own group.
    return (str(identity),) if identity else (f"\0{row.number}",)


def _from_columns(
    source: RowSource,
    required: tuple[str, ...],
    scores: Collection[str],
    mapping: ColumnMap | None,
    note: Callable[[str], object],
) -> Items:
    columns = source.columns
    is_wide = open_rag_eval.is_wide(columns, next(iter(source.good_sample), {}))
    is_long = open_rag_eval.is_long(columns)
    rows: Iterable[Row | BadRow] = source
    if is_wide:
        rows = split_rows(source, open_rag_eval.runs_of)
    elif is_long:
        # The passages are in the column "passage", one per row.
        rows = open_rag_eval.joined_rows(source)
        required = tuple(field for field in required if field != "passages")
    elif not source.has_header and mapping is None:
        rows = split_rows(source, questions_in)
    # Runs side by side have their number in the names of columns.
    if not is_wide:
        _check_columns(source, required, mapping, note)
    table = source.format.has_text_cells or is_wide
    make: Make = partial(record_from_row, required=required, table=table, mapping=mapping)
    # Columns that the user named come before what a layout says about them.
    if mapping is None and (is_wide or open_rag_eval.has_scores(columns)):
        make = partial(open_rag_eval.record_of, required=required)
    elif mapping is None and tables.is_ours(columns):
        # Only reports that name such columns need a second pass.
        named = set(scores).intersection(columns)
        numeric = tables.numeric_columns(named, source.again()) if named else ()
        make = partial(tables.record_of, required=required, scores=numeric)
    # A number could be the id of another row.
    return _records(rows, make, "row-" if has_column("id", columns) else "")


def _records(rows: Iterable[Row | BadRow], make: Make, prefix: str) -> Items:
    for row in rows:
        if isinstance(row, BadRow):
            yield row.line, row
            continue
        try:
            # Rows of ours and of other tools may be in one file.
            if holds_turn(row.data):
                yield row.line, Record.model_validate(row.data)
            else:
                yield row.line, make(row.data, f"{prefix}{row.number}")
        except (ValidationError, TurnError) as error:
            yield row.line, BadRow(row.line, explain(error), row.data)


def split_rows(rows: Iterable[Row | BadRow], split: Split) -> Iterator[Row | BadRow]:
    """Yield several rows for each row, numbered from 1. Rows that cannot be used stay as they are.

    Args:
        rows: the rows.
        split: returns the data of the new rows for that of a row.
    """
    number = 0
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        for data in split(row.data):
            number += 1
            yield Row(row.line, data, number)


def _check_columns(
    source: RowSource, required: Sequence[str], mapping: ColumnMap | None, note: Callable[[str], object]
) -> None:
    """Check that a file has the required columns, before anything is computed; note which of several were taken.

    Raises:
        TurnError: a column is missing from the whole file, or a column that the user named is not in it.
    """
    rows = source.good_sample
    if not source.has_header and mapping is None:
        rows = list(chain.from_iterable(map(questions_in, rows)))
    if not rows:
        return
    if mapping is not None:
        check_mapping(source, rows, mapping)
    found = [take_fields(row, mapping) for row in rows]
    present = set(chain.from_iterable(fields.values for fields in found))
    missing = [name for name in required if name not in present]
    if missing and not source.has_header:
        # In JSON Lines a column may come late: a test set may have its references only in the rows of one source.
        for row in source.again():
            missing = [name for name in missing if name not in take_fields(row, mapping).values]
            if not missing:
                break
    # A text that is an object in every row has to be mapped: the column is there, but the text is inside it.
    # In JSON a text is a text, also if it holds JSON: a model was asked to write it.
    read = unpacked if source.format.has_text_cells else lambda value: value
    inside = [name for name in ("query", "response") if name in required and _is_always_object(name, found, read)]
    if missing or inside:
        used = set(chain.from_iterable(fields.columns.values() for fields in found)) if missing else set()
        hint = _hint([*missing, *inside], rows, used, required)
        if missing:
            raise TurnError(f"{source.path}: {missing_column(missing[0], source.columns, hint)}")
        column = next(fields.columns[inside[0]] for fields in found if inside[0] in fields.columns)
        raise TurnError(f"{source.path}: the {inside[0]} is an object in the column {column}{hint}")
    for line in source.file.notes:
        note(line)
    noted: set[str] = set()
    for fields in found:
        for name, others in fields.others.items():
            if others and name not in noted:
                noted.add(name)
                listed = ", ".join(map(repr, others))
                note(
                    f"the {name} is taken from {fields.columns[name]!r}, not from {listed}: --map names another column"
                )


def _is_always_object(name: str, found: Iterable[Fields], read: Callable[[Any], Any]) -> bool:
    values = [read(fields.values[name]) for fields in found if name in fields.values]
    return bool(values) and all(isinstance(value, Mapping) for value in values)


def _hint(
    missing: Sequence[str], rows: Iterable[Mapping[str, Any]], used: Collection[str], required: Collection[str]
) -> str:
    """Return the end of the message for missing columns: the ``--map`` to write, and what else would do."""
    hint = hint_for(suggest(missing, rows, used), as_options)
    columns = list(chain.from_iterable(rows))
    if list(missing) == ["response"] and has_column("reference", columns):
        hint += ". If the file has questions only, ask your application first: rageval-hooks run"
    if list(missing) == ["query"] and "response" in required:
        hint += f". If there are no questions, name metrics that need none: --metrics {_WITHOUT_QUERY}"
    return hint


def hint_for(proposed: Mapping[str, Sequence[str]], show: Callable[[Mapping[str, str]], str]) -> str:
    """Return the end of the message for missing columns: how to name them, and which columns hold texts.

    Args:
        proposed: the possible columns of each missing field.
        show: returns how the user names the columns of some fields.
    """
    only = {field: paths[0] for field, paths in proposed.items() if len(paths) == 1}
    if len(set(only.values())) == len(proposed):
        return f". Try {show(only)}"
    named = show(dict.fromkeys(proposed, "COLUMN"))
    return f". Name it with {named}" + "".join(
        f"; the {field} may be {', '.join(paths)}" for field, paths in proposed.items() if paths
    )


def as_options(columns: Mapping[str, str]) -> str:
    """Return columns by field as options of a command: ``--map response=gpt_reply``."""
    # Blanks and brackets have a meaning in shells.
    paths = {field: path if path.replace("_", "").isalnum() else f"'{path}'" for field, path in columns.items()}
    return " ".join(f"--map {field}={path}" for field, path in paths.items())


def check_mapping(source: RowSource, rows: Iterable[Mapping[str, Any]], mapping: ColumnMap) -> None:
    """Check that the columns that the user named are there. A misspelled one would be empty in every row.

    Args:
        source: the file.
        rows: its first rows.
        mapping: the columns that the user named.

    Raises:
        TurnError: a column is not there, or nothing is found under a path.
    """
    # A column that is there may be empty.
    unknown = [field for field, column in mapping.paths.items() if column not in source.columns]
    absent = _not_found(unknown, rows, mapping)
    # The header of a table is complete. Other columns may come late, and so may the first value under a path.
    may_come = [field for field in absent if not source.has_header or mapping.is_path(field)]
    if len(may_come) == len(absent) and may_come:
        absent = _not_found(may_come, source.again(), mapping)
    if absent:
        column = mapping.paths[absent[0]]
        close = get_close_matches(column, source.columns, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        message = f"{source.path}: nothing is under {column!r}, which --map names for the {absent[0]}."
        raise TurnError(f"{message}{guess} Found: {', '.join(source.columns)}")


def _not_found(fields: Iterable[str], rows: Iterable[Mapping[str, Any]], mapping: ColumnMap) -> list[str]:
    """Return the fields for which no row has a value."""
    left = list(fields)
    for row in rows:
        if not left:
            break
        values = {name: mapping.value(name, row) for name in left}
        # No passages in any row is a result; a text is never an empty list.
        left = [name for name, value in values.items() if value is None or (value == [] and name != "passages")]
    return left
