"""One input file: opened once, its first rows sampled, all rows read in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Self

from rageval_hooks.errors import RagevalError
from rageval_hooks.offline.records.formats import SourceFile, format_of
from rageval_hooks.offline.records.formats.jsonl import JsonLines, parse_line
from rageval_hooks.offline.records.rows import BadRow, Row

__all__ = ["Group", "RowSource", "count_rows"]

# So few rows are read fast, and most files show their form in them.
_SAMPLE_ROWS = 100


class Group(NamedTuple):
    """Rows with the same key, wherever they are in the file; the line is that of the first."""

    line: int
    key: str
    rows: list[Mapping[str, Any]]


class RowSource:
    """The rows of a file.

    Args:
        path: the file.
        encoding: of a text file; None to detect it.

    Attributes:
        columns: the header of a table; the names in the first rows of other formats.
        has_header: True if the columns are complete.
        sample: the first rows.

    Raises:
        ConfigurationError: there is no such file, or its format or the encoding is not known.
        TurnError: the file cannot be read as its format.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self.encoding = encoding
        self.file = SourceFile(path, encoding)
        try:
            with self.file.reading():
                self.format = format_of(self.file)
                header = self.format.columns(self.file)
                self._rows = self.format.read(self.file)
                self.sample = list(islice(self._rows, _SAMPLE_ROWS))
        except BaseException:
            self.file.close()
            raise
        self.has_header = header is not None
        names = chain.from_iterable(self.good_sample)
        self.columns: list[str] = list(dict.fromkeys(names)) if header is None else header

    @property
    def good_sample(self) -> list[Mapping[str, Any]]:
        """The data of those first rows that could be read."""
        return [row.data for row in self.sample if isinstance(row, Row)]

    @property
    def guessed_encoding(self) -> str | None:
        """The encoding of a text file if it was guessed."""
        return self.file.encoding if not self.format.is_binary and self.file.encoding_is_guessed else None

    def __iter__(self) -> Iterator[Row | BadRow]:
        """Yield all rows, once: the sample was read from the same pass, which continues behind it."""
        yield from self.sample
        with self.file.reading():
            yield from self._rows

    def again(self) -> Iterator[Mapping[str, Any]]:
        """Yield the data of all rows from a second pass over the file, in which the first goes on undisturbed."""
        with RowSource(self.path, self.encoding) as source:
            for row in source:
                if isinstance(row, Row):
                    yield row.data

    def groups(self, keys_of: Callable[[Row], Iterable[str]]) -> Iterator[Group | BadRow]:
        """Yield rows by their keys, in the order of each key's first row.

        Of a JSON Lines file only the places of rows are kept in memory, and rows are read again for their group.

        Args:
            keys_of: returns the keys of a row; a row with several is in several groups.
        """
        lines: dict[str, int] = {}
        places: dict[str, list[int]] = {}
        kept: list[Mapping[str, Any]] = []
        # A place is a byte offset, which needs a file without compression and with one-byte line endings.
        by_offset = isinstance(self.format, JsonLines) and self.file.is_utf8 and not self.file.is_compressed
        for place, row in self._with_offsets() if by_offset else enumerate(self):
            if isinstance(row, BadRow):
                yield row
                continue
            if not by_offset:
                kept.append(row.data)
                place = len(kept) - 1
            # A row of OTLP has many spans of the same trace.
            for key in dict.fromkeys(keys_of(row)):
                places.setdefault(key, []).append(place)
                lines.setdefault(key, row.line)
        fetch = lru_cache(maxsize=128)(self._row_at) if by_offset else kept.__getitem__
        for key, found in places.items():
            yield Group(lines[key], key, [fetch(place) for place in found])

    def _with_offsets(self) -> Iterator[tuple[int, Row | BadRow]]:
        place = 0
        for line, text in enumerate(self.file.binary(), 1):
            if stripped := text.removeprefix(b"\xef\xbb\xbf").strip():
                yield place, parse_line(stripped, line, line)
            place += len(text)

    def _row_at(self, place: int) -> Mapping[str, Any]:
        file = self.file.binary()
        file.seek(place)
        row = parse_line(file.readline().removeprefix(b"\xef\xbb\xbf").strip(), 0, 0)
        return row.data if isinstance(row, Row) else {}

    def __enter__(self) -> Self:
        """Return the source itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.file.close()


def count_rows(path: Path) -> int | None:
    """Return about how many rows a file has; None if that is unknown without reading it whole, or it is unreadable."""
    try:
        with SourceFile(path) as file, file.reading():
            return format_of(file).count(file)
    except (OSError, RagevalError):
        return None
