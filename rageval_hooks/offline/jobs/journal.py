"""The journal of a command: results as JSON lines next to its output, from which an interrupted run is resumed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.runtime.files.private import open_private

__all__ = ["FORMAT", "JournalFile", "file_hash", "interruption", "journal_path", "work_in"]

FORMAT = 2
"""Version of journals."""

_BEGINNING = b'{"rageval_journal": '
_FINISHED = b'{"finished": '
_SYNC_SECONDS = 1.0


def journal_path(output: Path) -> Path:
    """Return the path of an output's journal."""
    return output.with_name(f"{output.name}.partial.jsonl")


def interruption(output: Path, there: Path) -> str:
    """Return the message for an interrupted command.

    Args:
        output: as the user named it.
        there: its absolute path.
    """
    done = f"The results so far are in {journal_path(output)}: run the same command again to resume"
    kept = done if journal_path(there).exists() else "There are no results yet"
    return f"rageval-hooks: interrupted. {kept}"


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 16):
            digest.update(block)
    return digest.hexdigest()


class JournalFile(ABC):
    """An append-only file: a line that describes the work, then a line for each result.

    An appended line reaches the operating system at once, and the disk about a second later. An incomplete last line,
    which a killed process leaves, is removed. At the end of a ``with`` block the file is closed, and kept if it holds
    a result.

    Args:
        path: the file; created if it does not exist.
        work: what decides on the results, as JSON-able data. An existing journal is resumed only if its work is equal.
        restart: discard an existing journal.

    Raises:
        ConfigurationError: the journal is of other work or in use by another process, or the file is no journal.
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, work: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self._end = 0
        self._synced = time.monotonic()
        self._file: IO[bytes] = open(path, "a+b", opener=open_private)  # noqa: SIM115 - closed by close()
        try:
            _lock(self._file, path)
            self._read(json.loads(json.dumps(work)), restart)
        except BaseException:
            self._file.close()
            raise

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Return True if there is no result yet."""

    @abstractmethod
    def _take(self, place: int, entry: dict[str, Any]) -> None:
        """Load a line of an earlier run.

        Raises:
            KeyError: the line is damaged; likewise TypeError and ValueError. Then nothing of it is loaded.
        """

    def _append(self, line: str) -> int:
        """Write a line and return its position."""
        place, text = self._end, line.encode() + b"\n"
        # Results are read between writes, which moves the position.
        self._file.seek(0, os.SEEK_END)
        self._file.write(text)
        self._file.flush()
        self._end += len(text)
        # A sync takes milliseconds, too long for every line.
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self._sync()
        return place

    def _line_at(self, place: int) -> Any:
        return json.loads(self._bytes_at(place))

    def _bytes_at(self, place: int) -> bytes:
        self._file.seek(place)
        return self._file.readline()

    def close(self) -> None:
        """Close the file and keep it."""
        if not self._file.closed:
            self._sync()
            self._file.close()

    def remove(self) -> None:
        """Close the file and delete it."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Return the journal itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file; delete it if it holds no result."""
        if self.empty:
            self.remove()
        else:
            self.close()

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def _read(self, work: Mapping[str, Any], restart: bool) -> None:
        self._file.seek(0)
        self._check_owner(self._file.readline(), work)
        if restart:
            self._file.truncate(0)
        self._file.seek(0)
        for line in self._file:
            # A killed process leaves a last line without its end.
            if not line.endswith(b"\n"):
                break
            if self._end == 0:
                self._check(line, work)
            elif not line.startswith(_FINISHED):  # a finished journal that was reopened goes on behind that line
                try:
                    self._take(self._end, json.loads(line))
                except (ValueError, KeyError, TypeError):
                    break  # nothing after a damaged line is trusted
            self._end += len(line)
        self._file.truncate(self._end)
        if self._end == 0:
            self._append(json.dumps({"rageval_journal": FORMAT, "work": work}))
            self._sync()

    def _check_owner(self, line: bytes, work: Mapping[str, Any]) -> None:
        """Check that a file belongs to this command: another one's would be lost."""
        # A process that was killed at once leaves only the beginning of the first line.
        if not line.startswith(_BEGINNING[: len(line)]):
            raise ConfigurationError(f"{self.path} is not a journal of rageval-hooks: move it, or name another output")
        command = work_in(line).get("command", work.get("command"))
        if command != work.get("command"):
            raise ConfigurationError(
                f"{self.path} belongs to an interrupted rageval-hooks {command}. Run that command again to finish it, "
                "or name another output"
            )

    def _check(self, line: bytes, work: Mapping[str, Any]) -> None:
        before = work_in(line)
        if not before:
            raise ConfigurationError(f"{self.path} is a journal of another version: --restart discards it")
        changed = [name for name in work if before.get(name) != work[name]]
        if changed:
            raise ConfigurationError(
                f"{self.path} belongs to an interrupted run with another {', '.join(changed)}. "
                "Run that command again to resume it, or give --restart to discard it"
            )


def work_in(line: bytes) -> Mapping[str, Any]:
    """Return the work in the first line of a journal; empty if it is of another version."""
    try:
        header = json.loads(line)
    except ValueError:
        return {}
    work = header.get("work") if header.get("rageval_journal") == FORMAT else None
    if not isinstance(work, Mapping):
        return {}
    # Journals of version 2 that had no command were written by `score`.
    return work if "command" in work else {"command": "score", **work}


def _lock(file: IO[bytes], path: Path) -> None:
    """Keep other processes off, on systems where files can be locked."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ConfigurationError(
            f"another process is writing {path}: wait until it ends, or name another output"
        ) from None
