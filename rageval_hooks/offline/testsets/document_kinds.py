"""The kinds of documents: how the text of each is read, within limits."""

from __future__ import annotations

import io
import logging
import re
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email import policy
from email.parser import BytesParser
from functools import cache
from typing import Any

from rageval_hooks.errors import RagevalError, requires
from rageval_hooks.offline.limits import ARCHIVE, PDF, TEXT, read_whole
from rageval_hooks.offline.records.formats import BadRow, SourceFile, inner_suffix
from rageval_hooks.offline.records.formats.excel import check_archive
from rageval_hooks.offline.records.formats.json_files import JsonLines
from rageval_hooks.runtime.jsonable import Data, Text

_SPLIT = "split it, or convert it to text"

_MOST_PAGES = 5000
_MOST_CHARACTERS = 20_000_000
_MOST_SECONDS = 120.0

_ARCHIVES = (".docx", ".pptx", ".xlsx", ".epub")
_HEADERS = ("Subject", "From", "To", "Date")

_TEXTS = ("text", "content", "page_content", "body")
_IDS = ("id", "_id", "chunk_id")
_NAMES = ("document", "source", "file_name", "title")

# A heading of reStructuredText with its underline, with or without the same line above it:
#     Installation
#     ============
_HEADING = re.compile(
    r"^(?:(?P<over>[=\-~^\"'`#*+:.<>_])(?P=over){2,}[ \t]*\n)?"
    r"(?P<title>[^\s].*)\n(?P<under>[=\-~^\"'`#*+:.<>_])(?P=under){2,}[ \t]*$",
    re.MULTILINE,
)


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


@dataclass(frozen=True)
class Problem:
    """A file, or a part of one, that could not be read, and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        """Return both in a line."""
        return f"{self.where}: {self.reason}"


class UnreadableDocumentError(RagevalError):
    """A file cannot be read; the message says why."""


Found = Document | Problem
Reader = Callable[[SourceFile, str], Iterator[Found]]
"""Yields the documents of a file, which gets a name, and the parts of it that could not be read.

