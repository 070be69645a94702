"""The base of file formats, the rows that they yield, and the input file that they read."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any, AnyStr, ClassVar, cast

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.offline.limits import LINE
from rageval_hooks.runtime.lazy import cached_property

COMPRESSIONS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""Suffix of a compressed file → opens it."""

# Bytes that decide on the encoding of a file.
_SAMPLE = 1 << 18
# UTF-32 comes first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UTF8, _WESTERN = "utf-8-sig", "cp1252"


@dataclass(frozen=True)
class Row:
    """A row that could be read.

    Attributes:
        line: where the row begins: a line of a text file, or the number of the row in Parquet and JSON, from 1.
        data: values by column name.
        number: position among all rows, from 1.
    """

    line: int
    data: Mapping[str, Any]
    number: int


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used.

    Attributes:
        line: where the row begins.
        reason: what is wrong, in one sentence.
        raw: the row as it was in the file.
    """

    line: int
    reason: str
    raw: Any = field(default=None, repr=False)


def check_file(path: Path) -> None:
    """Check that a path names a regular file.

    Raises:
        ConfigurationError: there is no such file, or it is a folder or a pipe.
    """
    if not path.exists():
        guess = ""
        # The folder may not be readable, and the current one may have been deleted.
        with suppress(OSError):
            if not path.parent.is_dir():
                guess = f": there is no folder {path.parent}"
            elif close := get_close_matches(path.name, os.listdir(path.parent), n=1):
                guess = f". Did you mean {str(path.parent / close[0])!r}?"
            elif not path.is_absolute():
                guess = f" in {Path.cwd()}"
        raise ConfigurationError(f"there is no file {path}{guess}")
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder: give one of the files in it")
    if not path.is_file():
        raise ConfigurationError(f"{path} is a pipe or a device: it is read more than once, so give a file")


class SourceFile:
    """An input file, which may be compressed and in any encoding.

    Args:
        path: the file.
        encoding: as the user named it; None to detect it.

    Attributes:
        notes: decisions about the file that the user should know, such as a guessed encoding.

    Raises:
        ConfigurationError: there is no such file, or the encoding is not known.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        check_file(path)
        self.path = path
        self.notes: list[str] = []
        self._named = None
        if encoding is not None:
            try:
                name = codecs.lookup(encoding).name
            except LookupError:
                raise ConfigurationError(
                    f"--encoding {encoding!r} is not known: give one such as utf-8, cp1252 or shift_jis"
                ) from None
            self._named = _UTF8 if name == "utf-8" else name

    @cached_property
    def encoding(self) -> str:
        """The name of a Python codec; ``utf-8-sig`` for UTF-8 with or without a mark."""
        if self._named is not None:
            return self._named
        with self.open() as file:
            sample = file.read(_SAMPLE)
        for mark, name in _MARKS:
            if sample.startswith(mark):
                return name
        # The sample may end within a character, so the decoder is told that more may follow.
        try:
            codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(sample) < _SAMPLE)
        except UnicodeDecodeError:
            # Valid characters of several bytes next to invalid bytes: damaged UTF-8, whose damaged rows are reported.
            is_utf8 = not sample.decode("utf-8", "ignore").isascii()
        else:
            # ISO-2022 switches to Japanese or Korean text by escape sequences, and is ASCII otherwise.
            is_utf8 = b"\x1b$" not in sample
        guess = None if is_utf8 else _guess(sample)
        if guess is None:
            return _UTF8
        self.notes.append(f"{self.path} is read as {guess}: --encoding names another encoding")
        return guess

    @property
    def is_utf8(self) -> bool:
        """Return True for UTF-8, with or without a byte order mark."""
        return self.encoding == _UTF8

    def open(self) -> IO[bytes]:
        """Return the decompressed bytes of the file. The caller closes it."""
        return cast(IO[bytes], COMPRESSIONS.get(self.path.suffix.lower(), open)(self.path, "rb"))

    def open_text(self, newline: str = "") -> IO[str]:
        """Return the file as text. Bytes that are invalid in UTF-8 become surrogates. The caller closes it.

        Args:
            newline: what ends a line, as :func:`open` has it; line endings are kept.
        """
        errors = "surrogateescape" if self.is_utf8 else "replace"
        return io.TextIOWrapper(self.open(), encoding=self.encoding, errors=errors, newline=newline)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn damage of a compressed file into an error that names the file.

        Raises:
            TurnError: the file is damaged.
        """
        try:
            yield
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            suffix = self.path.suffix
            if suffix.lower() not in COMPRESSIONS:
                raise
            raise TurnError(f"{self.path} is damaged, or is not compressed as {suffix} says: {error}") from None


def _guess(sample: bytes) -> str | None:
    """Return the encoding that bytes are probably in, given that it is not UTF-8; None if there is no good guess."""
    special = sum(byte >= 0x80 for byte in sample)
    # Too little evidence for statistics: a few accented letters in ASCII text are nearly always Windows' own encoding.
    if 0 < special < 64 and special < len(sample) / 5:
        return _WESTERN
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best()
    if best is None:
        return None
    # Several codecs may decode the sample to the same text; the most common one is the safest for the rest.
    return _WESTERN if _WESTERN in best.could_be_from_charset else best.encoding


def not_utf8(data: bytes) -> str:
    """Return the reason why bytes that are not UTF-8 cannot be used, with the encoding that reads them."""
    guess = _guess(data)
    return f"not UTF-8: {f'--encoding {guess} reads it' if guess else '--encoding names another encoding'}"


def lines_of(file: IO[AnyStr]) -> Iterator[AnyStr]:
    """Yield the lines of a file. Of a line that is longer than :data:`LINE`, only a beginning of more than that."""
    while line := file.readline(LINE + 1):
        yield line
        # The rest of a long line, in pieces; the last one is shorter, or ends with the line.
        while len(line) > LINE and line[-1:] not in ("\n", b"\n"):
            line = file.readline(LINE + 1)


def inner_suffix(path: Path) -> str:
    """Return the suffix in lower case; of a compressed file, the one before: ``.jsonl`` for ``a.jsonl.gz``."""
    if path.suffix.lower() in COMPRESSIONS:
        return path.with_suffix("").suffix.lower()
    return path.suffix.lower()


class FileFormat(ABC):
    """A file format: which files it is for, how rows are read, and how rows are written.

    Example:
        >>> class Yaml(FileFormat):
        ...     name = "YAML"
        ...     suffixes = (".yaml",)
        ...
        ...     def read(self, file):
        ...         import yaml
        ...
        ...         with file.open() as content:
        ...             for number, data in enumerate(yaml.safe_load(content), 1):
        ...                 yield Row(number, data, number)
    """

    name: ClassVar[str]
    """Its name in messages."""

    suffixes: ClassVar[tuple[str, ...]]
    """How names of such files end, in lower case and with the dot."""

    has_columns: ClassVar[bool] = False
    """True for tables, in which every row has all columns, and lists and objects are written into cells as text."""

    writable: ClassVar[bool] = False
    """True if :meth:`write` is implemented."""

    @abstractmethod
    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield the rows, a few at a time where the format allows it.

        Raises:
            TurnError: the file as a whole cannot be read as this format.
        """

    def write(self, file: IO[bytes], rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Write rows.

        Args:
            file: where to.
            rows: what to write.
            columns: the header; formats without columns ignore it.
        """
        raise ConfigurationError(f"{self.name} files cannot be written")


def check_header(header: list[str], file: SourceFile) -> list[str]:
    """Return the columns of a table.

    Raises:
        TurnError: two columns have the same name, so that only one would be read.
    """
    # pandas writes an index as a column without a name, possibly several times.
    for name in header:
        if name.strip() and header.count(name) > 1:
            raise TurnError(f"{file.path} has several columns {name!r}: give each its own name")
    return header
