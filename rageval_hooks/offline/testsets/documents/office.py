"""HTML, Word, PowerPoint, Excel, EPUB and notebooks, by MarkItDown, which turns each into Markdown."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any

from rageval_hooks.errors import requires
from rageval_hooks.offline.records.formats import SourceFile
from rageval_hooks.offline.testsets.documents.base import (
    Document,
    DocumentReader,
    UnreadableDocumentError,
    inner_suffix,
)

__all__ = ["Office", "to_markdown"]


_MAX_UNPACKED_BYTES = 256 << 20
_ARCHIVES = (".docx", ".pptx", ".xlsx", ".epub")


class Office(DocumentReader):
    """Documents that MarkItDown reads. Its plug-ins and its requests to the network stay off."""

    suffixes = (".html", ".htm", ".docx", ".pptx", ".xlsx", ".epub", ".ipynb")

    def read(self, file: SourceFile, name: str) -> Iterator[Document]:
        """Yield the document as Markdown."""
        yield Document(name=name, text=to_markdown(file, inner_suffix(file.path)))


def to_markdown(file: SourceFile, suffix: str) -> str:
    """Return a document as Markdown.

    Raises:
        UnreadableDocumentError: MarkItDown cannot read it.
        MissingDependencyError: MarkItDown is not installed.
    """
    # Of a file that is no archive MarkItDown would return the bytes as text.
    if suffix in _ARCHIVES and not zipfile.is_zipfile(file.binary()):
        raise UnreadableDocumentError(f"it is not a {suffix} file")
    if suffix in _ARCHIVES:
        _check_size(file)
    converter = _converter()
    from markitdown import StreamInfo
    from markitdown._exceptions import MarkItDownException

    charset = file.encoding.replace("-sig", "") if suffix in (".html", ".htm") else None
    try:
        found = converter.convert_stream(file.binary(), stream_info=StreamInfo(extension=suffix, charset=charset))
    except (MarkItDownException, ValueError, KeyError, OSError, AttributeError) as error:
        reason = str(error).strip().splitlines()
        raise UnreadableDocumentError(f"MarkItDown cannot read it: {reason[-1] if reason else error!r}") from error
    return str(found.markdown)


def _check_size(file: SourceFile) -> None:
    """Raise if an archive is too large when it is unpacked."""
    with zipfile.ZipFile(file.binary()) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if size > _MAX_UNPACKED_BYTES:
        raise UnreadableDocumentError(f"it is larger than {_MAX_UNPACKED_BYTES >> 20} MiB when it is unpacked")


@cache
def _converter() -> Any:
    with requires("markitdown", "documents", "reading HTML and Office documents"):
        from markitdown import MarkItDown
    return MarkItDown(enable_plugins=False)
