"""JSON: one object per line, or a document that holds the rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.limits import DOCUMENT, LINE, in_mib, read_whole
from rageval_hooks.offline.records.columns import has_column
from rageval_hooks.offline.records.formats.base import BadRow, FileFormat, Row, SourceFile, lines_of, not_utf8

_BOM = b"\xef\xbb\xbf"
# Wrappers such as {"data": {"results": [...]}} have few levels; deeper objects are contents.
_MOST_DEPTH = 4

# White space and at most one comma, as in "{…},\n{…}", before something that is no white space. The white space is not
# matched again in shorter pieces ("*+"): a file may end in a megabyte of it.
_NEXT_DOCUMENT = re.compile(r"\s*+,?\s*+(?=\S)")


class JsonLines(FileFormat):
    """JSON Lines: one JSON object per line."""

    name = "JSON Lines"
    suffixes = (".jsonl", ".ndjson")
    writable = True

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield a row per line that is not blank."""
        number = 0
        # UTF-8 is read as bytes, so that one invalid line does not damage the others. Only "\n" ends a line in either.
        content: IO[bytes] | IO[str] = file.open() if file.is_utf8 else file.open_text("\n")
        with content:
            for line, text in enumerate(lines_of(content), 1):
                stripped = text.removeprefix(_BOM).strip() if isinstance(text, bytes) else str(text).strip()
                if stripped:
                    number += 1
                    yield _row_of_line(stripped, line, number)

    def write(self, file: IO[bytes], rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
        """Write a line per row."""
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _row_of_line(text: str | bytes, line: int, number: int) -> Row | BadRow:
    if len(text) > LINE:
        return BadRow(line, f"the line is longer than {in_mib(LINE)}")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        return BadRow(line, not_utf8(error.object), error.object.decode("utf-8", "replace"))
    try:
        data = json.loads(decoded)
    except (ValueError, RecursionError) as error:
        return BadRow(line, f"not JSON: {error}", decoded)
    # A number or a list has no names, and so no question.
    return Row(line, data, number) if isinstance(data, dict) else BadRow(line, "not a JSON object", decoded)


class JsonDocument(FileFormat):
    """A JSON document: an array of objects, or a document that holds one in a wrapper."""

    name = "JSON"
    suffixes = (".json",)

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield the rows of the document, which is read whole."""
        text = _text_of(file)
        try:
            document = json.loads(text)
        except RecursionError:
            raise TurnError(f"{file.path} is nested too deeply") from None
        except ValueError as error:
            if "Extra data" not in str(error):
                raise TurnError(f"{file.path} is not JSON: {error}") from None
            document = _several_documents(text)
            if not document:
                # One object per line, under the name of a document.
                yield from JsonLines().read(file)
                return
        del text
        for number, item in enumerate(_rows_of(document, file.notes), 1):
            yield Row(number, item, number) if isinstance(item, dict) else BadRow(number, "not a JSON object", item)


def read_document(file: SourceFile) -> Any:
    """Return what a file with a single JSON document holds.

    Raises:
        TurnError: it is not JSON, or too large.
    """
    text = _text_of(file)
    try:
        return json.loads(text)
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


def _several_documents(text: str) -> list[Any]:
    """Return the rows of several documents behind each other, as appending to a file leaves them.

    Empty for JSON Lines, and if a document is damaged or holds anything but rows.
    """
    found: list[Any] = []
    decoder = json.JSONDecoder()
    place = 0
    while rest := _NEXT_DOCUMENT.match(text, place):
        try:
            document, place = decoder.raw_decode(text, rest.end())
        except (ValueError, RecursionError):
            return []
        is_line = "\n" not in text[rest.end() : place] and text[place : place + 2].lstrip("\r").startswith("\n")
        if is_line and not found:
            return []  # each line is a row, and has its own number
        found += document if isinstance(document, list) else [document]
    return found if all(isinstance(item, dict) for item in found) else []


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
    is nearest to the outside, then the longest.
    """
    if isinstance(document, list):
        return document
    tables = list(_tables(document, ()))
    if not tables:
        return _rows_by_id(document) or [document]
    # max() returns the first of equals.
    best = max(tables, key=lambda table: (table.fields, -len(table.keys), len(table.rows)))
    if others := [table for table in tables if table is not best and table.fields == best.fields == 2]:
        names = ", ".join(repr(".".join(table.keys)) for table in others)
        notes.append(f"the rows are those of {'.'.join(best.keys)!r}, not of {names}: write each into a separate file")
    return best.rows


def _tables(value: Any, keys: tuple[str, ...]) -> Iterator[_Table]:
    """Yield the tables in a document: arrays of objects, data frames, and rows by their ids."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        yield _Table(keys, value)
    if not isinstance(value, dict) or len(keys) > _MOST_DEPTH:
        return
    by_id = _rows_by_id(value)
    if frame := _frame_rows(value):
        yield _Table(keys, frame)
    elif by_id and has_column("query", by_id[0]):
        yield _Table(keys, by_id)
    # An object with a question is a row by itself: its arrays are passages or messages.
    elif not has_column("query", value):
        for key, inner in value.items():
            yield from _tables(inner, (*keys, key))


def _frame_rows(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of a data frame; empty for any other object.

    ``{"columns": [...], "data": [[...]]}`` is pandas' ``orient="split"``, ``{"question": [...], "answer": [...]}`` is
    what ``Dataset.to_dict`` writes, and ``{"question": {"0": ..., "1": ...}, ...}`` what ``DataFrame.to_json`` writes.
    """
    names, data = document.get("columns"), document.get("data")
    if isinstance(names, list) and isinstance(data, list):
        is_split = bool(names) and all(isinstance(row, list) and len(row) == len(names) for row in data)
        return [dict(zip(map(str, names), row, strict=True)) for row in data] if is_split else []
    columns = list(document.values())
    # One array alone is a wrapper around rows, not a column.
    if len(columns) < 2:
        return []
    # Other keys than row numbers are those of nested objects, such as {"inputs": {...}, "outputs": {...}}.
    if all(isinstance(column, dict) and column and all(map(str.isdecimal, column)) for column in columns):
        if any(column.keys() != columns[0].keys() for column in columns):
            return []
        columns = [list(column.values()) for column in columns]
    if not all(isinstance(column, list) for column in columns) or len(set(map(len, columns))) > 1:
        return []
    # Arrays of objects only, {"train": [{…}], "test": [{…}]}, are several tables.
    if all(isinstance(item, dict) for column in columns for item in column):
        return []
    return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]


def _rows_by_id(document: Any) -> list[Any]:
    """Return the rows of ``{"q1": {...}, "q2": {...}}``, each with its key as ``id`` if it has none."""
    values = list(document.values()) if isinstance(document, dict) else []
    # One object alone may be a row itself, with objects in its columns.
    if len(values) < 2 or not all(isinstance(value, dict) for value in values):
        return []
    # Rows have names in common; the parts of one row, such as "inputs" and "outputs", have none.
    if not set.intersection(*map(set, values)):
        return []
    return [{"id": key, **value} for key, value in document.items()]
