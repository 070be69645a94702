"""What an interrupted command goes on from: a file of JSON lines beside its output."""

from __future__ import annotations

import hashlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from rageval_hooks.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Self

__all__ = ["JournalFile", "file_hash", "interruption", "journal_path"]

_FORMAT = 2
_BEGINNING = b'{"rageval_journal": '
_SYNC_SECONDS = 1.0


def journal_path(output: Path) -> Path:
    """Return where the journal of an output stands."""
    return output.with_name(f"{output.name}.partial.jsonl")


def interruption(output: Path, there: Path) -> str:
    """Return what to say when the work on an output was interrupted.

    Args:
        output: as the user has named it.
        there: where it is.
    """
    done = f"What is done is in {journal_path(output)}: give the same command again to go on"
    kept = done if journal_path(there).exists() else "Nothing was done"
    return f"rageval-hooks: interrupted. {kept}"


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 16):
            digest.update(block)
    return digest.hexdigest()


class JournalFile(ABC):
    """An append-only file: a line that says of what work it is, then a line for each result.

    A line is with the operating system when it was appended, and on the disk about a second later. What a killed
    process left of its last line is cut off. As a context manager it is closed at the end, and stays if there is a
    result in it.

    Args:
        path: the file; made if there is none.
        work: what decides on the results, as JSON-able data: an existing journal goes on only if it has the same.
        restart: begin anew, whatever such a journal holds.

    Raises:
        ConfigurationError: it is the journal of other work or of another process, or no journal.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, work: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self._end = 0
        self._synced = time.monotonic()
        self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115 - closed by close()
        try:
            _lock(self._file, path)
            self._read(json.loads(json.dumps(work)), restart)
        except BaseException:
            self._file.close()
            raise

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether nothing is done yet."""

    @abstractmethod
    def _take(self, place: int, entry: dict[str, Any]) -> None:
        """Take in a line of an earlier run.

        Raises:
            KeyError: it is none of ours; likewise TypeError and ValueError. Then nothing of it is taken in.
        """

    def _append(self, line: str) -> int:
        """Write a line; return where it begins."""
        place, text = self._end, line.encode() + b"\n"
        self._file.seek(0, os.SEEK_END)
        self._file.write(text)
        self._file.flush()
        self._end += len(text)
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self._sync()
        return place

    def _line_at(self, place: int) -> Any:
        self._file.seek(place)
        return json.loads(self._file.readline())

    def close(self) -> None:
        """Close the file, and leave it."""
        if not self._file.closed:
            self._sync()
            self._file.close()

    def remove(self) -> None:
        """Close the file and take it away: the work is done."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        """Return the journal itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file; it stays if there is a result in it."""
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
            if not line.endswith(b"\n"):
                break
            if self._end == 0:
                self._check(line, work)
            else:
                try:
                    self._take(self._end, json.loads(line))
                except (ValueError, KeyError, TypeError):
                    break  # what stands behind a damaged line is not trusted
            self._end += len(line)
        self._file.truncate(self._end)
        if self._end == 0:
            self._append(json.dumps({"rageval_journal": _FORMAT, "work": work}))
            self._sync()

    def _check_owner(self, line: bytes, work: Mapping[str, Any]) -> None:
        """Check that a file's first line is not that of something else, which would be lost."""
        if not line.startswith(_BEGINNING[: len(line)]):
            raise ConfigurationError(
                f"{self.path} is in the way: it is no journal of ours. Move it, or give another output"
            )
        command = _work_in(line).get("command", work.get("command"))
        if command != work.get("command"):
            raise ConfigurationError(
                f"{self.path} is what rageval-hooks {command} has left when it was interrupted. Give another output, "
                "or that command again to finish it"
            )

    def _check(self, line: bytes, work: Mapping[str, Any]) -> None:
        before = _work_in(line)
        if not before:
            raise ConfigurationError(f"{self.path} is no journal of this version: give --restart to begin anew")
        changed = [name for name in work if before.get(name) != work[name]]
        if changed:
            raise ConfigurationError(
                f"{self.path} is what another run left when it was interrupted: it had other {', '.join(changed)}. "
                "Give the same as then to go on, or --restart to begin anew"
            )


def _work_in(line: bytes) -> Mapping[str, Any]:
    """Return what a journal's first line says of the work; nothing if that is not of this version."""
    try:
        header = json.loads(line)
    except ValueError:
        return {}
    work = header.get("work") if header.get("rageval_journal") == _FORMAT else None
    if not isinstance(work, Mapping):
        return {}
    return work if "command" in work else {"command": "score", **work}


def _lock(file: IO[bytes], path: Path) -> None:
    """Keep a second process off, where files can be locked."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ConfigurationError(
            f"another process is writing {path}: wait for its end, or give another output"
        ) from None
