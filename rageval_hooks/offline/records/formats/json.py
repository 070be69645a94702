"""JSON documents: an array of objects, or a document that holds one in a wrapper."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.limits import DOCUMENT, read_whole
from rageval_hooks.offline.records.columns import has_column
from rageval_hooks.offline.records.formats.base import FileFormat, SourceFile, not_utf8
from rageval_hooks.offline.records.formats.jsonl import JsonLines
from rageval_hooks.offline.records.rows import BadRow, Row

__all__ = ["JsonDocument", "questions_in", "read_document"]

# Wrappers such as {"data": {"results": [...]}} have few levels; deeper objects are contents.
_MOST_DEPTH = 4
_CHAT_KEYS = frozenset({"role", "content", "type"})

# White space and at most one comma, as in "{…},\n{…}", before something that is no white space. The white space is not
# matched again in shorter pieces ("*+"): a file may end in a megabyte of it.
_NEXT_DOCUMENT = re.compile(r"\s*+,?\s*+(?=\S)")


class JsonDocument(FileFormat):
    """A JSON document."""

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
            document = _documents(text)
            if not document:
                # One object per line, under the name of a document.
                yield from JsonLines().read(file)
                return
        del text
        found = _rows_of(document)
        file.notes = found.notes
        for number, item in enumerate(found.rows, 1):
            yield Row(number, item, number) if isinstance(item, dict) else BadRow(number, "not a JSON object", item)


def read_document(file: SourceFile) -> Any:
    """Return what a file with a single JSON document holds.

    Raises:
        TurnError: it is not JSON, or too large.
    """
    try:
        return json.loads(_text_of(file))
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, TurnError) else TurnError(f"{file.path} is not JSON: {error}") from None


def _text_of(file: SourceFile) -> str:
    encoding = file.encoding
    content = read_whole(file.binary(), DOCUMENT, file.path, "write it as JSON Lines, which is read row by row")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        reason = not_utf8(content) if file.is_utf8 else f"not {encoding.upper()}: --encoding names another encoding"
        raise TurnError(f"{file.path} is {reason} ({error.reason} at byte {error.start})") from None


def _documents(text: str) -> list[Any]:
    """Return the rows of several documents behind each other, as appending to a file leaves them.

    Empty for JSON Lines, and if a document is damaged or holds anything but rows.
    """
    found: list[Any] = []
    decoder = json.JSONDecoder()
    place = 0
    try:
        # A first line that is JSON by itself: each line is a row, and has its own number.
        first_line, _, _ = text.lstrip().partition("\n")
        if decoder.raw_decode(first_line)[1] == len(first_line.rstrip()):
            return []
    except (ValueError, RecursionError):
        pass
    while rest := _NEXT_DOCUMENT.match(text, place):
        try:
            document, place = decoder.raw_decode(text, rest.end())
        except (ValueError, RecursionError):
            return []
        found += document if isinstance(document, list) else [document]
    return found if all(isinstance(item, dict) for item in found) else []


class _Array(NamedTuple):
    """Objects in a document that may be its rows, and the names of the keys that lead to them."""

    keys: tuple[str, ...]
    rows: list[Any]

    @property
    def fields(self) -> int:
        """How many of question and answer the rows have."""
        return has_column("query", self.rows[0]) + has_column("response", self.rows[0])


class _Rows(NamedTuple):
    rows: list[Any]
    notes: list[str]


def _rows_of(document: Any) -> _Rows:
    """Return the rows of a document, whichever way they are wrapped.

    An array is the rows. Objects are understood if they are a data frame in any of pandas' orientations, rows by their
    ids, or a wrapper around one of these. Of several arrays in a wrapper, the one with questions and answers counts,
    then the one that is nearest to the outside, then the longest.
    """
    if isinstance(document, list):
        return _Rows(document, [])
    if not isinstance(document, dict):
        return _Rows([document], [])
    if frame := _frame_rows(document):
        return _Rows(frame, [])
    arrays = list(_arrays(document, ()))
    if not arrays:
        return _Rows(_keyed_rows(document) or [document], [])
    # max() returns the first of equals.
    best = max(arrays, key=lambda array: (array.fields, -len(array.keys), len(array.rows)))
    others = [array for array in arrays if array is not best and array.fields == best.fields == 2]
    if not others:
        return _Rows(best.rows, [])
    names = ", ".join(repr(".".join(array.keys)) for array in others)
    taken = ".".join(best.keys)
    return _Rows(best.rows, [f"the rows are those of {taken!r}, not of {names}: write each into a separate file"])


def _arrays(document: Mapping[str, Any], around: tuple[str, ...]) -> Iterator[_Array]:
    """Yield the arrays of objects within an object."""
    # An object with a question is a row by itself: its arrays are passages or messages.
    if has_column("query", document) or len(around) >= _MOST_DEPTH:
        return
    for key, value in document.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            yield _Array((*around, key), value)
    for key, value in document.items():
        if not isinstance(value, dict):
            continue
        keys = (*around, key)
        if frame := _split_frame(value):
            yield _Array(keys, frame)
        elif (keyed := _keyed_rows(value)) and has_column("query", keyed[0]):
            yield _Array(keys, keyed)
        else:
            yield from _arrays(value, keys)


def _frame_rows(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of a data frame with a value per column; empty for any other object.

    ``{"question": [...], "answer": [...]}`` is what ``Dataset.to_dict`` writes, and
    ``{"question": {"0": ..., "1": ...}, ...}`` is what ``DataFrame.to_json`` writes.
    """
    if frame := _split_frame(document):
        return frame
    columns = list(document.values())
    # One array alone is a wrapper around rows, not a column.
    if len(columns) < 2:
        return []
    if all(isinstance(column, dict) for column in columns):
        index = list(columns[0])
        # Other keys than row numbers are those of nested objects, such as {"inputs": {...}, "outputs": {...}}.
        if not index or not all(map(str.isdecimal, index)) or any(list(column) != index for column in columns):
            return []
        columns = [list(column.values()) for column in columns]
    elif not all(isinstance(column, list) for column in columns) or len(set(map(len, columns))) > 1:
        return []
    return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]


