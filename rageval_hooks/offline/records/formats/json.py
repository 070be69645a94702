"""JSON documents: an array of objects, or a document that holds one in a wrapper."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.formats.base import FileFormat, SourceFile
from rageval_hooks.offline.records.formats.jsonl import JsonLines
from rageval_hooks.offline.records.rows import BadRow, Row
from rageval_hooks.runtime.narrowing import items_or_empty, mapping_or_empty
from rageval_hooks.runtime.selecting import entries_except

__all__ = ["JsonDocument", "rows_of_document"]

# Wrappers such as {"data": {"results": [...]}} have few levels; deeper objects are contents.
_MOST_DEPTH = 4
# One object alone may be a row itself, with objects in its columns.
_FEWEST_KEYED_ROWS = 2
_FEWEST_COLUMNS = 2
_FIELDS_OF_ROWS = ("query", "response")
# White space and at most one comma, as in "{…},\n{…}", before something that is no white space. The white space is not
# matched again in shorter pieces ("*+"): a file may end in a megabyte of it.
_NEXT_DOCUMENT = re.compile(r"\s*+,?\s*+(?=\S)")


class JsonDocument(FileFormat):
    """A JSON document."""

    name = "JSON"
    suffixes = (".json",)

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield the rows of the document, which is read whole."""
        try:
            document = json.loads(_text_of(file))
        except RecursionError:
            raise TurnError(f"{file.path} is nested too deeply") from None
        except ValueError as error:
            if "Extra data" not in str(error):
                raise TurnError(f"{file.path} is not JSON: {error}") from None
            document = _documents(_text_of(file))
            if not document:
                # One object per line, under the name of a document.
                yield from JsonLines().read(file)
                return
        rows = rows_of_document(document)
        file.notes[:] = _notes(document, rows)
        for number, item in enumerate(rows, 1):
            if isinstance(item, dict):
                yield Row(number, _with_columns_of_runs(item), number)
            else:
                yield BadRow(number, "not a JSON object", item)


def _text_of(file: SourceFile) -> str:
    encoding = file.encoding
    try:
        return file.binary().read().decode("utf-8-sig" if encoding.is_utf8 else encoding.name)
    except UnicodeDecodeError as error:
        raise TurnError(
            f"{file.path} is not {encoding.name.upper()}: {error.reason} at byte {error.start}; "
            "--encoding names another encoding"
        ) from None


