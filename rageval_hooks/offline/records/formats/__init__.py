"""File formats: one module here for each, with its read and write side, which is found by its file.

To add a format, add one module with a subclass of :class:`FileFormat`. Nothing else names it. A file has the format of
its suffix.
"""

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
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import IO, Any, ClassVar, cast

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.offline.input_sizes import LINE, in_mib
from rageval_hooks.offline.records.columns import has_column
from rageval_hooks.runtime.lazy import cached_property

COMPRESSIONS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""Suffix of a compressed file → opens it."""

# Bytes that decide on the encoding of a file.
_SAMPLE = 1 << 18
_UTF8, _WESTERN = "utf-8-sig", "cp1252"
_MAX_PROPOSED = 3


@dataclass(frozen=True)
class Row:
    """A row that could be read.

    Attributes:
        line: where the row begins: a line of a text file, or the number of the row in Parquet and JSON, from 1.
        data: values by column name.
    """

    line: int
    data: Mapping[str, Any]


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
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder: give one of the files in it")
    if not path.exists():
        raise ConfigurationError(f"there is no file {path}")
    if not path.is_file():
        raise ConfigurationError(f"{path} is a pipe or a device: it is read more than once, so give a file")


class SourceFile:
    """An input file, which may be compressed and in any encoding.

    Args:
        path: the file.
        encoding: as the user named it; None to detect it.
        sheet: the table to read, as the user named it; None to choose one.

    Attributes:
        notes: decisions about the file that the user should know, such as a guessed encoding.

    Raises:
        ConfigurationError: there is no such file, or the encoding is not known.
    """

    def __init__(self, path: Path, encoding: str | None = None, sheet: str | None = None) -> None:
        check_file(path)
        self.path = path
        self.sheet = sheet
        self.notes: list[str] = []
        if encoding is not None:
            try:
                name = codecs.lookup(encoding).name
            except LookupError:
                raise ConfigurationError(
                    f"--encoding {encoding!r} is not known: give one such as utf-8, cp1252 or shift_jis"
                ) from None
            self.encoding = _UTF8 if name == "utf-8" else name

    @cached_property
    def encoding(self) -> str:
        """The name of a Python codec; ``utf-8-sig`` for UTF-8 with or without a byte order mark."""
        with self.open() as file:
            sample = file.read(_SAMPLE)
        if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        # The sample may end within a character, so the decoder is told that more may follow.
        try:
            codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(sample) < _SAMPLE)
            # ISO-2022 switches to Japanese or Korean text by escape sequences, and is ASCII otherwise.
            is_utf8 = b"\x1b$" not in sample
        except UnicodeDecodeError:
            # Valid characters of several bytes next to invalid bytes: damaged UTF-8, whose damaged rows are reported.
            is_utf8 = not sample.decode("utf-8", "ignore").isascii()
        guesses = [] if is_utf8 else _guesses(sample)
        if not guesses:
            return _UTF8
        self.notes.append(f"{self.path} is read as {guesses[0]}: --encoding names another encoding")
        return guesses[0]

    def open(self) -> IO[bytes]:
        """Return the decompressed bytes of the file. The caller closes it."""
        return cast(IO[bytes], COMPRESSIONS.get(self.path.suffix.lower(), open)(self.path, "rb"))

    def open_text(self, newline: str = "") -> IO[str]:
        """Return the file as text. Bytes that are invalid in UTF-8 become surrogates. The caller closes it.

        Args:
            newline: what ends a line, as :func:`open` has it; line endings are kept.
        """
        errors = "surrogateescape" if self.encoding == _UTF8 else "replace"
        return io.TextIOWrapper(self.open(), encoding=self.encoding, errors=errors, newline=newline)

    def lines(self, file: IO[str]) -> Iterator[str]:
        """Yield the lines of this file, opened as text.

        Raises:
            TurnError: a line is longer than :data:`LINE`.
        """
        while line := file.readline(LINE + 1):
            if len(line) > LINE:
                raise TurnError(f"{self.path} has a line that is longer than {in_mib(LINE)}")
            yield line

    def choose(self, tables: Mapping[str, Iterable[str]]) -> str:
        """Return the name of the table to read: the one that the user named, or the first with the most known columns.

        Args:
            tables: name of a worksheet, or keys of an array → its columns.

        Raises:
            TurnError: there is no table of that name.
        """
        if self.sheet is not None:
            if self.sheet not in tables:
                raise TurnError(f"{self.path} has no table {self.sheet!r} (--sheet). It has {', '.join(tables)}")
            return self.sheet
        known = {
            name: has_column("query", columns) + has_column("response", columns) + has_column("passages", columns)
            for name, columns in tables.items()
        }
        chosen = max(tables, key=known.__getitem__)  # the first of equals
        if others := [repr(name) for name in tables if name != chosen]:
            self.notes.append(f"read is {chosen!r} of {self.path}, not {', '.join(others)}: --sheet names another")
        return chosen

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


def _guesses(sample: bytes) -> list[str]:
    """Return the encodings that bytes may be in, the likeliest first, given that they are not UTF-8."""
    special = sum(byte >= 0x80 for byte in sample)
    # Too little evidence for statistics: a few accented letters in ASCII text are nearly always Windows' own encoding.
    if 0 < special < 64 and special < len(sample) / 5:
        return [_WESTERN]
    from charset_normalizer import from_bytes

    found = list(from_bytes(sample))
    # Several codecs may decode the sample to the same text; the most common one is the safest for the rest.
    if found and _WESTERN in found[0].could_be_from_charset:
        return [_WESTERN]
    return [one.encoding for one in found]


def not_utf8(data: bytes) -> str:
    """Return the reason why bytes that are not UTF-8 cannot be used, with the encodings that may read them."""
    match _guesses(data)[:_MAX_PROPOSED]:
        case []:
            return "not UTF-8: --encoding names another encoding"
        case [one]:
            return f"not UTF-8: --encoding {one} reads it"
        case several:
            return f"not UTF-8: --encoding names its encoding, perhaps {' or '.join(several)}"


def undecoded(text: str) -> str | None:
    """Return the reason why a text from :meth:`SourceFile.open_text` cannot be used; None if all of it is UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return not_utf8(text.encode("utf-8", "surrogateescape"))
    return None


