"""Results by their keys, beside the output: what ``generate`` and ``run`` go on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rageval_hooks.offline.jobs.journal import JournalFile

__all__ = ["KeyedJournal"]


class KeyedJournal(JournalFile):
    """Keeps each result as soon as it is there, so that nothing is asked for twice. Memory holds the keys only.

    Args:
        path: as :class:`JournalFile` has it, like the others.
        work: what decides on the results.
        restart: begin anew.

    Attributes:
        last: the key of the newest result; None if there is none.
    """

    def __init__(self, path: Path, work: Mapping[str, Any], *, restart: bool = False) -> None:
        self.last: str | None = None
        self._places: dict[str, int] = {}
        super().__init__(path, work, restart=restart)

    @property
    def empty(self) -> bool:
        """Whether there is no result yet."""
        return not self._places

    def __len__(self) -> int:
        """How many results it holds."""
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        """Whether there is a result under a key."""
        return key in self._places

    def __getitem__(self, key: str) -> Any:
        """Return the last result under a key."""
        return self._line_at(self._places[key])["data"]

    def append(self, key: str, data: Any) -> None:
        """Keep a result."""
        self._places[key] = self._append(json.dumps({"key": key, "data": data}))
        self.last = key

    def _take(self, place: int, entry: dict[str, Any]) -> None:
        key = str(entry["key"])
        if "data" not in entry:
            raise KeyError("data")
        self._places[key] = place
        self.last = key
