"""JSON: one object per line, or a document that holds the rows."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.limits import DOCUMENT, LINE, in_mib, read_whole
from rageval_hooks.offline.records.columns import has_column
from rageval_hooks.offline.records.formats import BadRow, FileFormat, Row, SourceFile, lines_of, not_utf8, undecoded

# Wrappers such as {"data": {"results": [...]}} have few levels; deeper objects are contents.
_MOST_DEPTH = 4


class JsonLines(FileFormat):
    """JSON Lines: one JSON object per line."""

    name = "JSON Lines"
    suffixes = (".jsonl", ".ndjson")
    writable = True

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield a row per line that is not blank."""
        number = 0
        with file.open_text("\n") as content:  # other line breaks are white space of JSON, or in texts
            for line, text in enumerate(lines_of(content), 1):
                # Files that were appended to each other have a mark in the middle.
                stripped = text.removeprefix("\ufeff").strip(string.whitespace)
                if stripped:
                    number += 1
                    yield _row_of_line(stripped, line, number)

    def write(self, file: IO[bytes], rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
        """Write a line per row."""
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _row_of_line(text: str, line: int, number: int) -> Row | BadRow:
    if len(text) > LINE:
        return BadRow(line, f"the line is longer than {in_mib(LINE)}")
    if reason := undecoded(text):
        return BadRow(line, reason, text)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return BadRow(line, f"not JSON: {error}", text)
    if isinstance(data, dict):
        return Row(line, data, number)
    # A number or a list has no names, and so no question.
    return BadRow(line, "not a JSON object: the name of a file with one document should end in .json", text)


class JsonDocument(FileFormat):
    """A JSON document: an array of objects, or a document that holds one in a wrapper."""

    name = "JSON"
    suffixes = (".json",)

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield the rows of the document, which is read whole. JSON Lines are read under this name, too."""
        text = _text_of(file)
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            if "Extra data" in str(error):
                yield from JsonLines().read(file)
                return
            raise TurnError(f"{file.path} is not JSON: {error}") from None
        del text
        for number, item in enumerate(_rows_of(document, file.notes), 1):
            yield Row(number, item, number) if isinstance(item, dict) else BadRow(number, "not a JSON object", item)


def read_document(file: SourceFile) -> Any:
    """Return what a file with a single JSON document holds.

    Raises:
        TurnError: it is not JSON, or too large.
    """
    try:
        return json.loads(_text_of(file))
    except (ValueError, RecursionError) as error:
        raise TurnError(f"{file.path} is not JSON: {error}") from None


def _text_of(file: SourceFile) -> str:
    with file.open() as source:
        content = read_whole(source, DOCUMENT, file.path, "write it as JSON Lines, which is read row by row")
    try:
        return content.decode(file.encoding)
    except UnicodeDecodeError as error:
        reason = not_utf8(content) if file.is_utf8 else f"not {file.encoding.upper()}: --encoding names another"
        raise TurnError(f"{file.path} is {reason} ({error.reason} at byte {error.start})") from None


class _Table(NamedTuple):
    """Objects in a document that may be its rows, and the names of the keys that lead to them."""

    keys: tuple[str, ...]
    rows: list[Any]

    @property
    def fields(self) -> int:
        """How many of question and answer the rows have."""
        return has_column("query", self.rows[0]) + has_column("response", self.rows[0])


def _rows_of(document: Any, notes: list[str]) -> list[Any]:
    """Return the rows of a document.

    An array is the rows. Of several tables in an object, the one with questions and answers counts, then the one that
    is nearest to the outside.
    """
    if isinstance(document, list):
        return document
    tables = list(_tables(document, ()))
    if not tables:
        return [document]
    # max() returns the first of equals.
    best = max(tables, key=lambda table: (table.fields, -len(table.keys)))
    if others := [table for table in tables if table is not best and table.fields == best.fields == 2]:
        names = ", ".join(repr(".".join(table.keys)) for table in others)
        notes.append(f"the rows are those of {'.'.join(best.keys)!r}, not of {names}: write each into a separate file")
    return best.rows


def _tables(value: Any, keys: tuple[str, ...]) -> Iterator[_Table]:
    """Yield the tables in a document: arrays of objects, data frames, and rows by their ids."""
    if _are_objects(value):
        yield _Table(keys, value)
    if not isinstance(value, dict) or len(keys) > _MOST_DEPTH:
        return
    if rows := _frame_rows(value) or _rows_by_id(value):
        yield _Table(keys, rows)
    # An object with a question is a row by itself: its arrays are passages or messages.
    elif not has_column("query", value):
        for key, inner in value.items():
            yield from _tables(inner, (*keys, key))


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _frame_rows(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of a data frame with a question; empty for any other object.

    ``{"columns": [...], "data": [[...]]}`` is pandas' ``orient="split"``, ``{"question": [...], "answer": [...]}`` is
    what ``Dataset.to_dict`` writes, and ``{"question": {"0": ..., "1": ...}, ...}`` what ``DataFrame.to_json`` writes.
    """
    names, data = document.get("columns"), document.get("data")
    if isinstance(names, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        return [dict(zip(map(str, names), row, strict=False)) for row in data]
    if not has_column("query", document):
        return []
    # Other keys than row numbers are those of nested objects, such as {"inputs": {...}, "outputs": {...}}.
    cells = [
        list(column.values()) if isinstance(column, dict) and all(map(str.isdecimal, column)) else column
        for column in document.values()
    ]
    if not all(isinstance(column, list) for column in cells) or len(set(map(len, cells))) > 1:
        return []
    return [dict(zip(document, row, strict=True)) for row in zip(*cells, strict=True)]


def _rows_by_id(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of ``{"q1": {...}, "q2": {...}}``, each with its key as ``id`` if it has none."""
    values = list(document.values())
    if not _are_objects(values) or not has_column("query", values[0]):
        return []
    return [{"id": key, **value} for key, value in document.items()]
