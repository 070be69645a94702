"""The outputs of a command: protected from being overwritten, and reused where they can be; the rows left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.jobs.journal import FORMAT, file_hash, journal_path, work_in
from rageval_hooks.offline.records import BadRow
from rageval_hooks.offline.records.writing import atomic_file, check_place
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.runtime.jsonable import plain_value


def errors_path(output: Path) -> Path:
    """Return the default file for rows that could not be used."""
    return output.with_name(f"{output.name}.errors.jsonl")


def done_path(output: Path) -> Path:
    """Return the file that says how a finished output was made."""
    return output.with_name(f"{output.name}.done.jsonl")


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
    # A typing error such as `-o answers.jsonl` for the input would destroy the answers.
    taken = {path.resolve() for path in inputs}
    for path in dict.fromkeys((*outputs, journal_path(outputs[0]), *([errors] if errors else []))):
        if path.resolve() in taken:
            raise ConfigurationError(f"{path} would overwrite an input or another output: name another output")
        taken.add(path.resolve())
    if errors is not None:
        check_place("--errors", errors)


@dataclass(frozen=True)
class EarlierResult:
    """The outputs of an earlier run of the same command.

    Attributes:
        work: what decided on its results.
        changed: names of those parts of the work that are different now.
    """

    work: Mapping[str, Any]
    changed: tuple[str, ...]


def mark_finished(outputs: Sequence[Path], work: Mapping[str, Any], *, journal: Path | None = None) -> None:
    """Note how finished outputs were made, next to the first of them.

    Args:
        outputs: the files, which are written.
        work: what decides on the results.
        journal: a journal to keep, so that a larger run reuses its results; by default only the work is noted.
    """
    done = done_path(outputs[0])
    # A changed output is recognized by its hash, so that corrections by hand are not overwritten.
    digests = {output.name: file_hash(output) for output in outputs}
    line = json.dumps({"finished": digests}).encode() + b"\n"
    # `generate` keeps its journal: a larger test set reuses the answers. `score` reuses the output itself.
    if journal is None:
        header = json.dumps({"rageval_journal": FORMAT, "work": work}).encode() + b"\n"
        done.write_bytes(header + line)
        return
    with open(journal, "ab") as file:
        file.write(line)
    journal.replace(done)


def earlier_result(outputs: Sequence[Path], work: Mapping[str, Any]) -> EarlierResult | None:
    """Return what an earlier run left in the outputs; None if it is free to write them.

    They are free if none of them exists, or if an interrupted run is to be resumed.

    Args:
        outputs: what is to be written.
        work: what decides on the results now.

    Raises:
        ConfigurationError: an output exists, but another command wrote it, or it was changed since.
    """
    # An interrupted run leaves a journal, and is resumed with whatever outputs exist.
    existing = [output for output in outputs if output.exists()]
    if not existing or journal_path(outputs[0]).exists():
        return None
    try:
        first, *_, last = done_path(outputs[0]).read_bytes().splitlines()
        before, digests = work_in(first), dict(json.loads(last)["finished"])
    except (OSError, ValueError, KeyError, TypeError):
        before, digests = {}, {}
    for output in existing:
        why = ""
        if output.name not in digests or before.get("command") != work.get("command"):
            why = "it exists already, and this command did not write it"
        # The user may have added labels by hand.
        elif file_hash(output) != digests[output.name]:
            why = "it was changed after it was written"
        if why:
            raise ConfigurationError(
                f"{output} would be overwritten: {why}. Name another output, or give --restart to replace it"
            )
    # JSON turns tuples into lists. Only what went through JSON can be compared with what was read.
    now = json.loads(json.dumps(work))
    return EarlierResult(before, tuple(name for name in now if before.get(name) != now[name]))


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
        self.path = path
        self.count = 0
        self.first: BadRow | None = None
        self._privacy = privacy
        self._always = always
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Return the writer itself."""
        # A file that the user named is expected by scripts, also without bad rows.
        if self._always:
            self._open()
        return self

    def add(self, bad: BadRow) -> None:
        """Write a row."""
        self.first = self.first or bad
        self.count += 1
        entry = self._privacy.data({"line": bad.line, "reason": bad.reason, "row": plain_value(bad.raw)})
        self._open().write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")

    def __exit__(self, *error: Any) -> None:
        """Put the file in place; after an exception, change nothing."""
        self._stack.__exit__(*error)
        if error[0] is None and self._file is None:
            self.path.unlink(missing_ok=True)  # of an earlier run

    def _open(self) -> IO[bytes]:
        if self._file is None:
            self._file = self._stack.enter_context(atomic_file(self.path))
        return self._file
