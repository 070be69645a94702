"""The journal of a command: results as JSON lines next to its output, from which an interrupted run is resumed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.runtime.files import open_private

FORMAT = 3
"""Version of journals."""

_BEGINNING = b'{"rageval_journal": '
_FINISHED = b'{"finished": '
_DATA = b',"data":'
_SYNC_SECONDS = 1.0


def journal_path(output: Path) -> Path:
    """Return the path of an output's journal."""
    return output.with_name(f"{output.name}.partial.jsonl")


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
        self._end = 0
        self._synced = time.monotonic()
        if path is None:
            self._file: IO[bytes] = io.BytesIO()
            return
        self._file = open(path, "a+b", opener=open_private)  # noqa: SIM115 - closed by close()
        try:
            _lock(self._file, path)
            self._read(path, json.loads(json.dumps(work)), restart)
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
        place = self._end
        # Results are read between writes, which moves the position.
        self._file.seek(0, os.SEEK_END)
        self._file.write(line + b"\n")
        self._file.flush()
        self._end += len(line) + 1
        # A sync takes milliseconds, too long for every line.
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self._sync()
        return place

    def _sync(self) -> None:
        if self.path is not None:
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def _read(self, path: Path, work: Mapping[str, Any], restart: bool) -> None:
        """Read the keys and their positions.

        Raises:
            ConfigurationError: the file belongs to something else, or is not to be resumed.
        """
        self._file.seek(0)
        first = self._file.readline()
        # A process that was killed at once leaves only the beginning of the first line.
        if not first.startswith(_BEGINNING[: len(first)]):
            raise ConfigurationError(f"{path} is not a journal of rageval-hooks: move it, or name another output")
        before = work_in(first)
        command = before.get("command", work.get("command"))
        if command != work.get("command"):
            raise ConfigurationError(
                f"{path} belongs to an interrupted rageval-hooks {command}. Run that command again to finish it, "
                "or name another output"
            )
        if first.endswith(b"\n") and not restart:
            if not before:
                raise ConfigurationError(f"{path} is a journal of another version: --restart discards it")
            if changed := [name for name in work if before.get(name) != work[name]]:
                raise ConfigurationError(
                    f"{path} belongs to an interrupted run with another {', '.join(changed)}. "
                    "Run that command again to resume it, or give --restart to discard it"
                )
            self._end = len(first)
            self._read_results()
        self._file.truncate(self._end)
        if not self._end:
            self._append(json.dumps({"rageval_journal": FORMAT, "work": work}).encode())
            self._sync()

    def _read_results(self) -> None:
        for line in self._file:
            if not line.startswith(_FINISHED):  # a finished journal that was reopened goes on behind that line
                try:
                    entry = json.loads(line)
                    key, _ = entry["key"], entry["data"]
                except (ValueError, KeyError, TypeError):
                    return  # nothing after a damaged line is trusted
                # A killed process leaves a last line without its end.
                if not line.endswith(b"\n"):
                    return
                self._places[key] = self._end
                self.spent = entry.get("spent", self.spent)
            self._end += len(line)


def work_in(line: bytes) -> Mapping[str, Any]:
    """Return the work in the first line of a journal; empty if it is of another version."""
    try:
        header = json.loads(line)
    except ValueError:
        return {}
    work = header.get("work") if header.get("rageval_journal") == FORMAT else None
    return work if isinstance(work, Mapping) else {}


def _lock(file: IO[bytes], path: Path) -> None:
    """Keep other processes off, on systems where files can be locked."""
    with suppress(ImportError):  # Windows
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(
                f"another process is writing {path}: wait until it ends, or name another output"
            ) from None
