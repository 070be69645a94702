"""The records of a file in a temporary file, so that a report reads its input once and still shows any turn."""

from __future__ import annotations

import tempfile
import weakref
import zlib
from array import array
from collections.abc import Iterator

from rageval_hooks.offline.records.record import Record

__all__ = ["RecordStore"]

# Compression level: a record of 5 kB becomes 2 kB in about 0.05 ms; better levels take far longer.
_FAST = 1


class RecordStore:
    """Records by their number. Memory holds 8 bytes per record; the rest is in a temporary file."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="rageval-report-")  # noqa: SIM115 - lives as long as the store
        weakref.finalize(self, self._file.close)
        self._places = array("q")
        self._end = 0

    def __len__(self) -> int:
        return len(self._places)

    def add(self, record: Record) -> None:
        """Append a record."""
        packed = zlib.compress(record.model_dump_json().encode(), _FAST)
        self._file.seek(self._end)
        self._file.write(packed)
        self._places.append(self._end)
        self._end += len(packed)

    def __getitem__(self, number: int) -> Record:
        """Return a record by its number, from 0."""
        start = self._places[number]
        end = self._places[number + 1] if number + 1 < len(self._places) else self._end
        self._file.seek(start)
        return Record.model_validate_json(zlib.decompress(self._file.read(end - start)))

    def __iter__(self) -> Iterator[Record]:
        """Yield all records, in the order of the file."""
        return map(self.__getitem__, range(len(self._places)))
