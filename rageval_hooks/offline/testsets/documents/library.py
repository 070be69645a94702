"""Finds the documents in files and folders, and says of every other file why it was skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from rageval_hooks.errors import ConfigurationError, MissingDependencyError, RagevalError
from rageval_hooks.offline.records.formats import SourceFile
from rageval_hooks.offline.testsets.documents.base import Document, DocumentReader, inner_suffix
from rageval_hooks.runtime.jsonable import clean_text

__all__ = ["Library", "Problem", "kinds", "read_documents"]

_PACKAGE = "rageval_hooks.offline.testsets.documents"
_EXAMPLES = 3


@dataclass(frozen=True)
class Problem:
    """A file, or a part of one, that could not be read, and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        """Return both in a line."""
        return f"{self.where}: {self.reason}"


@dataclass
class Library:
    """The documents that were found, and the problems.

    Attributes:
        documents: in the order of the given paths; within folders, by name.
        problems: what could not be read.
        skipped: files of folders that are no documents, with the reason.
    """

    documents: list[Document] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    skipped: list[Problem] = field(default_factory=list)

    def skipped_lines(self) -> Iterator[str]:
        """Yield a line per reason for skipped files, with how many there are and some of them."""
        counts = Counter(problem.reason for problem in self.skipped)
        # A folder may have thousands of files of other kinds: a line for each would hide the others.
        for reason, count in counts.most_common():
            names = [problem.where for problem in self.skipped if problem.reason == reason]
            more = ", …" if count > _EXAMPLES else ""
            yield f"skipped {count}: {reason} ({', '.join(names[:_EXAMPLES])}{more})"


@cache
def _readers() -> dict[str, DocumentReader]:
    found: dict[str, DocumentReader] = {}
    for info in iter_modules(import_module(_PACKAGE).__path__):
        module = import_module(f"{_PACKAGE}.{info.name}")
        readers = [kind() for kind in vars(module).values() if _is_reader(kind, module.__name__)]
        for reader in readers:
            found.update(dict.fromkeys(reader.suffixes, reader))
    return found


def _is_reader(value: object, module: str) -> bool:
    if not isinstance(value, type) or not issubclass(value, DocumentReader):
        return False
    return value.__module__ == module and hasattr(value, "suffixes")


def kinds() -> list[str]:
    """Return the suffixes of all files that are read, without those of compressed files."""
    return sorted(_readers())


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
        for file in _files(path):
            if file.resolve() not in others:
                _read_in_folder(file, path, library, encoding)
    return library


def _read_in_folder(file: Path, folder: Path, library: Library, encoding: str | None) -> None:
    name = file.relative_to(folder).as_posix()
    # A link could lead to a key or to another user's files, whose text would be sent to the judge.
    if not file.resolve().is_relative_to(folder.resolve()):
        library.skipped.append(Problem(name, "a symbolic link out of the folder is not followed"))
        return
    # Folders hold files of other kinds. A file that the user named is a problem if it cannot be read.
    if inner_suffix(file) in _readers():
        _read(file, name, library, encoding)
    else:
        suffix = inner_suffix(file) or "a file without a suffix"
        library.skipped.append(Problem(name, f"{suffix} is not read"))


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        # `.git` and `.venv` hold thousands of files that are no documents.
        hidden = "/." in f"/{path.relative_to(folder).as_posix()}"
        if not hidden and path.is_file():
            yield path


def _read(path: Path, name: str, library: Library, encoding: str | None) -> None:
    reader = _readers().get(inner_suffix(path))
    if reader is None:
        reason = f"files that end in {path.suffix or 'nothing'!r} are not read; those in {', '.join(kinds())} are"
        library.problems.append(Problem(name, reason))
        return
    try:
        with SourceFile(path, encoding) as file:
            for found in reader.read(file, name):
                if isinstance(found, Document):
                    _keep(found, library)
                else:
                    library.problems.append(Problem(found.where, found.reason))
    # These concern every file of the kind, so the command ends with the message.
    except (MissingDependencyError, ConfigurationError):
        raise
    except (OSError, EOFError, RagevalError) as error:
        library.problems.append(Problem(name, getattr(error, "strerror", None) or str(error)))


def _keep(document: Document, library: Library) -> None:
    # Lone surrogates and null bytes are not valid in JSON or in a request.
    text = clean_text(document.text).replace("\r\n", "\n").replace("\x00", "")
    if text.strip():
        library.documents.append(document.model_copy(update={"text": text}))
    else:
        library.problems.append(Problem(document.name, "it is empty"))