It raises :class:`RagevalError` if nothing of it can be read.
"""


def _read_text(file: SourceFile, name: str) -> Iterator[Found]:
    with file.open_text() as source:
        text = read_whole(source, TEXT, "it", "split it")
    is_rst = ".rst" in [suffix.lower() for suffix in file.path.suffixes]
    yield Document(name=name, text=_with_markdown_headings(text) if is_rst else text)


def _with_markdown_headings(text: str) -> str:
    """Return reStructuredText with its headings as Markdown has them, so that chunks begin at headings.

    The first style of underline that occurs is the first level, as docutils has it.
    """
    levels: dict[str, int] = {}

    def heading(found: re.Match[str]) -> str:
        # An underline that is shorter than its title is no heading: it may be a list or a transition.
        if len(found[0].rstrip().rpartition("\n")[2].strip()) < len(found["title"].rstrip()):
            return found[0]
        style = (found["over"] or "") + found["under"]
        level = levels.setdefault(style, len(levels) + 1)
        return f"\n{'#' * min(level, 6)} {found['title'].strip()}\n"

    return _HEADING.sub(heading, text.replace("\r\n", "\n"))


def _read_json_lines(file: SourceFile, name: str) -> Iterator[Found]:
    """Yield a document per line. A line with an id is a chunk of a store, in which ``run`` will find it by this id."""
    for row in JsonLines().read(file):
        where = f"{name}, line {row.line}"
        if isinstance(row, BadRow):
            yield Problem(where=where, reason=row.reason)
            continue
        text = next((row.data[key] for key in _TEXTS if isinstance(row.data.get(key), str)), None)
        if text is None:
            found = ", ".join(map(str, row.data)) or "nothing"
            yield Problem(where=where, reason=f"it has no text under one of {', '.join(_TEXTS)}; found: {found}")
            continue
        if not text.strip():
            yield Problem(where=where, reason="its text is empty")
            continue
        identifier, document = (
            next((str(row.data[key]) for key in keys if row.data.get(key) not in (None, "")), None)
            for keys in (_IDS, _NAMES)
        )
        # Lines without a name and an id are told apart by their number.
        own_name = name if identifier is not None else f"{name}:{row.line}"
        yield Document(name=own_name if document is None else document, text=text, id=identifier)


def _content(file: SourceFile, limit: int, advice: str = "split it") -> bytes:
    with file.open() as source:
        return read_whole(source, limit, "it", advice)


def _read_mail(file: SourceFile, name: str) -> Iterator[Found]:
    """Yield a message: its headers that matter, and the plain text or the HTML. Attachments are ignored."""
    message = BytesParser(policy=policy.default).parsebytes(_content(file, TEXT))
    # The plain text is the sender's; HTML has the layout around it.
    body = message.get_body(("plain", "html"))
    if body is None:
        raise UnreadableDocumentError("it has no text")
    text = str(body.get_content())
    if body.get_content_subtype() == "html":
        text = _as_markdown(io.BytesIO(text.encode()), ".html", "utf-8")
    headers = [f"{header}: {message[header]}" for header in _HEADERS if message[header]]
    yield Document(name=name, text="\n".join(headers) + "\n\n" + text.strip())


def _read_office(file: SourceFile, name: str) -> Iterator[Found]:
    """Yield a document as Markdown, by MarkItDown."""
    suffix = inner_suffix(file.path)
    if suffix in _ARCHIVES:
        # Of a file that is no archive MarkItDown would return the bytes as text.
        try:
            with file.open() as archive:
                check_archive(archive, ARCHIVE, "it")
        except zipfile.BadZipFile:
            raise UnreadableDocumentError(f"it is not a {suffix} file") from None
    content = _content(file, ARCHIVE if suffix in _ARCHIVES else TEXT)
    charset = file.encoding.replace("-sig", "") if suffix in (".html", ".htm") else None
    yield Document(name=name, text=_as_markdown(io.BytesIO(content), suffix, charset))


def _as_markdown(content: io.BytesIO, suffix: str, charset: str | None) -> str:
    """Return a document as Markdown.

    Raises:
        UnreadableDocumentError: MarkItDown cannot read it.
        MissingDependencyError: MarkItDown is not installed.
    """
    converter = _converter()
    from markitdown import StreamInfo
    from markitdown._exceptions import MarkItDownException

    try:
        found = converter.convert_stream(content, stream_info=StreamInfo(extension=suffix, charset=charset))
    except (MarkItDownException, ValueError, KeyError, OSError, AttributeError) as error:
        reason = str(error).strip().splitlines()
        raise UnreadableDocumentError(f"MarkItDown cannot read it: {reason[-1] if reason else error!r}") from error
    return str(found.markdown)


@cache
def _converter() -> Any:
    with requires("markitdown", "documents", "reading HTML and Office documents"):
        from markitdown import MarkItDown
    # Its plug-ins and its requests to the network stay off.
    return MarkItDown(enable_plugins=False)


def _read_pdf(file: SourceFile, name: str) -> Iterator[Found]:
    """Yield the text of all pages, by pypdf."""
    with requires("pypdf", "offline", "reading PDF"):
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    content = _content(file, PDF, _SPLIT)
    with _quiet("pypdf"):
        try:
            reader = PdfReader(io.BytesIO(content))
            # Many PDFs are encrypted with an empty password to forbid printing.
            if reader.is_encrypted and not reader.decrypt(""):
                raise UnreadableDocumentError("it is locked by a password: save it without one")
            pages = _texts_of(reader.pages)
        except DependencyError as error:
            raise UnreadableDocumentError(f"its encryption needs another package: {error}") from error
        # pypdf raises these for damaged files.
        except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UnreadableDocumentError(f"it is not a readable PDF ({type(error).__name__}: {error})") from error
    text = "\n\n".join(page.strip() for page in pages if page.strip())
    if not text:
        raise UnreadableDocumentError(
            f"its {len(pages)} pages have no text: they may be pictures, and need text recognition (OCR) first"
        )
    yield Document(name=name, text=text)


def _texts_of(pages: Sequence[Any]) -> list[str]:
    """Return the text of each page, within limits: a small file can hold very much text."""
    if len(pages) > _MOST_PAGES:
        raise UnreadableDocumentError(f"it has {len(pages)} pages, more than {_MOST_PAGES}: {_SPLIT}")
    texts: list[str] = []
    size, end = 0, time.monotonic() + _MOST_SECONDS
    for page in pages:
        texts.append(page.extract_text())
        size += len(texts[-1])
        if size > _MOST_CHARACTERS:
            raise UnreadableDocumentError(f"it has more than {_MOST_CHARACTERS:,} characters of text: {_SPLIT}")
        if time.monotonic() > end:
            raise UnreadableDocumentError(f"reading it takes more than {_MOST_SECONDS:g} s: {_SPLIT}")
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


KINDS: dict[str, Reader] = {
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".mdx", ".rst", ".adoc", ".org"), _read_text),
    **dict.fromkeys((".jsonl", ".ndjson"), _read_json_lines),
    **dict.fromkeys((".html", ".htm", ".docx", ".pptx", ".xlsx", ".epub", ".ipynb"), _read_office),
    ".pdf": _read_pdf,
    ".eml": _read_mail,
}
"""How names of such files end, without the suffix of a compression → what reads them."""
