"""The journal of ``generate`` and ``run``: results by key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rageval_hooks.offline.jobs.journal import JournalFile

__all__ = ["KeyedJournal"]


class KeyedJournal(JournalFile):
    """Keeps each result as soon as it exists, so that nothing is asked twice. Only keys are held in memory.

    Args:
        path: see :class:`JournalFile`, also for the other arguments.
        work: what decides on the results.
        restart: discard an existing journal.

    Attributes:
        last: key of the newest result; None before the first.
    """

    def __init__(self, path: Path, work: Mapping[str, Any], *, restart: bool = False) -> None:
        self.last: str | None = None
        self._places: dict[str, int] = {}
        super().__init__(path, work, restart=restart)

    @property
    def empty(self) -> bool:
        """Return True if there is no result yet."""
        return not self._places

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        """Return True if there is a result under a key."""
        return key in self._places

    def __getitem__(self, key: str) -> Any:
        """Return the newest result under a key."""
        return self._line_at(self._places[key])["data"]

    def keys(self) -> Iterable[str]:
        """Return the keys of all results."""
        return self._places.keys()

    def append(self, key: str, data: Any) -> None:
        """Keep a result."""
        self._places[key] = self._append(json.dumps({"key": key, "data": data}))
        self.last = key

    def _take(self, place: int, entry: dict[str, Any]) -> None:
        key = str(entry["key"])
        # Nothing of a damaged line may be taken, so this comes before the changes below.
        if "data" not in entry:
            raise KeyError("data")
        self._places[key] = place
        self.last = key
