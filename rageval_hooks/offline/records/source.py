"""One input file: opened once, its first rows sampled, all rows read in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

from rageval_hooks.errors import RagevalError
from rageval_hooks.offline.records.formats import SourceFile, format_by_content, format_of
from rageval_hooks.offline.records.formats.jsonl import JsonLines, lines_with_places, parse_line
from rageval_hooks.offline.records.rows import BadRow, Group, Row

__all__ = ["RowSource", "count_rows"]

_SAMPLE_ROWS = 100
_CACHED_ROWS = 128


class RowSource:
    """The rows of a file.

    The sample is read when it is first needed, and the first pass over the rows continues behind it: a file that is
    iterated once is parsed once.

    Args:
        path: the file.
        encoding: of a text file; None to detect it.

    Attributes:
        columns: the header of a table; None if each row has its own names.

    Raises:
        ConfigurationError: there is no such file, or its format or the encoding is not known.
        TurnError: the file cannot be read as its format.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path = path
        self._encoding = encoding
        by_suffix = format_of(path)
        self.file = SourceFile(path, encoding)
        self._sample: list[Row | BadRow] | None = None
        self._rest: Iterator[Row | BadRow] | None = None
        # Read before any row: readers share one file, and its position with it.
        try:
            self.format = format_by_content(by_suffix, self.file)
            self.columns = self.format.columns(self.file)
        except BaseException:
            self.file.close()
            raise

    @property
    def may_nest_questions(self) -> bool:
        """Return True if rows are objects, which may hold lists of questions; False for tables."""
        return self.columns is None

    @property
    def sample(self) -> list[Row | BadRow]:
        """The first rows."""
        if self._sample is None:
            self._rest = self.format.read(self.file)
            # So few rows are read fast, and most files show their form in them.
            self._sample = list(islice(self._rest, _SAMPLE_ROWS))
        return self._sample

    @property
    def good_sample(self) -> list[Mapping[str, Any]]:
        """The data of those first rows that could be read."""
        return [row.data for row in self.sample if isinstance(row, Row)]

    def __iter__(self) -> Iterator[Row | BadRow]:
        """Yield all rows. A second call reads the file again."""
        # The sample was read from the same pass, which continues behind it.
        first = self.sample
        rest, self._rest = self._rest, None
        if rest is None:
            return self.format.read(self.file)
        return chain(first, rest)

    def groups(self, keys_of: Callable[[Row], Iterable[str]]) -> Iterator[Group | BadRow]:
        """Yield rows by their keys, in the order of each key's first row.

        Of a JSON Lines file only the places of rows are kept in memory, and rows are read again for their group.

        Args:
            keys_of: returns the keys of a row; a row with several is in several groups.
        """
        rows, fetch = self._addressable_rows()
        places: dict[str, list[int]] = {}
        lines: dict[str, int] = {}
        for place, row in rows:
            if isinstance(row, BadRow):
                yield row
                continue
            # A row of OTLP has many spans of the same trace.
            for key in dict.fromkeys(keys_of(row)):
                places.setdefault(key, []).append(place)
                lines.setdefault(key, row.line)
        for key, found in places.items():
            yield Group(lines[key], key, [fetch(place) for place in found])

    def _addressable_rows(self) -> tuple[Iterator[tuple[int, Row | BadRow]], Callable[[int], Mapping[str, Any]]]:
        """Return all rows, each with its place, and a function that returns the data at a place again."""
        # A place is a byte offset, which needs a file without compression and with one-byte line endings.
        in_place = isinstance(self.format, JsonLines) and self.file.encoding.is_utf8 and not self.file.is_compressed
        if in_place:
            return lines_with_places(self.file.binary()), lru_cache(maxsize=_CACHED_ROWS)(self._row_at)
        kept = list(self)
        return enumerate(kept), lambda place: kept[place].raw

    def _row_at(self, place: int) -> Mapping[str, Any]:
        file = self.file.binary()
        file.seek(place)
        row = parse_line(file.readline(), 0, 0)
        return row.data if isinstance(row, Row) else {}

    def reopened(self) -> RowSource:
        """Return the same file, opened again: for a look ahead, while a pass over the rows is in progress."""
        return RowSource(self.path, self._encoding)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __enter__(self) -> Self:
        """Return the source itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def count_rows(path: Path) -> int | None:
    """Return about how many rows a file has; None if that is unknown without reading it whole, or it is unreadable."""
    try:
        with SourceFile(path) as file:
            return format_by_content(format_of(path), file).count(file)
    except (OSError, EOFError, RagevalError):
        return None
