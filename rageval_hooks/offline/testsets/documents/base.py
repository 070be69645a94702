"""A document, and what reads documents from a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from rageval_hooks.errors import RagevalError
from rageval_hooks.offline.records.formats import SourceFile
from rageval_hooks.runtime.jsonable import Data, Text

__all__ = ["BadPart", "Document", "DocumentReader", "Found", "UnreadableDocumentError"]


class Document(Data):
    """A text to ask about.

    Attributes:
        name: its name in the test set: the path below the folder that was given.
        text: the whole text.
        id: given for a document that is a chunk already, such as a line of JSON with an ``id``: it is not cut.
    """

    name: Text
    text: Text
    id: Text | None = None


class BadPart(Data):
    """A part of a file, such as a line, that could not be read.

    Attributes:
        where: the file and the place in it.
        reason: what is wrong.
    """

    where: Text
    reason: Text


Found = Document | BadPart


class UnreadableDocumentError(RagevalError):
    """A file cannot be read; the message says why."""


class DocumentReader(ABC):
    """Reads the documents of some kinds of files.

    Example:
        >>> class Logs(DocumentReader):
        ...     suffixes = (".log",)
        ...
        ...     def read(self, file, name):
        ...         yield Document(name=name, text=file.text().read())
    """

    suffixes: ClassVar[tuple[str, ...]]
    """How names of such files end, in lower case and with the dot."""

    @abstractmethod
    def read(self, file: SourceFile, name: str) -> Iterator[Found]:
        """Yield the documents of a file, and the parts of it that could not be read.

        Args:
            file: the file, decompressed.
            name: its name in the test set.

        Raises:
            UnreadableDocumentError: nothing of it can be read.
            MissingDependencyError: a package of an extra is not installed.
        """


def inner_suffix(path: Path) -> str:
    """Return the suffix without that of a compression: ``.md`` for ``notes.md.gz``."""
    from rageval_hooks.offline.records.formats.base import COMPRESSIONS

    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return inner.suffix.lower()
