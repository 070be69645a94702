"""The files of a command that can be interrupted: its journal, its finished outputs, and the rows that it cannot use.

The journal has the results as JSON lines, next to the first output; an interrupted run is resumed from it. When the
outputs are complete, a note next to them says how they were made, so that the same command does nothing and another
one does not overwrite them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Self

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.records.formats import BadRow, FileFormat
from rageval_hooks.offline.records.writing import atomic_file, check_output, check_place
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.files import open_private
from rageval_hooks.runtime.jsonable import plain_value

FORMAT = 3
"""Version of journals."""

REPLACE = "name another output, or give --restart to replace it"
"""What to do about a finished output that is in the way, for messages."""

_BEGINNING = b'{"rageval_journal": '
_FINISHED = b'{"finished": '
_DATA = b',"data":'
_SYNC_SECONDS = 1.0


def journal_path(output: Path) -> Path:
    """Return the path of an output's journal."""
    return output.with_name(f"{output.name}.partial.jsonl")


def done_path(output: Path) -> Path:
    """Return the file that says how a finished output was made."""
    return output.with_name(f"{output.name}.done.jsonl")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Journal:
    """Results by key, in an append-only file: a line that describes the work, then a line for each result.

    Only keys and positions are held in memory. An appended line reaches the operating system at once, and the disk
    about a second later. An incomplete last line, which a killed process leaves, is removed. At the end of a ``with``
    block the file is closed, and kept if it holds a result.

    Args:
        path: the file, created if it does not exist; None to keep everything in memory.
        work: what decides on the results, as JSON-able data. An existing journal is resumed only if its work is equal.
        restart: discard an existing journal.

    Attributes:
        spent: what the newest result says that the judge has used; empty without one.

    Raises:
        ConfigurationError: the journal is of other work or in use by another process, or the file is no journal.
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path | None, work: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self.spent: Mapping[str, Any] = {}
        self._places: dict[str, int] = {}
        self._synced = time.monotonic()
        if path is None:
            self._file: IO[bytes] = io.BytesIO()
            return
        self._file = open(path, "a+b", opener=open_private)  # noqa: SIM115 - closed by __exit__() or remove()
        try:
            with suppress(ImportError):  # Windows
                import fcntl

                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            message = f"another process is writing {path}: wait until it ends, or name another output"
            raise ConfigurationError(message) from None
        try:
            self._resume(path, _as_read(work), restart)
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        """Return True if there is a result under a key."""
        return key in self._places

    def __getitem__(self, key: str) -> Any:
        """Return the newest result under a key."""
        return json.loads(self.raw(key))

    def keys(self) -> Iterable[str]:
        """Return the keys of all results."""
        return self._places.keys()

    def raw(self, key: str) -> bytes:
        """Return the newest result under a key as JSON."""
        # It is cut out of its line: reading the JSON and writing it again takes fifty times as long.
        self._file.seek(self._places[key])
        line = self._file.readline()
        return line[line.index(_DATA) + len(_DATA) : -2]

    def append(self, key: str, data: Any, spent: Mapping[str, Any] | None = None) -> None:
        """Keep a result.

        Args:
            key: its key; an earlier result under the same key is replaced.
            data: the result: JSON-able data, or its JSON as bytes.
            spent: what the judge has used so far; None if there is no judge.
        """
        raw = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode()
        head = json.dumps({"key": key} if spent is None else {"key": key, "spent": spent}).encode()
        self._places[key] = self._append(head[:-1] + _DATA + raw + b"}")
        self.spent = self.spent if spent is None else spent

    def remove(self) -> None:
        """Close the file and delete it."""
        self._file.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Return the journal itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the file; delete it if it holds no result."""
        if not self._places:
            self.remove()
        elif not self._file.closed:
            self._sync()
            self._file.close()

    def _append(self, line: bytes) -> int:
        """Write a line and return its position."""
        # Results are read between writes, which moves the position.
        place = self._file.seek(0, os.SEEK_END)
        self._file.write(line + b"\n")
        self._file.flush()
        # A sync takes milliseconds, too long for every line.
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self._sync()
        return place

    def _sync(self) -> None:
        if self.path is not None:
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def _resume(self, path: Path, work: Mapping[str, Any], restart: bool) -> None:
        """Read keys and positions, and remove what a killed process left incomplete; begin anew if there is nothing.

        Raises:
            ConfigurationError: the file belongs to something else, or is not to be resumed.
        """
        self._file.seek(0)
        first = self._file.readline()
        # A process that was killed at once leaves only the beginning of the first line.
        if not first.startswith(_BEGINNING[: len(first)]):
            raise ConfigurationError(f"{path} is not a journal of rageval-hooks: move it, or name another output")
        before = _work_in(first)
        command = before.get("command", work.get("command"))
        if command != work.get("command"):
            raise ConfigurationError(
                f"{path} belongs to an interrupted rageval-hooks {command}. Run that command again to finish it, "
                "or name another output"
            )
        end = 0
        if first.endswith(b"\n") and not restart:
            if changed := _changed(before, work) if before else ["version of rageval-hooks"]:
                raise ConfigurationError(
                    f"{path} belongs to an interrupted run with another {', '.join(changed)}. "
                    "Run that command again to resume it, or give --restart to discard it"
                )
            end = len(first)
            for line in self._file:
                if not line.startswith(_FINISHED):  # a finished journal that was reopened goes on behind that line
                    try:
                        entry = json.loads(line if line.endswith(b"\n") else b"")
                        key = entry["key"]
                    except (ValueError, KeyError, TypeError):
                        break  # nothing after a damaged line is trusted
                    self._places[key] = end
                    self.spent = entry.get("spent", self.spent)
                end += len(line)
        self._file.truncate(end)
        if not end:
            self._append(_header(work))
            self._sync()


