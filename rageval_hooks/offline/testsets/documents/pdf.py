"""PDF, by pypdf."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.offline.records.formats import SourceFile
from rageval_hooks.offline.testsets.documents.base import Document, DocumentReader, UnreadableDocumentError

__all__ = ["Pdf"]


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
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    except ImportError as error:
        raise MissingDependencyError("pypdf", "offline", "reading PDF") from error
    try:
        reader = PdfReader(file.binary())
        # Many PDFs are encrypted with an empty password to forbid printing.
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableDocumentError("it is locked by a password: save it without one")
        return [page.extract_text() for page in reader.pages]
    except DependencyError as error:
        raise UnreadableDocumentError(f"its encryption needs another package: {error}") from error
    # pypdf raises these for damaged files.
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableDocumentError(f"it is not a readable PDF ({type(error).__name__}: {error})") from error


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
