"""Documents for test sets: the text of files and folders, and of every other file the reason why it was skipped."""

from __future__ import annotations

import io
import logging
import re
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError, MissingDependencyError, RagevalError, requires
from rageval_hooks.offline.input_sizes import ARCHIVE, PDF, TEXT, check_archive, read_whole
from rageval_hooks.offline.records.formats import BadRow, SourceFile, inner_suffix
from rageval_hooks.offline.records.formats.json_files import JsonLines
from rageval_hooks.runtime.jsonable import Data, Text, clean_text

_EXAMPLES = 3

_ARCHIVES = (".docx", ".pptx", ".xlsx", ".epub")

_TEXTS = ("text", "content", "page_content", "body")
_IDS = ("id", "_id", "chunk_id")
_NAMES = ("document", "source", "file_name", "title")

# Names of glyphs in place of letters: "/g12/g7", "(cid:12)"
_GLYPHS = re.compile(r"/(?:g|c|cid|index|glyph)\d+|\(cid:\d+\)", re.IGNORECASE)
_MAX_ODD_SHARE = 0.1


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


@dataclass
class Library:
    """The documents that were found, and the problems.

    Attributes:
        documents: in the order of the given paths; within folders, by name.
        problems: what could not be read, and why.
        skipped: reason → files of folders that are no documents.
    """

    documents: list[Document] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    skipped: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def skipped_lines(self) -> Iterator[str]:
        """Yield a line per reason for skipped files, with how many there are and some of them."""
        # A folder may have thousands of files of other kinds: a line for each would hide the others.
        for reason, found in sorted(self.skipped.items(), key=lambda item: -len(item[1])):
            more = ", …" if len(found) > _EXAMPLES else ""
            yield f"skipped {len(found)}: {reason} ({', '.join(found[:_EXAMPLES])}{more})"


def read_documents(paths: Iterable[Path], *, exclude: Iterable[Path] = (), encoding: str | None = None) -> Library:
    """Read files, and folders at any depth. Hidden files and folders are ignored, and so are links out of a folder.

    A file that cannot be read is a problem, and does not stop the rest.

    Args:
        paths: files and folders.
        exclude: files that are not documents, such as outputs within a folder.
        encoding: of text files; None to detect it.

    Raises:
        ConfigurationError: there is no such file or folder.
        MissingDependencyError: a file needs a package that is not installed.
    """
    library = Library()
    # An output in the folder of documents is not a document of the next run.
    others = {path.resolve() for path in exclude}
    for path in paths:
        if not path.exists():
            raise ConfigurationError(f"there is no file or folder {str(path)!r}")
        if path.is_file():
            _read(path, path.name, library, encoding)
            continue
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path).as_posix()
            # `.git` and `.venv` hold thousands of files that are no documents.
            if "/." in f"/{name}" or not file.is_file() or file.resolve() in others:
                continue
            # A link could lead to a key or to another user's files, whose text would be sent to the judge.
            if not file.resolve().is_relative_to(path.resolve()):
                library.skipped["a symbolic link out of the folder is not followed"].append(name)
            # Folders hold files of other kinds. A file that the user named is a problem if it cannot be read.
            elif (suffix := inner_suffix(file)) in KINDS:
                _read(file, name, library, encoding)
            else:
                library.skipped[f"{suffix or 'a file without a suffix'} is not read"].append(name)
    return library


def _read(path: Path, name: str, library: Library, encoding: str | None) -> None:
    reader = KINDS.get(inner_suffix(path))
    if reader is None:
        known = ", ".join(sorted(KINDS))
        ending = path.suffix or "nothing"
        library.problems.append(f"{name}: files that end in {ending!r} are not read; those in {known} are")
        return
    try:
        file = SourceFile(path, encoding)
        with file.reading():
            for found in reader(file, name):
                if isinstance(found, str):
                    library.problems.append(found)
                    continue
                # Lone surrogates and null bytes are not valid in JSON or in a request.
                text = clean_text(found.text).replace("\r\n", "\n").replace("\x00", "")
                if text.strip():
                    library.documents.append(found.model_copy(update={"text": text}))
                else:
                    library.problems.append(f"{found.name}: it is empty")
    # These concern every file of the kind, so the command ends with the message.
    except (MissingDependencyError, ConfigurationError):
        raise
    except (OSError, EOFError, RagevalError) as error:
        library.problems.append(f"{name}: {getattr(error, 'strerror', None) or error}")


# --------------------------------------------------------------------------- kinds of files


def _read_text(file: SourceFile, name: str) -> Iterator[Document]:
    with file.open_text() as source:
        yield Document(name=name, text=read_whole(source, TEXT, "it", "split it"))


def _read_json_lines(file: SourceFile, name: str) -> Iterator[Document | str]:
    """Yield a document per line. A line with an id is a chunk of a store, in which ``run`` will find it by this id."""
    for row in JsonLines().read(file):
        where = f"{name}, line {row.line}"
        if isinstance(row, BadRow):
            yield f"{where}: {row.reason}"
            continue
        text = next((row.data[key] for key in _TEXTS if isinstance(row.data.get(key), str)), None)
        if text is None:
            found = ", ".join(map(str, row.data)) or "nothing"
            yield f"{where}: it has no text under one of {', '.join(_TEXTS)}; found: {found}"
        elif not text.strip():
            yield f"{where}: its text is empty"
        else:
            identifier, document = first_given(row.data, _IDS), first_given(row.data, _NAMES)
            # Lines without a name and an id are told apart by their number.
            own_name = name if identifier is not None else f"{name}:{row.line}"
            yield Document(name=own_name if document is None else document, text=text, id=identifier)


