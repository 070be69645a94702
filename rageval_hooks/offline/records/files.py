"""Reading records from a file, and writing files as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.mapping import ColumnMap
from rageval_hooks.offline.records.reading import read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow

__all__ = ["BadRow", "RecordWriter", "atomic_file", "read_records", "write_records"]


def read_records(
    path: str | os.PathLike[str],
    *,
    required: Iterable[str] = ("query", "response"),
    scores: Collection[str] = (),
    on_bad: Callable[[BadRow], None] | None = None,
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> Iterator[Record]:
    """Yield the records of a file, one at a time.

    Readable are JSON Lines, JSON, CSV, Parquet and Excel files, compressed ones too. They may hold records of this
    package, evaluations of the exporter ``jsonl``, rows with the columns of
    :data:`rageval_hooks.offline.records.columns.ALIASES`, or traces (OTLP-JSON, spans of Phoenix).

    Args:
        path: the file.
        required: fields that rows with columns must have.
        scores: columns of a table of ours that are scores if they hold only numbers.
        on_bad: called with each row that cannot be used; without it such a row is an error.
        mapping: field → column, for columns with other names: ``{"passages": "contexts[].text"}``.
        encoding: of a text file; None to detect it.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, the file is unreadable, or a row cannot be used and there is no ``on_bad``.
    """
    columns = ColumnMap(mapping) if mapping else None
    for _, item in read_items(Path(path), required, scores, mapping=columns, encoding=encoding):
        if isinstance(item, Record):
            yield item
        elif on_bad is not None:
            on_bad(item)
        else:
            raise TurnError(f"{path}, line {item.line}: {item.reason}")


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` when the block ends. If the block fails, ``path`` stays unchanged.

    The new file has the permissions of the old one. If there was none, only its owner may read it: it holds texts.

    Raises:
        OSError: the folder cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    # The temporary file is in the same folder, because a rename works only within a file system.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            # Without it a crash after the rename could leave an empty file.
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(temporary, target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


class RecordWriter:
    """Writes records as JSON Lines. The file exists, complete, once the block ends without an exception.

    Args:
        path: the file.

    Example:
        >>> with RecordWriter("scores.jsonl") as writer:  # doctest: +SKIP
        ...     writer.write(record)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._opening = atomic_file(path)
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Open the file."""
        self._file = self._opening.__enter__()
        return self

    def write(self, record: Record) -> None:
        """Append a record."""
        if self._file is None:
            raise RuntimeError("a RecordWriter writes only inside its with block")
        self._file.write(record.model_dump_json().encode() + b"\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Put the file in place, or remove it after an exception."""
        self._file = None
        self._opening.__exit__(kind, error, traceback)


def write_records(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Write records as JSON Lines, as a whole or not at all, and return their number.

    Raises:
        OSError: the file cannot be written.
    """
    count = 0
    with RecordWriter(path) as writer:
        for record in records:
            writer.write(record)
            count += 1
    return count


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, on systems where folders can be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
