"""PDF, by pypdf."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rageval_hooks.errors import requires
from rageval_hooks.offline.records.formats import SourceFile
from rageval_hooks.offline.testsets.documents.base import Document, DocumentReader, UnreadableDocumentError

__all__ = ["Pdf"]

# pypdf needs about 15 times the size of a file as memory.
_MAX_BYTES = 32 << 20
_MAX_PAGES = 5000
_MAX_CHARACTERS = 20_000_000
_MAX_SECONDS = 120.0


class Pdf(DocumentReader):
    """The text of a PDF's pages."""

    suffixes = (".pdf",)

    def read(self, file: SourceFile, name: str) -> Iterator[Document]:
        """Yield the text of all pages."""
        with _quiet("pypdf"):
            pages = _pages(file)
        text = "\n\n".join(page.strip() for page in pages if page.strip())
        if not text:
            raise UnreadableDocumentError(
                f"its {len(pages)} pages have no text: they may be pictures, and need text recognition (OCR) first"
            )
        yield Document(name=name, text=text)


def _pages(file: SourceFile) -> list[str]:
    with requires("pypdf", "offline", "reading PDF"):
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    try:
        reader = PdfReader(io.BytesIO(_content(file)))
        # Many PDFs are encrypted with an empty password to forbid printing.
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableDocumentError("it is locked by a password: save it without one")
        return _texts(reader.pages)
    except DependencyError as error:
        raise UnreadableDocumentError(f"its encryption needs another package: {error}") from error
    # pypdf raises these for damaged files.
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableDocumentError(f"it is not a readable PDF ({type(error).__name__}: {error})") from error


def _content(file: SourceFile) -> bytes:
    content = file.binary().read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise UnreadableDocumentError(f"it is larger than {_MAX_BYTES >> 20} MiB: split it, or convert it to text")
    return content


def _texts(pages: Sequence[Any]) -> list[str]:
    """Return the text of each page, within limits: a small file can hold very much text."""
    if len(pages) > _MAX_PAGES:
        raise UnreadableDocumentError(f"it has {len(pages)} pages, more than {_MAX_PAGES}: split it")
    texts: list[str] = []
    size, end = 0, time.monotonic() + _MAX_SECONDS
    for page in pages:
        texts.append(page.extract_text())
        size += len(texts[-1])
        if size > _MAX_CHARACTERS:
            raise UnreadableDocumentError(f"it has more than {_MAX_CHARACTERS:,} characters of text: split it")
        if time.monotonic() > end:
            raise UnreadableDocumentError(f"reading it takes more than {_MAX_SECONDS:g} s: convert it to text")
    return texts


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a library from logging what the list of problems says."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
