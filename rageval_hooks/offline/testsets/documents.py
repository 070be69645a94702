"""Finds the documents in files and folders, and says of every other file why it was skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rageval_hooks.errors import ConfigurationError, MissingDependencyError, RagevalError
from rageval_hooks.offline.records.formats import SourceFile, inner_suffix
from rageval_hooks.offline.testsets.document_kinds import KINDS, Document, Problem
from rageval_hooks.runtime.jsonable import clean_text

_EXAMPLES = 3


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
                library.skipped.append(Problem(name, "a symbolic link out of the folder is not followed"))
            # Folders hold files of other kinds. A file that the user named is a problem if it cannot be read.
            elif inner_suffix(file) in KINDS:
                _read(file, name, library, encoding)
            else:
                suffix = inner_suffix(file) or "a file without a suffix"
                library.skipped.append(Problem(name, f"{suffix} is not read"))
    return library


def _read(path: Path, name: str, library: Library, encoding: str | None) -> None:
    reader = KINDS.get(inner_suffix(path))
    if reader is None:
        known = ", ".join(sorted(KINDS))
        reason = f"files that end in {path.suffix or 'nothing'!r} are not read; those in {known} are"
        library.problems.append(Problem(name, reason))
        return
    try:
        file = SourceFile(path, encoding)
        with file.reading():
            for found in reader(file, name):
                if not isinstance(found, Document):
                    library.problems.append(found)
                    continue
                # Lone surrogates and null bytes are not valid in JSON or in a request.
                text = clean_text(found.text).replace("\r\n", "\n").replace("\x00", "")
                if text.strip():
                    library.documents.append(found.model_copy(update={"text": text}))
                else:
                    library.problems.append(Problem(found.name, "it is empty"))
    # These concern every file of the kind, so the command ends with the message.
    except (MissingDependencyError, ConfigurationError):
        raise
    except (OSError, EOFError, RagevalError) as error:
        library.problems.append(Problem(name, getattr(error, "strerror", None) or str(error)))