def _split_frame(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of ``{"columns": [...], "data": [[...]]}``, as pandas ``orient="split"`` and MLflow write it."""
    names, data = document.get("columns"), document.get("data")
    if not names or not isinstance(names, list) or not isinstance(data, list):
        return []
    if not all(isinstance(row, list) and len(row) == len(names) for row in data):
        return []
    return [dict(zip(map(str, names), row, strict=True)) for row in data]


def _keyed_rows(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of ``{"q1": {...}, "q2": {...}}``, each with its key as ``id`` if it has none."""
    values = list(document.values())
    # One object alone may be a row itself, with objects in its columns.
    if len(values) < 2 or not all(isinstance(value, dict) for value in values):
        return []
    # Rows have names in common; the parts of one row, such as "inputs" and "outputs", have none.
    if not set.intersection(*map(set, values)):
        return []
    return [{"id": key, **value} for key, value in document.items()]


def questions_in(row: Mapping[str, Any], depth: int = _MOST_DEPTH) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each question of an object that has none itself, but a list of objects with questions.

    SQuAD has paragraphs in a document, and questions in each paragraph. Each row keeps what is around its list.
    """
    name = None
    if not has_column("query", row):
        name = next((name for name, value in row.items() if _has_questions(value, depth)), None)
    if name is None:
        yield row
        return
    # The id of a document is not that of each question in it.
    around = {key: value for key, value in row.items() if key != name and not has_column("id", [key])}
    for item in row[name]:
        yield from questions_in({**around, **item}, depth - 1)


def _has_questions(value: Any, depth: int) -> bool:
    if not depth or not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        return False
    # All objects of a list have the same names, so the first stands for the others.
    first = value[0]
    # Messages of a chat have "content", which is a name of the question elsewhere.
    if first.keys() <= _CHAT_KEYS:
        return False
    return has_column("query", first) or any(_has_questions(inner, depth - 1) for inner in first.values())
