"""Rows of files, one at a time: JSON Lines, JSON, CSV and Parquet. A row that cannot be read is said, not raised."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

from rageval_hooks.errors import ConfigurationError, MissingDependencyError, RagevalError, TurnError

__all__ = ["BadRow", "Group", "Row", "check_file", "columns_of", "count_rows", "format_of", "read_groups", "read_rows"]

_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_BATCH = 128
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Row:
    """A row that could be read.

    Attributes:
        line: where it begins: a line of a text file; the number of the row in Parquet and in a JSON array, from 1.
        data: the values by name.
        number: of the row among all rows, from 1.
    """

    line: int
    data: Mapping[str, Any]
    number: int

    @property
    def raw(self) -> Mapping[str, Any]:
        """The row as it stood in the file, for the file of errors."""
        return self.data


@dataclass(frozen=True)
class BadRow:
    """A row that nothing can be done with.

    Attributes:
        line: where it begins.
        reason: what is wrong, in a sentence.
        raw: the row as it stood in the file.
    """

    line: int
    reason: str
    raw: Any = field(default=None, repr=False)


def check_file(path: Path) -> None:
    """Check that there is a file.

    Raises:
        ConfigurationError: there is none of that name, or it is a folder or a pipe.
    """
    if not path.exists():
        raise ConfigurationError(f"there is no file {path}")
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder, not a file")
    if not path.is_file():
        raise ConfigurationError(f"{path} is a pipe or a device: it is read more than once, so give a file")


def format_of(path: Path) -> str:
    """Return the format of a file: ``jsonl``, ``json``, ``csv`` or ``parquet``.

    Raises:
        ConfigurationError: there is no such file, or its name ends in none of the known ways.
    """
    check_file(path)
    try:
        return _FORMATS[path.suffix.lower()]
    except KeyError:
        raise ConfigurationError(
            f"the format of {path} is not known: its name should end in one of {', '.join(_FORMATS)}"
        ) from None


def read_rows(path: Path) -> Iterator[Row | BadRow]:
    """Yield the rows of a file; of a JSON Lines, CSV or Parquet file a few are in memory at a time.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: it cannot be read as what its name says.
    """
    readers = {"jsonl": _read_jsonl, "json": _read_json, "csv": _read_csv, "parquet": _read_parquet}
    return readers[format_of(path)](path)


def count_rows(path: Path) -> int | None:
    """Return about how many rows a file has: in CSV, a cell with several lines counts several times.

    Returns:
        None for JSON, and where the file cannot be read.
    """
    try:
        kind = format_of(path)
        if kind == "parquet":
            return int(_open_parquet(path).metadata.num_rows)
        if kind == "json":
            return None
        with open(path, "rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except (OSError, RagevalError):
        return None
    return max(0, lines - 1) if kind == "csv" else lines


def columns_of(path: Path) -> list[str] | None:
    """Return the columns of a table, None for formats in which each row has its own."""
    kind = format_of(path)
    if kind == "csv":
        with open(path, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
            return _apart(next(_csv_reader(file, path), []), path)
    if kind == "parquet":
        return _apart([str(name) for name in _open_parquet(path).schema_arrow.names], path)
    return None


def read_object(text: bytes, line: int, number: int) -> Row | BadRow:
    """Return the row that a line of JSON holds."""
    try:
        raw = text.decode("utf-8")
    except UnicodeDecodeError as error:
        return BadRow(line, f"not UTF-8: {error.reason} at byte {error.start}", text.decode("utf-8", "replace"))
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return BadRow(line, f"not JSON: {error}", raw)
    if not isinstance(data, dict):
        return BadRow(line, "not a JSON object", raw)
    return Row(line, data, number)


@dataclass(frozen=True)
class Group:
    """Rows that belong together, wherever they stand in the file.

    Attributes:
        line: where the first of them begins.
        key: what they have in common.
        rows: the rows.
    """

    line: int
    key: str
    rows: list[Mapping[str, Any]]


def read_groups(path: Path, keys_of: Callable[[Row], Iterable[str]]) -> Iterator[Group | BadRow]:
    """Yield the rows of a JSON or JSON Lines file by what they have in common, in the order of the first of each.

    A JSON Lines file is read twice; what is kept of it meanwhile is where the rows of a key stand.

    Args:
        path: the file.
        keys_of: returns the keys of a row; a row with several is in several groups.
    """
    places: dict[str, list[int]] = {}
    lines: dict[str, int] = {}
    fetch: Callable[[int], Mapping[str, Any]]
    document: list[Mapping[str, Any]] = []
    by_line = format_of(path) == "jsonl"
    found: Iterator[tuple[int, Row | BadRow]]
    with ExitStack() as stack:
        if by_line:
            found = _with_offsets(stack.enter_context(open(path, "rb")))
            fetch = lru_cache(maxsize=_BATCH)(partial(_fetch, stack.enter_context(open(path, "rb"))))
        else:
            found = enumerate(read_rows(path))
            fetch = document.__getitem__
        for place, row in found:
            if isinstance(row, BadRow):
                yield row
            else:
                for key in dict.fromkeys(keys_of(row)):
                    places.setdefault(key, []).append(place)
                    lines.setdefault(key, row.line)
            if not by_line:
                document.append(row.data if isinstance(row, Row) else {})
        for key, there in places.items():
            yield Group(lines[key], key, [fetch(place) for place in there])


def _with_offsets(file: IO[bytes]) -> Iterator[tuple[int, Row | BadRow]]:
    place = number = 0
    for line, text in enumerate(file, 1):
        stripped = text.removeprefix(_BOM).strip()
        if stripped:
            number += 1
            yield place, read_object(stripped, line, number)
        place += len(text)


def _fetch(file: IO[bytes], place: int) -> Mapping[str, Any]:
    file.seek(place)
    found: dict[str, Any] = json.loads(file.readline().removeprefix(_BOM))
    return found


def _read_jsonl(path: Path) -> Iterator[Row | BadRow]:
    with open(path, "rb") as file:
        for _, row in _with_offsets(file):
            yield row


def _read_json(path: Path) -> Iterator[Row | BadRow]:
    try:
        document = json.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise TurnError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise TurnError(f"{path} is nested too deeply") from None
    except ValueError as error:
        if "Extra data" not in str(error):
            raise TurnError(f"{path} is not JSON: {error}") from None
        yield from _read_jsonl(path)  # one object per line under the wrong name
        return
    for number, item in enumerate(_items(document), 1):
        if isinstance(item, dict):
            yield Row(number, item, number)
        else:
            yield BadRow(number, "not a JSON object", item)


def _items(document: Any) -> list[Any]:
    """Return the rows of a JSON document: an array, an array under ``data``, columns of equal length, or one object."""
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        return [document]
    if isinstance(document.get("data"), list):
        return list(document["data"])
    values = list(document.values())
    if len(values) > 1 and all(isinstance(value, list) for value in values) and len({*map(len, values)}) == 1:
        return [dict(zip(document, row, strict=True)) for row in zip(*values, strict=True)]
    return [document]


def _read_csv(path: Path) -> Iterator[Row | BadRow]:
    with open(path, newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        reader = _csv_reader(file, path)
        header = _apart(next(reader, []), path)
        number, line = 0, reader.line_num + 1
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield BadRow(line, f"not CSV: {error}")
                line = reader.line_num + 1
                continue
            if cells:
                number += 1
                yield _table_row(header, cells, line, number)
            line = reader.line_num + 1


def _apart(header: list[str], path: Path) -> list[str]:
    """Return the columns of a table, if no two have the same name.

    Raises:
        TurnError: of such columns only one would be read.
    """
    twice = [name for name, count in Counter(header).items() if count > 1 and name.strip()]
    if twice:
        raise TurnError(f"{path} has several columns {twice[0]!r}: give each its own name")
    return header


def _csv_reader(file: Any, path: Path) -> Any:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a cell may hold a whole context
    return csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")


def _table_row(header: list[str], cells: list[str], line: int, number: int) -> Row | BadRow:
    if len(cells) != len(header):
        return BadRow(line, f"has {len(cells)} cells, the header has {len(header)}", cells)
    data = dict(zip(header, cells, strict=True))
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        raw = {name: cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name, cell in data.items()}
        return BadRow(line, "not UTF-8", raw)
    return Row(line, data, number)


def _read_parquet(path: Path) -> Iterator[Row | BadRow]:
    number = 0
    columns_of(path)  # which are checked
    for batch in _open_parquet(path).iter_batches(batch_size=_BATCH):
        for data in batch.to_pylist():
            number += 1
            yield Row(number, data, number)


def _open_parquet(path: Path) -> Any:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        raise MissingDependencyError("pyarrow", "offline", "reading Parquet") from None
    try:
        return pyarrow.parquet.ParquetFile(path, memory_map=True)
    except (OSError, pyarrow.ArrowException) as error:
        raise TurnError(f"{path} cannot be read as Parquet: {error}") from None
