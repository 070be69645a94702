"""What was scored so far, beside the output: an interrupted run goes on from here."""

from __future__ import annotations

import hashlib
import json
import os
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.budget import Spent
from rageval_hooks.offline.records import Record
from rageval_hooks.score import Result

__all__ = ["Journal", "file_hash", "journal_path"]

_FORMAT = 1
_SYNC_SECONDS = 1.0
_NOWHERE = 2**64 - 1
_RESULTS: TypeAdapter[tuple[Result, ...]] = TypeAdapter(tuple[Result, ...])


def journal_path(output: Path) -> Path:
    """Return where the journal of an output stands."""
    return output.with_name(f"{output.name}.partial.jsonl")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 16):
            digest.update(block)
    return digest.hexdigest()


class Journal:
    """An append-only file: a line that says of what it is, then a line for each metric and each record that is done.

    A line is with the operating system before :meth:`done` returns, and on the disk about a second later. What a killed
    process left of its last line is cut off.

    Args:
        path: the file.
        settings: what decides on the results: an existing journal goes on only if it has the same.
        restart: begin anew, whatever there is.

    Attributes:
        resumed: how many records it held at the start.
        spent: what the judge had taken by then.

    Raises:
        ConfigurationError: it is the journal of something else, of another process, or no journal.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, restart: bool = False) -> None:
        self.path = path
        self.spent = Spent()
        self._places = array("Q")
        self._parts: dict[int, dict[str, tuple[Result, ...]]] = {}
        self._entries = 0
        self._synced = time.monotonic()
        self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115 - closed by close()
        try:
            _lock(self._file, path)
            if restart:
                self._file.truncate(0)
            self._read(json.loads(json.dumps(settings)))
        except BaseException:
            self._file.close()
            raise
        self.resumed = sum(place != _NOWHERE for place in self._places)

    @property
    def empty(self) -> bool:
        """Whether nothing is done yet."""
        return self._entries == 0

    def has(self, index: int) -> bool:
        """Whether a record is done.

        Args:
            index: its position in the input, from 0.
        """
        return index < len(self._places) and self._places[index] != _NOWHERE

    def parts(self, index: int) -> dict[str, tuple[Result, ...]]:
        """Return the results, by metric, of a record that was not done when the process ended."""
        return self._parts.pop(index, {})

    def part(self, index: int, metric: str, results: Sequence[Result], spent: Spent) -> None:
        """Note the results of one metric."""
        found = _RESULTS.dump_json(tuple(results)).decode()
        self._append(f'"index":{index},"metric":{json.dumps(metric)},"results":{found}', spent)

    def done(self, index: int, record: Record, spent: Spent) -> None:
        """Note a record with all its results."""
        self._note(index, self._append(f'"index":{index},"record":{record.model_dump_json()}', spent))

    def records(self, order: Sequence[int] | None = None, /) -> Iterator[Record]:
        """Yield the records that are done, in the order of the input, or in another order of positions in it."""
        self._file.flush()
        with open(self.path, "rb") as file:
            for place in self._places if order is None else map(self._places.__getitem__, order):
                if place != _NOWHERE:
                    file.seek(place)
                    yield Record.model_validate(json.loads(file.readline())["record"])

    def close(self) -> None:
        """Close the file, and leave it."""
        if not self._file.closed:
            self._sync()
            self._file.close()

    def remove(self) -> None:
        """Close the file and remove it: the output is there."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _append(self, entry: str, spent: Spent) -> int:
        """Write an entry; return where it begins."""
        self._entries += 1
        return self._write(f'{{{entry},"spent":{spent.model_dump_json()}}}\n')

    def _write(self, line: str) -> int:
        place, text = self._end, line.encode()
        self._file.write(text)
        self._file.flush()
        self._end += len(text)
        if time.monotonic() - self._synced >= _SYNC_SECONDS:
            self._sync()
        return place

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def _note(self, index: int, place: int) -> None:
        if index >= len(self._places):
            self._places.extend([_NOWHERE] * (index + 1 - len(self._places)))
        self._places[index] = place

    def _read(self, settings: Mapping[str, Any]) -> None:
        self._file.seek(0)
        self._end = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            entry = self._entry(line)
            if self._end == 0:
                self._check(entry, settings)
            elif entry is None:
                break
            else:
                self._take(entry)
            self._end += len(line)
        self._file.truncate(self._end)
        self._file.seek(self._end)
        if self._end == 0:
            self._write(json.dumps({"rageval_journal": _FORMAT, "settings": settings}) + "\n")
            self._sync()

    def _entry(self, line: bytes) -> dict[str, Any] | None:
        try:
            entry = json.loads(line)
        except ValueError:
            return None
        return entry if isinstance(entry, dict) else None

    def _check(self, entry: dict[str, Any] | None, settings: Mapping[str, Any]) -> None:
        if entry is None or entry.get("rageval_journal") != _FORMAT:
            raise ConfigurationError(f"{self.path} is no journal of this version: give --restart to begin anew")
        before = entry.get("settings")
        different = [name for name in settings if not isinstance(before, dict) or before.get(name) != settings[name]]
        if different:
            raise ConfigurationError(
                f"{self.path} is what another run left when it was interrupted: it had other {', '.join(different)}. "
                "Give the same as then to go on, or --restart to begin anew"
            )

    def _take(self, entry: Mapping[str, Any]) -> None:
        self._entries += 1
        index = int(entry["index"])
        if "record" in entry:
            self._note(index, self._end)
            self._parts.pop(index, None)
        else:
            self._parts.setdefault(index, {})[entry["metric"]] = _RESULTS.validate_python(entry["results"])
        self.spent = Spent.model_validate(entry["spent"])


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