def inner_suffix(path: Path) -> str:
    """Return the suffix in lower case; of a compressed file, the one before: ``.jsonl`` for ``a.jsonl.gz``."""
    is_compressed = path.suffix.lower() in COMPRESSIONS
    return (path.with_suffix("") if is_compressed else path).suffix.lower()


class FileFormat(ABC):
    """A file format: which files it is for, how rows are read, and how rows are written.

    Example:
        >>> class Yaml(FileFormat):
        ...     suffixes = (".yaml",)
        ...
        ...     def read(self, file):
        ...         import yaml
        ...
        ...         with file.open() as content:
        ...             for number, data in enumerate(yaml.safe_load(content), 1):
        ...                 yield Row(number, data)
    """

    suffixes: ClassVar[tuple[str, ...]]
    """How names of such files end, in lower case and with the dot."""

    has_columns: ClassVar[bool] = False
    """True for tables, in which every row has all columns, and lists and objects are written into cells as text."""

    @abstractmethod
    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield the rows, a few at a time where the format allows it.

        Raises:
            TurnError: the file as a whole cannot be read as this format.
        """

    def write(self, file: IO[bytes], rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Write rows. A format that does not define this is only read.

        Args:
            file: where to.
            rows: what to write.
            columns: the header; formats without columns ignore it.
        """
        raise NotImplementedError


@cache
def all_formats() -> tuple[FileFormat, ...]:
    """Return an instance of every format that a module of this package defines."""
    modules = [import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)]
    return tuple(
        kind()
        for module in modules
        for kind in vars(module).values()
        # A module also has the names that it imports, such as `FileFormat` itself.
        if isinstance(kind, type) and kind.__module__ == module.__name__ and issubclass(kind, FileFormat)
    )


def format_of(path: Path) -> FileFormat:
    """Return the format of a file.

    Raises:
        ConfigurationError: its suffix is not known.
    """
    by_suffix = {suffix: found for found in all_formats() for suffix in found.suffixes}
    if found := by_suffix.get(inner_suffix(path)):
        return found
    raise ConfigurationError(
        f"the format of {path} is not known: its name should end in one of {', '.join(by_suffix)}, "
        f"or in one of these and {' or '.join(COMPRESSIONS)}"
    )


def writable_format(path: Path) -> FileFormat:
    """Return the format in which a file would be written.

    Raises:
        ConfigurationError: its suffix names none.
    """
    writable = [found for found in all_formats() if type(found).write is not FileFormat.write]
    by_suffix = {suffix: found for found in writable for suffix in found.suffixes}
    if found := by_suffix.get(path.suffix.lower()):
        return found
    raise ConfigurationError(f"the output {path} should end in {' or '.join(by_suffix)}")
