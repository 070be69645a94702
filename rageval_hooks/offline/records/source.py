"""The rows of one input file: the first ones sampled, all of them in one pass, or in groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from rageval_hooks.offline.records.columns import has_column
from rageval_hooks.offline.records.formats import SourceFile, format_of
from rageval_hooks.offline.records.formats.base import BadRow, Row

# So few rows are read fast, and most files show their form in them.
_SAMPLE_ROWS = 100
# Documents of SQuAD have paragraphs, which have questions.
_MOST_DEPTH = 4


class RowSource:
    """The rows of a file.

    Args:
        path: the file.
        encoding: of a text file; None to detect it.
        splits: True to make a row of each question where an object has a list of them, as in SQuAD.

    Attributes:
        is_table: True if every row has all columns.
        columns: the names in the first rows.
        notes: decisions about the file that the user should know.

    Raises:
        ConfigurationError: there is no such file, or its format or the encoding is not known.
        TurnError: the file cannot be read as its format.
    """

    def __init__(self, path: Path, encoding: str | None = None, *, splits: bool = True) -> None:
        self.path = path
        self._file = SourceFile(path, encoding)
        with self._file.reading():
            self._format = format_of(self._file)
        self.is_table = self._format.has_columns
        self._splits = splits and not self.is_table
        self._rows = self._read()
        self._first = list(islice(self._rows, _SAMPLE_ROWS))
        self.sample = [row.data for row in self._first if isinstance(row, Row)]
        self.columns: list[str] = list(dict.fromkeys(chain.from_iterable(self.sample)))
        self.notes = self._file.notes

    def __iter__(self) -> Iterator[Row | BadRow]:
        """Yield all rows, once: the sample was read from the same pass, which continues behind it."""
        return chain(self._first, self._rows)

    def again(self) -> Iterator[Mapping[str, Any]]:
        """Yield the data of all rows from a second pass over the file, in which the first goes on undisturbed."""
        return (row.data for row in self._read() if isinstance(row, Row))

    def _read(self) -> Iterator[Row | BadRow]:
        with self._file.reading():
            rows = self._format.read(self._file)
            yield from split_rows(rows, _questions_in) if self._splits else rows


def split_rows(
    rows: Iterable[Row | BadRow], split: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]
) -> Iterator[Row | BadRow]:
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


def _questions_in(row: Mapping[str, Any], depth: int = _MOST_DEPTH) -> list[Mapping[str, Any]]:
    """Return a row for each question of an object that has none itself, but a list of objects with questions.

    SQuAD has paragraphs in a document, and questions in each paragraph. Each row keeps what is around its list.
    """
    if not depth or has_column("query", row):
        return [row]
    for name, value in row.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            found = [part for item in value for part in _questions_in(item, depth - 1)]
            if has_column("query", found[0]):
                # The id of a document is not that of each question in it.
                around = {key: part for key, part in row.items() if key != name and not has_column("id", [key])}
                return [{**around, **part} for part in found]
    return [row]


class Group(NamedTuple):
    """Rows with the same key, wherever they are in the file; the line is that of the first."""

    line: int
    key: str
    rows: list[Mapping[str, Any]]


def grouped(rows: Iterable[Row | BadRow], keys_of: Callable[[Row], Iterable[str]]) -> Iterator[Group | BadRow]:
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
            yield Group(lines[key], key, [row_at(place) for place in found])


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
