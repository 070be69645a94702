"""The file of the rows that could not be used, and checks that no file is both read and written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.jobs.journal import journal_path
from rageval_hooks.offline.records.files import atomic_file
from rageval_hooks.offline.records.rows import BadRow
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.runtime.jsonable import plain_value

__all__ = ["BadRows", "check_apart", "errors_path"]


def errors_path(output: Path) -> Path:
    """Return the default file for rows that could not be used."""
    return output.with_name(f"{output.name}.errors.jsonl")


def check_apart(inputs: Iterable[Path], outputs: Sequence[Path], errors: Path | None = None) -> None:
    """Check, before any work is done, that no input is overwritten.

    Args:
        inputs: what is read.
        outputs: what is written. The journal is next to the first.
        errors: the file of the bad rows, if there is one.

    Raises:
        ConfigurationError: an output, its journal or the file of the bad rows is an input or one of the others, or
            the file of the bad rows cannot be written.
    """
    read, written = ({path.resolve() for path in paths} for paths in (inputs, outputs))
    # Only the first output has a journal: all outputs are written from it.
    journal = journal_path(outputs[0]).resolve()
    # A typing error such as `-o answers.jsonl` for the input would destroy the answers.
    if read & written:
        name = min(map(str, read & written))
        raise ConfigurationError(f"the output {name} is the input, which would be overwritten: name another output")
    if journal in read | written:
        raise ConfigurationError(f"the journal {journal} would overwrite an input or an output: name another output")
    if errors is not None:
        _check_errors(errors, read | written | {journal})


def _check_errors(errors: Path, others: set[Path]) -> None:
    if errors.resolve() in others:
        raise ConfigurationError(
            f"{errors} cannot take the bad rows: it is the input or an output. Name another file with --errors"
        )
    if errors.is_dir():
        raise ConfigurationError(f"{errors} cannot take the bad rows: it is a folder. Name a file with --errors")
    if not errors.absolute().parent.is_dir():
        raise ConfigurationError(f"--errors: there is no folder {errors.parent}")


class BadRows:
    """Writes bad rows as JSON Lines: ``line``, ``reason``, ``row``. The file exists, complete, once the block ends.

    Args:
        path: the file.
        always: write the file even if there are no such rows; otherwise an older one is deleted.
        privacy: what the file may hold.

    Attributes:
        count: number of rows so far.
        first: the first of them.
    """

    def __init__(self, path: Path, *, always: bool = False, privacy: PrivacyPolicy = NO_PRIVACY) -> None:
        self._privacy = privacy
        self.path = path
        self.count = 0
        self.first: BadRow | None = None
        self._always = always
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def add(self, bad: BadRow) -> None:
        """Write a row."""
        self.first = self.first or bad
        self.count += 1
        found = {"line": bad.line, "reason": bad.reason, "row": plain_value(bad.raw)}
        entry = self._privacy.data(found)
        self._open().write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")

    def __exit__(self, *error: Any) -> None:
        """Put the file in place; after an exception, change nothing."""
        # A file that the user named is expected by scripts, also without bad rows.
        if error[0] is None and self._always:
            self._open()
        self._stack.__exit__(*error)
        if error[0] is None and self._file is None:
            self.path.unlink(missing_ok=True)  # of an earlier run

    def _open(self) -> IO[bytes]:
        if self._file is None:
            self._file = self._stack.enter_context(atomic_file(self.path))
        return self._file
