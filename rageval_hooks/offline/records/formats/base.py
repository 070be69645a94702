"""The base of file formats, and the open file that a format reads: decompressed, with a known encoding."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, AnyStr, ClassVar, Self, cast

from pydantic import BaseModel

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.offline.limits import LINE
from rageval_hooks.offline.records.rows import BadRow, Row, check_file

__all__ = ["COMPRESSIONS", "FileFormat", "SourceFile", "inner_suffix", "lines_of", "not_utf8"]

OutputRow = Mapping[str, Any] | BaseModel

COMPRESSIONS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""Suffix of a compressed file → opens it."""

_SAMPLE_BYTES = 1 << 18
"""How many bytes of a file decide on its encoding."""

# UTF-32 comes first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WESTERN = "cp1252"
_FEW_BYTES = 64


class SourceFile:
    """A file that is open for reading. It is opened once.

    Args:
        path: the file.
        encoding: as the user named it; None to detect it.

    Attributes:
        encoding_is_guessed: True if neither the user nor the file says what the encoding is.
        notes: what the user should know about the choice of the rows, after they were read.

    Raises:
        ConfigurationError: there is no such file, or the encoding is not known.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        check_file(path)
        self.path = path
        self.encoding_is_guessed = False
        self.notes: list[str] = []
        self._encoding = None if encoding is None else _codec(encoding)
        self.is_compressed = path.suffix.lower() in COMPRESSIONS
        self._file: IO[bytes] = COMPRESSIONS.get(path.suffix.lower(), open)(path, "rb")
        self._text: io.TextIOWrapper | None = None

    @property
    def encoding(self) -> str:
        """The name of a Python codec; ``utf-8-sig`` for UTF-8. It is detected when it is needed first."""
        if self._encoding is None:
            self._encoding, self.encoding_is_guessed = _detected(self.binary().read(_SAMPLE_BYTES))
        return self._encoding

    @property
    def is_utf8(self) -> bool:
        """Return True for UTF-8, with or without a byte order mark."""
        return self.encoding == "utf-8-sig"

    def binary(self) -> IO[bytes]:
        """Return the file at its beginning, as bytes."""
        if self._text is not None:
            # The text layer would close the file when it is garbage-collected.
            self._text.detach()
            self._text = None
        self._file.seek(0)
        return self._file

    def text(self, newline: str = "") -> IO[str]:
        """Return the file at its beginning, as text. Bytes that are invalid in UTF-8 become surrogates.

        Args:
            newline: what ends a line, as :func:`open` has it; line endings are kept.
        """
        encoding = self.encoding
        errors = "surrogateescape" if self.is_utf8 else "replace"
        self._text = io.TextIOWrapper(cast(Any, self.binary()), encoding=encoding, errors=errors, newline=newline)
        return self._text

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn damage of a compressed file into an error that names the file.

        Raises:
            TurnError: the file is damaged.
        """
        try:
            yield
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            if not self.is_compressed:
                raise
            suffix = self.path.suffix
            raise TurnError(f"{self.path} is damaged, or is not compressed as {suffix} says: {error}") from None


def _codec(name: str) -> str:
    try:
        found = codecs.lookup(name).name
    except LookupError:
        raise ConfigurationError(
            f"--encoding {name!r} is not known: give one such as utf-8, cp1252 or shift_jis"
        ) from None
    return "utf-8-sig" if found == "utf-8" else found


def _detected(sample: bytes) -> tuple[str, bool]:
    """Return the encoding of a file, and whether it is guessed, from the bytes at its beginning."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name, False
    # ISO-2022 switches character sets with escape sequences before Japanese or Korean text, and is ASCII otherwise.
    if b"\x1b$" in sample and (guess := _guess(sample)):
        return guess, True
    # The sample may end within a character, so the decoder is told that more may follow.
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(sample, final=len(sample) < _SAMPLE_BYTES)
    except UnicodeDecodeError:
        guess = _guess(sample)
        # Valid characters of several bytes next to invalid bytes: a damaged UTF-8 file. Its damaged rows are reported.
        is_damaged_utf8 = not sample.decode("utf-8", "ignore").isascii()
        return ("utf-8-sig", False) if guess is None or is_damaged_utf8 else (guess, True)
    return "utf-8-sig", False


def _guess(sample: bytes) -> str | None:
    """Return the encoding that bytes are probably in, given that it is not UTF-8; None if there is no good guess."""
    special = sum(byte >= 0x80 for byte in sample)
    # Too little evidence for statistics: a few accented letters in ASCII text are nearly always Windows' own encoding.
    if 0 < special < _FEW_BYTES and special < len(sample) / 5:
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
        if len(line) > LINE:
            # The rest of the line, in pieces; the last one is shorter, or ends with the line.
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


def count_lines(file: SourceFile) -> int:
    """Return the number of line breaks."""
    stream = file.binary()
    return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


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
