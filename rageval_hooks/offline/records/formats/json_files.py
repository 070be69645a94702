"""JSON: one object per line, or a document that holds the rows."""

from __future__ import annotations

import json
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.input_sizes import DOCUMENT, read_whole
from rageval_hooks.offline.records.columns import has_column
from rageval_hooks.offline.records.formats import BadRow, FileFormat, Row, SourceFile, not_utf8, undecoded

# Wrappers such as {"data": {"results": [...]}} have few levels; deeper objects are contents.
_MAX_DEPTH = 4


class JsonLines(FileFormat):
    """JSON Lines: one JSON object per line."""

    suffixes = (".jsonl", ".ndjson")

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield a row per line that is not blank."""
        with file.open_text("\n") as content:  # other line breaks are white space of JSON, or in texts
            for line, text in enumerate(file.lines(content), 1):
                # Files that were appended to each other have a mark in the middle.
                stripped = text.removeprefix("\ufeff").strip(string.whitespace)
                if stripped:
                    yield _row_of_line(stripped, line)

    def write(self, file: IO[bytes], rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
        """Write a line per row."""
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _row_of_line(text: str, line: int) -> Row | BadRow:
    if reason := undecoded(text):
        return BadRow(line, reason, text)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return BadRow(line, f"not JSON: {error}", text)
    if isinstance(data, dict):
        return Row(line, data)
    # A number or a list has no names, and so no question.
    return BadRow(line, "not a JSON object: the name of a file with one document should end in .json", text)


class JsonDocument(FileFormat):
    """A JSON document: an array of objects, or a document that holds one in a wrapper."""

    suffixes = (".json",)

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield the rows of the document, which is read whole. JSON Lines are read under this name, too."""
        try:
            document = read_document(file)
        except TurnError as error:
            if "Extra data" not in str(error):
                raise
            yield from JsonLines().read(file)
            return
        for number, item in enumerate(_rows_of(document, file), 1):
            yield Row(number, item) if isinstance(item, dict) else BadRow(number, "not a JSON object", item)


def read_document(file: SourceFile) -> Any:
    """Return what a file with a single JSON document holds.

    Raises:
        TurnError: it is not JSON, or too large.
    """
    with file.open() as source:
        content = read_whole(source, DOCUMENT, file.path, "write it as JSON Lines, which is read row by row")
    try:
        return json.loads(content.decode(file.encoding))
    except UnicodeDecodeError as error:
        name = file.encoding.upper()
        reason = not_utf8(content) if name.startswith("UTF-8") else f"not {name}: --encoding names another"
        raise TurnError(f"{file.path} is {reason} ({error.reason} at byte {error.start})") from None
    except (ValueError, RecursionError) as error:
        raise TurnError(f"{file.path} is not JSON: {error}") from None


def _rows_of(document: Any, file: SourceFile) -> list[Any]:
    """Return the rows of a document.

    An array is the rows. Of several tables in an object, the one with questions and answers counts, then the one that
    is nearest to the outside.
    """
    if isinstance(document, list):
        return document
    # The nearest to the outside first.
    tables = {".".join(keys): rows for keys, rows in sorted(_tables(document, ()), key=lambda found: len(found[0]))}
    if not tables and file.sheet is None:
        return [document]
    return tables[file.choose({name: rows[0] for name, rows in tables.items()})]


def _tables(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yield the tables in a document with the keys that lead to them."""
    if _are_objects(value):
        yield keys, value
    if not isinstance(value, dict) or len(keys) > _MAX_DEPTH:
        return
    if rows := _rows_in(value):
        yield keys, rows
    # An object with a question is a row by itself: its arrays are passages or messages.
    elif not has_column("query", value):
        for key, inner in value.items():
            yield from _tables(inner, (*keys, key))


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _rows_in(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of an object that is a table itself; empty for any other object.

    ``{"columns": [...], "data": [[...]]}`` is pandas' ``orient="split"``, ``{"question": [...], "answer": [...]}`` is
    what ``Dataset.to_dict`` writes, and ``{"question": {"0": ..., "1": ...}, ...}`` what ``DataFrame.to_json`` writes.
    ``{"q1": {...}, "q2": {...}}`` has rows by their ids.
    """
    names, data = document.get("columns"), document.get("data")
    if isinstance(names, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        return [dict(zip(map(str, names), row, strict=False)) for row in data]
    values = list(document.values())
    if _are_objects(values) and has_column("query", values[0]):
        return [{"id": key, **value} for key, value in document.items()]
    if not has_column("query", document):
        return []
    # Other keys than row numbers are those of nested objects, such as {"inputs": {...}, "outputs": {...}}.
    cells = [
        list(column.values()) if isinstance(column, dict) and all(map(str.isdecimal, column)) else column
        for column in values
    ]
    if not all(isinstance(column, list) for column in cells) or len(set(map(len, cells))) > 1:
        return []
    return [dict(zip(document, row, strict=True)) for row in zip(*cells, strict=True)]
