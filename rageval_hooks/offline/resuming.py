"""What an interrupted command goes on from: a file of JSON lines beside its output."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.journal import journal_path

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["KeyedJournal", "interruption"]


def interruption(output: Path) -> str:
    """Return what to say when the work on an output was interrupted."""
    path = journal_path(output)
    kept = f"What is done is in {path}: give the same command again to go on" if path.exists() else "Nothing was done"
    return f"rageval-hooks: interrupted. {kept}"


class KeyedJournal:
    """Keeps each result as soon as it is there, so that nothing is asked for twice.

    The first line says what the work is; each further line is one result under its key. A line is on the disk when
    :meth:`append` returns; one that a killed process left half written is cut off. Memory holds the keys only.

    Args:
        path: the file; made if there is none.
        work: what is done, as JSON-able data: inputs and settings that results depend on.
        restart: begin anew, whatever the file holds.

    Attributes:
        last: the key of the newest result; None if there is none.

    Raises:
        ConfigurationError: the file belongs to other work or another process, or is no journal.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, work: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self.last: str | None = None
        self._places: dict[str, int] = {}
        self._file: BinaryIO = path.open("a+b")
        try:
            _lock(self._file, path)
            if restart:
                self._file.truncate(0)
            self._file.seek(0)
            end = self._read(dict(work))
            self._file.truncate(end)
            if end == 0:
                self._write({"work": dict(work)})
        except BaseException:
            self._file.close()
            raise

    def _read(self, work: dict[str, Any]) -> int:
        """Take in the lines that are there; returns where the last whole one ends."""
        end = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            try:
                item = json.loads(line)
                found = item["work"] if end == 0 else None
                if end:
                    self.last = item["key"]
                    self._places[item["key"]] = end
            except (ValueError, KeyError, TypeError):
                if end == 0:
                    raise ConfigurationError(f"{self.path} is in the way: it is no journal of ours. Move it") from None
                break  # what stands behind a damaged line is not trusted
            if end == 0 and found != json.loads(json.dumps(work)):
                raise ConfigurationError(self._other_work(found, work))
            end += len(line)
        return end

    def _other_work(self, found: Any, work: dict[str, Any]) -> str:
        found = found if isinstance(found, dict) else {}
        changed = [name for name in work if found.get(name) != json.loads(json.dumps(work[name]))]
        return (
            f"{self.path} is what another run left when it was interrupted: it had other {', '.join(changed)}. "
            "Give the same as then to go on, or --restart to begin anew"
        )

    def __len__(self) -> int:
        """How many results it holds."""
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        """Whether there is a result under a key."""
        return key in self._places

    def __getitem__(self, key: str) -> Any:
        """Return the last result under a key."""
        self._file.seek(self._places[key])
        return json.loads(self._file.readline())["data"]

    def append(self, key: str, data: Any) -> None:
        """Keep a result; it is on the disk when this returns."""
        self._file.seek(0, os.SEEK_END)
        place = self._file.tell()
        self._write({"key": key, "data": data})
        self._places[key] = place
        self.last = key

    def _write(self, item: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(item, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def remove(self) -> None:
        """Close it and take it away: the work is done."""
        self._file.close()
        self.path.unlink(missing_ok=True)
        self._places.clear()

    def __enter__(self) -> Self:
        """Return the journal itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file; it stays if there is a result in it."""
        if self._places:
            self._file.close()
        else:
            self.remove()


def _lock(file: BinaryIO, path: Path) -> None:
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