def first_given(values: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the first value with one of some names that is neither None nor empty, as a text; None without one."""
    return next((str(values[name]) for name in names if values.get(name) not in (None, "")), None)


def _read_office(file: SourceFile, name: str) -> Iterator[Document]:
    """Yield a document as Markdown, by MarkItDown."""
    suffix = inner_suffix(file.path)
    is_archive = suffix in _ARCHIVES
    with file.open() as source:
        if is_archive:
            # Of a file that is no archive MarkItDown would return the bytes as text.
            try:
                check_archive(source, ARCHIVE, "it")
            except zipfile.BadZipFile:
                raise RagevalError(f"it is not a {suffix} file") from None
        content = read_whole(source, ARCHIVE if is_archive else TEXT, "it", "split it")
    converter = _converter()
    from markitdown import StreamInfo
    from markitdown._exceptions import MarkItDownException

    charset = file.encoding.replace("-sig", "") if suffix in (".html", ".htm") else None
    about = StreamInfo(extension=suffix, charset=charset)
    try:
        text = converter.convert_stream(io.BytesIO(content), stream_info=about).markdown
    except (MarkItDownException, ValueError, KeyError, OSError, AttributeError) as error:
        reason = str(error).strip().splitlines()
        raise RagevalError(f"MarkItDown cannot read it: {reason[-1] if reason else error!r}") from error
    yield Document(name=name, text=text)


@cache
def _converter() -> Any:
    with requires("markitdown", "documents", "reading HTML and Office documents"):
        from markitdown import MarkItDown, converters
    # Its other converters would take the archive of a damaged document, or its bytes, for the text.
    converter = MarkItDown(enable_builtins=False)
    for kind in ("Docx", "Epub", "Html", "Ipynb", "Pptx", "Xlsx"):
        converter.register_converter(getattr(converters, f"{kind}Converter")())
    return converter


def _read_pdf(file: SourceFile, name: str) -> Iterator[Document | str]:
    """Yield the text of all pages, by pypdf."""
    with requires("pypdf", "offline", "reading PDF"):
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    with file.open() as source:
        content = read_whole(source, PDF, "it", "split it, or convert it to text")
    # What pypdf logs of a damaged file, the list of problems says.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(content))
        # Many PDFs are encrypted with an empty password to forbid printing.
        if reader.is_encrypted and not reader.decrypt(""):
            raise RagevalError("it is locked by a password: save it without one")
        texts = [(page.extract_text().strip(), _fonts_of(page)) for page in reader.pages]
    # pypdf raises these for damaged files, and the first for an encryption that needs another package.
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RagevalError(f"it is not a readable PDF ({type(error).__name__}: {error})") from error
    pages = [text for text, fonts in texts if _is_decoded(text, fonts)]
    if undecoded := len(texts) - len(pages):
        reason = (
            f"the fonts of {undecoded} of its {len(texts)} pages cannot be decoded: text recognition (OCR) reads them"
        )
        if not any(pages):
            raise RagevalError(reason)
        yield f"{name}: {reason}"
    if not any(pages):
        raise RagevalError(
            f"its {len(pages)} pages have no text: they may be pictures, and need text recognition (OCR) first"
        )
    yield Document(name=name, text="\n\n".join(filter(None, pages)))


def _fonts_of(page: Any) -> list[Mapping[str, Any]]:
    try:
        return [font.get_object() for font in page["/Resources"]["/Font"].values()]
    except KeyError:  # a page of pictures
        return []


def _is_decoded(text: str, fonts: Sequence[Mapping[str, Any]]) -> bool:
    """Return False for a page whose text is numbers of glyphs: its fonts do not say which letters these are."""
    odd = sum(map(len, _GLYPHS.findall(text)))
    odd += sum(letter == "\ufffd" or unicodedata.category(letter) in ("Cc", "Cn", "Co") for letter in text)
    # Line breaks are in the category Cc, too.
    odd -= sum(map(text.count, "\n\r\t"))
    return odd <= _MAX_ODD_SHARE * len(text) and not (text and fonts and all(map(_lacks_letters, fonts)))


def _lacks_letters(font: Mapping[str, Any]) -> bool:
    # The codes of such a font are positions in a file of glyphs.
    is_composite = font.get("/Subtype") == "/Type0" and str(font.get("/Encoding")).startswith("/Identity")
    return is_composite and "/ToUnicode" not in font


KINDS: dict[str, Callable[[SourceFile, str], Iterator[Document | str]]] = {
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".mdx", ".rst", ".adoc", ".org"), _read_text),
    **dict.fromkeys((".jsonl", ".ndjson"), _read_json_lines),
    **dict.fromkeys((".html", ".htm", ".docx", ".pptx", ".xlsx", ".epub", ".ipynb"), _read_office),
    ".pdf": _read_pdf,
}
"""How names of such files end, without the suffix of a compression → what reads them.

A reader yields the documents of a file, which gets a name, and the parts of it that could not be read. It raises
:class:`RagevalError` if nothing of it can be read.
"""
