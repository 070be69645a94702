"""The base of file formats, and the open file that a format reads."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Self, cast

from pydantic import BaseModel

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.offline.records.formats.encodings import SAMPLE_BYTES, Encoding, check_encoding, detect_encoding
from rageval_hooks.offline.records.rows import BadRow, Row, check_file

__all__ = ["COMPRESSIONS", "FileFormat", "SourceFile"]

OutputRow = Mapping[str, Any] | BaseModel

COMPRESSIONS: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".gz": lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file)),
    ".bz2": lambda file: cast(IO[bytes], bz2.BZ2File(file)),
    ".xz": lambda file: cast(IO[bytes], lzma.LZMAFile(file)),  # noqa: SIM115 - close() does it
}
"""Suffix of a compressed file → what decompresses it."""

_BUFFER = 1 << 16


class SourceFile:
    """A file that is open for reading, decompressed and with a known encoding. It is opened once.

    Args:
        path: the file.
        encoding: as the user named it; None to detect it.

    Attributes:
        notes: what the user should know about the choice of the rows, after they were read.

    Raises:
        ConfigurationError: there is no such file, or the encoding is not known.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        check_file(path)
        self.path = path
        self.notes: list[str] = []
        self._given = None if encoding is None else check_encoding(encoding)
        self._raw: IO[bytes] = open(path, "rb")  # noqa: SIM115 - close() does it
        decompress = COMPRESSIONS.get(path.suffix.lower())
        self._file = _decompressed(decompress(self._raw), path) if decompress else self._raw
        self._encoding: Encoding | None = None

    @property
    def is_compressed(self) -> bool:
        """Return True if the file is compressed."""
        return self._file is not self._raw

    @property
    def encoding(self) -> Encoding:
        """The encoding, detected when it is needed first."""
        if self._encoding is None:
            self._encoding = self._given or detect_encoding(self.binary().read(SAMPLE_BYTES))
        return self._encoding

    def binary(self) -> IO[bytes]:
        """Return the file at its beginning, as bytes."""
        self._file.seek(0)
        return self._file

    def text(self, newline: str = "") -> io.TextIOWrapper:
        """Return the file at its beginning, as text. Bytes that are invalid in UTF-8 become surrogates.

        Args:
            newline: what ends a line, as :func:`open` has it; line endings are kept.
        """
        encoding = self.encoding
        name = "utf-8-sig" if encoding.is_utf8 else encoding.name
        errors = "surrogateescape" if encoding.is_utf8 else "replace"
        return _Text(cast(Any, self.binary()), encoding=name, errors=errors, newline=newline)

    def count_lines(self) -> int:
        """Return the number of line breaks."""
        file = self.binary()
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._raw.close()

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def _decompressed(file: IO[bytes], path: Path) -> IO[bytes]:
    """Return a decompressed file whose damage is an error that names it."""
    return cast(IO[bytes], io.BufferedReader(_Decompressed(file, path), _BUFFER))


class _Decompressed(io.RawIOBase):
    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self._path = path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        try:
            block = self._file.read(len(buffer))
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            suffix = self._path.suffix
            raise TurnError(f"{self._path} is damaged, or is not compressed as {suffix} says: {error}") from None
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Text(io.TextIOWrapper):
    """A text layer that leaves its file open when it is garbage-collected: the file is read again."""

    def __del__(self) -> None:
        try:
            self.detach()
        except ValueError:  # detached or closed before
            return


class FileFormat(ABC):
    """A file format: which files it is for, how rows are read, and how rows are written.

    Example:
        >>> class Yaml(FileFormat):
        ...     name = "yaml"
        ...     suffixes = (".yaml",)
        ...
        ...     def read(self, file):
        ...         import yaml
        ...
        ...         for number, data in enumerate(yaml.safe_load(file.binary()), 1):
        ...             yield Row(number, data, number)
    """

    name: ClassVar[str]
    """Its name in messages."""

    suffixes: ClassVar[tuple[str, ...]]
    """How names of such files end, in lower case and with the dot."""

    has_columns: ClassVar[bool] = False
    """True for tables with a header; False if each row has its own names."""

    has_text_cells: ClassVar[bool] = False
    """True if cells hold text only, so that lists and objects are written into them as text."""

    is_binary: ClassVar[bool] = False
    """True if the file is not text, so that it has no encoding."""

    writable: ClassVar[bool] = False
    """True if :meth:`write` is implemented."""

    @abstractmethod
    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield the rows, a few at a time where the format allows it.

        Raises:
            TurnError: the file as a whole cannot be read as this format.
        """

    def columns(self, file: SourceFile) -> list[str] | None:
        """Return the header of a table; None for formats without one."""
        return None

    def count(self, file: SourceFile) -> int | None:
        """Return about how many rows there are, for progress bars; None if counting would mean reading everything."""
        return None

    def write(self, file: IO[bytes], rows: Iterable[OutputRow], columns: Sequence[str]) -> None:
        """Write rows.

        Args:
            file: where to.
            rows: what to write. Formats without columns also receive pydantic models.
            columns: the header; formats without columns ignore it.
        """
        raise ConfigurationError(f"{self.name} files cannot be written")