def _header(work: Mapping[str, Any]) -> bytes:
    return json.dumps({"rageval_journal": FORMAT, "work": work}).encode()


def _work_in(line: bytes) -> Mapping[str, Any]:
    """Return the work in the first line of a journal; empty if it is of another version."""
    try:
        header = json.loads(line)
    except ValueError:
        return {}
    work = header.get("work") if header.get("rageval_journal") == FORMAT else None
    return work if isinstance(work, Mapping) else {}


def _as_read(work: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return work as it comes back from a file: JSON turns tuples into lists."""
    found: Mapping[str, Any] = json.loads(json.dumps(work))
    return found


def _changed(before: Mapping[str, Any], work: Mapping[str, Any]) -> list[str]:
    return [name for name in work if before.get(name) != work[name]]


# --------------------------------------------------------------------------- outputs


def check_files(inputs: Iterable[Path], outputs: Sequence[Path], errors: Path | None = None) -> list[FileFormat]:
    """Check, before any work is done, that outputs can be written, and that no input is overwritten.

    Args:
        inputs: what is read.
        outputs: what is written. The journal is next to the first.
        errors: the file of the bad rows, if there is one.

    Returns:
        The formats of the outputs.

    Raises:
        ConfigurationError: the format of an output is not known; an output or the file of the bad rows cannot be
            written; or one of them, or the journal, is an input or one of the others.
    """
    formats = [check_output(path) for path in outputs]
    # A typing error such as `-o answers.jsonl` for the input would destroy the answers.
    taken = {path.resolve() for path in inputs}
    for path in dict.fromkeys((*outputs, journal_path(outputs[0]), *([errors] if errors else []))):
        if path.resolve() in taken:
            raise ConfigurationError(f"{path} would overwrite an input or another output: name another output")
        taken.add(path.resolve())
    if errors is not None:
        check_place("--errors", errors)
    return formats


def mark_finished(outputs: Sequence[Path], work: Mapping[str, Any], *, journal: Path | None = None) -> None:
    """Note how finished outputs were made, next to the first of them.

    Args:
        outputs: the files, which are written.
        work: what decides on the results.
        journal: a journal to keep, so that a larger run reuses its results; by default only the work is noted.
    """
    done = done_path(outputs[0])
    # A changed output is recognized by its hash, so that corrections by hand are not overwritten.
    line = json.dumps({"finished": {output.name: file_hash(output) for output in outputs}}).encode() + b"\n"
    # `generate` keeps its journal: a larger test set reuses the answers. `score` reuses the output itself.
    if journal is None:
        done.write_bytes(_header(work) + b"\n" + line)
        return
    with open(journal, "ab") as file:
        file.write(line)
    journal.replace(done)


def earlier_result(
    outputs: Sequence[Path], work: Mapping[str, Any], *, may_change: Collection[str] = ()
) -> list[str] | None:
    """Return how the work of finished outputs differs from this one; None if this run is free to write them.

    It is free if none of them exists, or if an interrupted run is to be resumed.

    Args:
        outputs: what is to be written.
        work: what decides on the results now.
        may_change: parts of the work that may differ, because the run keeps the results that exist.

    Returns:
        The names of those parts of the work that are different now.

    Raises:
        ConfigurationError: an output exists, but another command wrote it, or it was changed since, or it was made in
            another way.
    """
    # An interrupted run leaves a journal, and is resumed with whatever outputs exist.
    existing = [output for output in outputs if output.exists()]
    if not existing or journal_path(outputs[0]).exists():
        return None
    try:
        first, *_, last = done_path(outputs[0]).read_bytes().splitlines()
        before, digests = _work_in(first), dict(json.loads(last)["finished"])
    except (OSError, ValueError, KeyError, TypeError):
        before, digests = {}, {}
    for output in existing:
        if output.name not in digests or before.get("command") != work.get("command"):
            raise ConfigurationError(f"{output} exists already, and this command did not write it: {REPLACE}")
        # The user may have added labels by hand.
        if file_hash(output) != digests[output.name]:
            raise ConfigurationError(f"{output} was changed after it was written: {REPLACE}")
    changed = _changed(before, _as_read(work))
    if wrong := [name for name in changed if name not in may_change]:
        raise ConfigurationError(f"{outputs[0]} is finished, and was made with another {', '.join(wrong)}: {REPLACE}")
    return changed


def bad_row_line(bad: BadRow, privacy: PrivacyPolicy) -> bytes:
    """Return a row that cannot be used as a line of JSON: ``line``, ``reason``, ``row``; redacted."""
    entry = privacy.data({"line": bad.line, "reason": bad.reason, "row": plain_value(bad.raw)})
    return json.dumps(entry, ensure_ascii=False).encode() + b"\n"


class BadRows:
    """Writes bad rows as JSON Lines. The file exists, complete, once the block ends.

    Args:
        output: the output of the command. The file is next to it by default.
        path: the file that the user named. It is written even if there are no such rows, since scripts expect it.
        privacy: what the file may hold.

    Attributes:
        path: the file.
        count: number of rows so far.
        first: the first of them.
    """

    def __init__(self, output: Path, path: Path | None, privacy: PrivacyPolicy) -> None:
        self.path = path or output.with_name(f"{output.name}.errors.jsonl")
        self.count = 0
        self.first: BadRow | None = None
        self._privacy = privacy
        self._always = path is not None
        self._stack = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Return the writer itself."""
        if self._always:
            self._file = self._stack.enter_context(atomic_file(self.path))
        return self

    def add(self, bad: BadRow) -> None:
        """Write a row."""
        self.first = self.first or bad
        self.count += 1
        if self._file is None:
            self._file = self._stack.enter_context(atomic_file(self.path))
        self._file.write(bad_row_line(bad, self._privacy))

    def __exit__(self, *error: Any) -> None:
        """Put the file in place; after an exception, change nothing."""
        self._stack.__exit__(*error)
        if error[0] is None and self._file is None:
            self.path.unlink(missing_ok=True)  # of an earlier run
