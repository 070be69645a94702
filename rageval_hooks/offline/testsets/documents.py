"""Documents from files and folders: text, Markdown, PDF, and JSON lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError, MissingDependencyError, RagevalError
from rageval_hooks.runtime.jsonable import Data, Text, clean_text

__all__ = ["KINDS", "Document", "Library", "Problem", "read_documents"]

KINDS = (".txt", ".text", ".md", ".markdown", ".rst", ".pdf", ".jsonl", ".ndjson")
"""Endings of the files that are read."""

TEXT_FIELDS = ("text", "content", "page_content", "body")
ID_FIELDS = ("id", "_id", "chunk_id")
NAME_FIELDS = ("document", "source", "file_name", "title")


class Document(Data):
    """A text to ask about.

    Attributes:
        name: how it is named in the test set: its path below the folder that was given.
        text: all of it.
        id: given where it is a chunk already, as a line of JSON with an ``id`` is: then it is not cut.
    """

    name: Text
    text: Text
    id: Text | None = None


@dataclass(frozen=True)
class Problem:
    """A file, or a line of one, that could not be read, and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        """Return both, as a line."""
        return f"{self.where}: {self.reason}"


@dataclass
class Library:
    """What was found.

    Attributes:
        documents: in the order of the paths that were given, folders by name.
        problems: what could not be read.
        passed_over: files of folders that are of no kind that is read.
    """

    documents: list[Document] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    passed_over: int = 0


def read_documents(paths: Iterable[Path], *, leave_out: Iterable[Path] = ()) -> Library:
    """Read files, and what folders hold at any depth; hidden files and folders are left out.

    What cannot be read is a problem and does not stop the rest.

    Args:
        paths: of files and folders.
        leave_out: files that are none of a folder's documents, such as what is written into it.

    Raises:
        ConfigurationError: there is no such file or folder.
        MissingDependencyError: there is a PDF, and nothing that reads it.
    """
    library = Library()
    others = {path.resolve() for path in leave_out}
    for path in paths:
        if not path.exists():
            raise ConfigurationError(f"there is no file or folder {str(path)!r}")
        if path.is_file():
            _read(path, path.name, library)
            continue
        for file in _files(path, library):
            if file.resolve() not in others:
                _read(file, file.relative_to(path).as_posix(), library)
    return library


def _files(folder: Path, library: Library) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts) or not path.is_file():
            continue
        if path.suffix.lower() in KINDS:
            yield path
        else:
            library.passed_over += 1


def _read(path: Path, name: str, library: Library) -> None:
    read = _READERS.get(path.suffix.lower())
    if read is None:
        reason = f"files that end in {path.suffix or 'nothing'!r} are not read; those in {', '.join(KINDS)} are"
        library.problems.append(Problem(name, reason))
        return
    try:
        with _quiet("pypdf"):
            read(path, name, library)
    except MissingDependencyError:
        raise
    except UnicodeDecodeError as error:
        library.problems.append(Problem(name, f"it is not UTF-8 (byte {error.start}): save it in that encoding"))
    except (OSError, RagevalError) as error:
        library.problems.append(Problem(name, getattr(error, "strerror", None) or str(error)))


def _add(text: str, name: str, library: Library) -> None:
    text = clean_text(text).replace("\r\n", "\n").replace("\x00", "")
    if text.strip():
        library.documents.append(Document(name=name, text=text))
    else:
        library.problems.append(Problem(name, "it is empty"))


def _read_text(path: Path, name: str, library: Library) -> None:
    _add(path.read_text(encoding="utf-8-sig"), name, library)


def _read_pdf(path: Path, name: str, library: Library) -> None:
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    except ImportError as error:
        raise MissingDependencyError("pypdf", "offline", "reading PDF") from error

    try:
        reader = PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            library.problems.append(Problem(name, "it is locked by a password: save it without one"))
            return
        pages = [page.extract_text() for page in reader.pages]
    except DependencyError as error:
        library.problems.append(Problem(name, f"it is encrypted in a way that needs another package: {error}"))
        return
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        library.problems.append(Problem(name, f"it is no PDF that can be read ({type(error).__name__}: {error})"))
        return
    text = "\n\n".join(page.strip() for page in pages if page.strip())
    if text:
        _add(text, name, library)
    else:
        reason = f"its {len(pages)} pages have no text: they may be pictures, and need text recognition (OCR) first"
        library.problems.append(Problem(name, reason))


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a library from logging what we say of each file."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _read_lines(path: Path, name: str, library: Library) -> None:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                library.documents.append(_document(json.loads(line), name, number))
            except RecursionError:
                library.problems.append(Problem(f"{name}, line {number}", "it is nested too deeply"))
            except ValueError as error:
                reason = f"it is no JSON ({error})" if isinstance(error, json.JSONDecodeError) else str(error)
                library.problems.append(Problem(f"{name}, line {number}", reason))


def _document(row: Any, file: str, number: int) -> Document:
    if not isinstance(row, dict):
        raise ValueError(f"it is no JSON object, but a {type(row).__name__}")
    text = next((row[key] for key in TEXT_FIELDS if isinstance(row.get(key), str)), None)
    if text is None:
        found = ", ".join(map(str, row)) or "nothing"
        raise ValueError(f"it has no text under one of {', '.join(TEXT_FIELDS)}; found: {found}")
    if not text.strip():
        raise ValueError("its text is empty")
    identifier = next((str(row[key]) for key in ID_FIELDS if row.get(key) not in (None, "")), None)
    name = next((str(row[key]) for key in NAME_FIELDS if row.get(key) not in (None, "")), None)
    if name is None:
        name = file if identifier is not None else f"{file}:{number}"
    return Document(name=name, text=text, id=identifier)


_READERS: dict[str, Callable[[Path, str, Library], None]] = {
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".rst"), _read_text),
    ".pdf": _read_pdf,
    **dict.fromkeys((".jsonl", ".ndjson"), _read_lines),
}
