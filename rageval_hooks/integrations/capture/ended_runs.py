"""The runs that have ended recently: whether a run that starts under one of them still belongs to its turn."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

__all__ = ["EndedRuns"]

_REMEMBERED = 8192
"""Ids of ended runs that are kept, twice at most: see :meth:`EndedRuns.add`."""

_STRAGGLING_NS = 120 * 1_000_000_000
"""For this long after a turn has ended, runs started by its unfinished runs still count as part of it."""

_COMPLETED = 0
"""Recorded in place of the end time for runs that completed. Whatever starts under them later is a new turn."""


class EndedRuns:
    """The ids of runs that have ended, or whose turn has, with the time of the end. Takes no locks.

    A run that starts under one of them soon afterwards is not a new turn: a branch that continues after another has
    failed, or a stream that its reader has left. But a run that starts after its parent has completed is not part of
    the old turn. It may come from a worker of the application, which keeps the context it was started in.

    The ids are kept in two halves, and the older half is dropped as a whole. Dropping ids one by one would be slow,
    because a dictionary scans the slots of deleted entries to find its first one.

    Args:
        clock: nanoseconds since the epoch.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._recent: dict[Hashable, int] = {}
        self._older: dict[Hashable, int] = {}

    def add(self, ids: Iterable[Hashable]) -> None:
        """Keep the ids of runs that have just ended, or whose turn has."""
        # Two threads may do this at the same time. Then ids are forgotten early, which only matters for stragglers.
        if len(self._recent) >= _REMEMBERED:
            self._older, self._recent = self._recent, {}
        self._recent.update(dict.fromkeys(ids, self._clock()))

    def add_completed(self, run_id: Hashable) -> None:
        """Keep the id of a run that came to its end without an exception."""
        self._recent[run_id] = _COMPLETED

    def __contains__(self, run_id: Hashable) -> bool:
        """Return True if a run belongs to a turn that ended recently."""
        return run_id in self._recent or run_id in self._older

    def goes_on(self, run_id: Hashable) -> bool:
        """Return True if a run belongs to a turn that ended recently, and may itself still be running."""
        # An id that is unknown counts as completed: whatever starts under it is a new turn.
        ended_at = self._recent.get(run_id) or self._older.get(run_id) or _COMPLETED
        return ended_at != _COMPLETED and self._clock() - ended_at < _STRAGGLING_NS

    def clear(self) -> None:
        """Forget all ids."""
        self._recent.clear()
        self._older.clear()