def _documents(text: str) -> list[Any]:
    """Return the rows of several documents behind each other, as appending to a file leaves them.

    Empty for JSON Lines, and if a document is damaged or holds anything but rows.
    """
    if _is_json(text.lstrip().partition("\n")[0]):
        return []
    found: list[Any] = []
    decoder = json.JSONDecoder()
    place = 0
    while rest := _NEXT_DOCUMENT.match(text, place):
        try:
            document, place = decoder.raw_decode(text, rest.end())
        except (ValueError, RecursionError):
            return []
        found += document if isinstance(document, list) else [document]
    return found if _all_are(dict, found) else []


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _with_columns_of_runs(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of open-rag-eval's JSON report as its table has it: ``{"runs": [{…}]}`` becomes ``run_1_…``.

    Any other row is returned unchanged.
    """
    runs = row.get("runs")
    if not isinstance(runs, list) or not all(map(_is_run, runs)):
        return row
    flat = entries_except(row, "runs", "consistency")
    for number, run in enumerate(runs, 1):
        flat.update(_with_prefix(f"run_{number}_", run))
    flat.update(_with_prefix("consistency_", mapping_or_empty(row.get("consistency"))))
    return flat


def _is_run(run: object) -> bool:
    """Return True for one answer in a report of open-rag-eval."""
    return "generated_answer" in mapping_or_empty(run)


def _with_prefix(prefix: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in fields.items()}


def rows_of_document(document: Any) -> list[Any]:
    """Return the rows of a JSON document, whichever way they are wrapped.

    An array is the rows. Objects are understood if they are columns of equal length, a pandas data frame in any of its
    orientations, rows by their ids, or a wrapper around one of these, such as ``{"results": [...]}``.
    """
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        return [document]
    for read in _FORMS:
        if rows := read(document):
            return rows
    # Anything else is one row.
    return [document]


def _from_split_frame(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of ``{"columns": [...], "data": [[...]]}``, as pandas ``orient="split"`` and MLflow write it."""
    names = list(map(str, items_or_empty(document.get("columns"))))
    data = items_or_empty(document.get("data"))
    if not names or not _all_are(list, data) or _lengths(data) != {len(names)}:
        return []
    return [dict(zip(names, row, strict=True)) for row in data]


def _from_columns(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of ``{"question": [...], "answer": [...]}``, as ``Dataset.to_dict`` writes it."""
    values = list(document.values())
    # One array alone is a wrapper around rows, not a column.
    if len(values) < _FEWEST_COLUMNS or not _all_are(list, values) or len(_lengths(values)) > 1:
        return []
    return [dict(zip(document, row, strict=True)) for row in zip(*values, strict=True)]


def _from_indexed_columns(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of ``{"question": {"0": ..., "1": ...}, ...}``, as ``DataFrame.to_json`` writes it."""
    columns = list(document.values())
    if len(columns) < _FEWEST_COLUMNS or not _all_are(dict, columns):
        return []
    index = list(columns[0])
    # Other keys than row numbers are those of nested objects, such as {"inputs": {...}, "outputs": {...}}.
    if not index or not all(map(str.isdecimal, index)):
        return []
    if any(list(column) != index for column in columns):
        return []
    rows = zip(*(column.values() for column in columns), strict=True)
    return [dict(zip(document, row, strict=True)) for row in rows]


def _wrapped_rows(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows in a wrapper: of all arrays of objects the one whose objects have a question and an answer.

    Of several such arrays the one that is nearest to the outside counts, then the longest.
    """
    # max() returns the first of equals.
    found = max(_arrays(document, ()), key=_fitness, default=None)
    return [] if found is None else found.rows


def _notes(document: Any, rows: list[Any]) -> list[str]:
    """Return a note if a wrapper has further arrays of questions with answers, as of several systems."""
    if not isinstance(document, dict) or not rows:
        return []
    taken: list[str] = []
    others: list[str] = []
    for found in _arrays(document, ()):
        if _fitness(found)[0] == len(_FIELDS_OF_ROWS):
            (taken if found.rows[0] is rows[0] else others).append(repr(found.name))
    if not taken or not others:
        return []
    return [f"the rows are those of {taken[0]}, not of {', '.join(others)}: write each into a separate file"]


class _Array(NamedTuple):
    """Objects in a document that may be its rows.

    Attributes:
        name: the keys that lead to them.
        depth: the number of levels around them.
        rows: the objects.
    """

    name: str
    depth: int
    rows: list[Any]


def _arrays(document: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[_Array]:
    """Yield the arrays of objects within an object."""
    # The arrays of a row are its passages or messages.
    if _is_row(document) or len(keys) >= _MOST_DEPTH:
        return
    for key, value in document.items():
        items = items_or_empty(value)
        if _all_are(dict, items):
            yield _Array(".".join((*keys, key)), len(keys) + 1, list(items))
    for key, value in document.items():
        inner = (*keys, key)
        name, depth = ".".join(inner), len(inner) + 1
        if not isinstance(value, Mapping):
            continue
        if frame := _from_split_frame(value):
            yield _Array(name, depth, frame)
        elif (keyed := _keyed_rows(value)) and _is_row(keyed[0]):
            yield _Array(name, depth, keyed)
        else:
            yield from _arrays(value, inner)


def _fitness(found: _Array) -> tuple[int, int, int]:
    from rageval_hooks.offline.records.columns import has_column

    fields = sum(has_column(name, found.rows[0]) for name in _FIELDS_OF_ROWS)
    return fields, -found.depth, len(found.rows)


def _is_row(document: Mapping[str, Any]) -> bool:
    """Return True if an object is a row by itself: it has the question, so that its arrays are passages or messages."""
    from rageval_hooks.offline.records.columns import has_column

    return has_column("query", document)


def _keyed_rows(document: Mapping[str, Any]) -> list[Any]:
    """Return the rows of ``{"q1": {...}, "q2": {...}}``, each with its key as ``id`` if it has none."""
    values = list(document.values())
    if len(values) < _FEWEST_KEYED_ROWS or not _all_are(dict, values):
        return []
    # Rows have names in common; the parts of one row, such as "inputs" and "outputs", have none.
    if not set.intersection(*map(set, values)):
        return []
    return [{"id": key, **value} for key, value in document.items()]


def _all_are(kind: type, values: Sequence[Any]) -> bool:
    """Return True if there are values, and all of them are of one type."""
    return bool(values) and all(isinstance(value, kind) for value in values)


def _lengths(values: Sequence[Sequence[Any]]) -> set[int]:
    return set(map(len, values))


_FORMS: tuple[Callable[[Mapping[str, Any]], list[Any]], ...] = (
    _from_split_frame,
    _from_columns,
    _from_indexed_columns,
    _wrapped_rows,
    _keyed_rows,
)
"""The forms of an object, the most specific one first. Each returns no rows for an object in another form."""
