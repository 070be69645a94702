"""Bounded queues with counted drops, and the counts of the whole process: what OpenTelemetry metrics report."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rageval_hooks.runtime.fork import ForkSafeLock, reset_in_child


class ProcessTotals:
    """Counts that outlive the pipelines they come from. Safe to use from any thread.

    A pipeline may live for one request only. A counter that is reported to a metrics backend must never go down, so its
    value cannot be the sum over the pipelines that exist at the moment.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._queues: weakref.WeakValueDictionary[int, BoundedQueue] = weakref.WeakValueDictionary()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start from zero: a child counts its own turns."""
        self._events: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._guard_decisions: Counter[tuple[str, str, str | None]] = Counter()

    def add(self, event: str, amount: int = 1) -> None:
        """Count events."""
        with self._lock.lock:
            self._events[event] += amount

    def add_dropped(self, queue: str, amount: int = 1) -> None:
        """Count items that a queue did not take or did not keep."""
        with self._lock.lock:
            self._dropped[queue] += amount

    def add_guard_decision(self, action: str, verdict: str, cause: str | None) -> None:
        """Count a decision of a guard."""
        with self._lock.lock:
            self._guard_decisions[action, verdict, cause] += 1

    def watch(self, queue: BoundedQueue) -> None:
        """Include a queue in :meth:`queues`, for as long as it exists."""
        self._queues[id(queue)] = queue

    def __getitem__(self, event: str) -> int:
        """Return how many events of a name were counted."""
        return self._events[event]

    def guard_decisions(self) -> Mapping[tuple[str, str, str | None], int]:
        """Return how many decisions of guards there were, by action, verdict and cause."""
        with self._lock.lock:
            return dict(self._guard_decisions)

    def dropped(self) -> Mapping[str, int]:
        """Return how many items were dropped, by the name of the queue; queues without a drop are 0."""
        with self._lock.lock:
            return {**dict.fromkeys(self.queues(), 0), **self._dropped}

    def queues(self) -> dict[str, tuple[int, int]]:
        """Return by name how many items wait in the queues, and how many may wait."""
        states: dict[str, tuple[int, int]] = {}
        # The references and not the queues: a finalizer may make a queue meanwhile, on any thread.
        for queue in [reference() for reference in self._queues.valuerefs()]:
            if queue is not None:
                pending, capacity = states.get(queue.name, (0, 0))
                states[queue.name] = pending + queue.pending, capacity + queue.capacity
        return states


PROCESS_TOTALS = ProcessTotals()


class BoundedQueue:
    """The bounds and counters of a queue. They change under its owner's lock.

    Args:
        name: for log lines and statistics. Several queues may have the same name.
        capacity: items that may wait, or pieces of work that may be waiting or running.
        max_bytes: their size. One item is always taken, whatever its size.
    """

    def __init__(self, name: str, capacity: int, max_bytes: float = math.inf) -> None:
        self.name = name
        self.capacity = capacity
        self.max_bytes = max_bytes
        self.accepted = self.dropped = self.dropped_by_size = self.failed = 0
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget what is pending: the parent finishes it."""
        self.pending = self.pending_bytes = 0
        self.tasks: set[asyncio.Task[Any]] = set()

    def stats(self) -> dict[str, int]:
        """Return the counters. ``dropped`` is the number of all drops, ``dropped_by_size`` of those by size."""
        names = ("pending", "pending_bytes", "accepted", "dropped", "dropped_by_size", "failed")
        return {name: getattr(self, name) for name in names}

    def add(self, size: int) -> bool:
        """Count an item. Returns False if there is no room for it."""
        is_too_large = self.pending > 0 and self.pending_bytes + size > self.max_bytes
        if self.pending >= self.capacity or is_too_large:
            self.dropped_by_size += self.pending < self.capacity
            self.drop()
            return False
        # From the first item on: metrics do not list the queues of backends that are not in use.
        if not self.accepted:
            PROCESS_TOTALS.watch(self)
        self.pending += 1
        self.pending_bytes += size
        self.accepted += 1
        return True

    def drop(self, amount: int = 1) -> None:
        """Count items that are not taken or not kept."""
        self.dropped += amount
        PROCESS_TOTALS.add_dropped(self.name, amount)

    def remove(self, size: int) -> None:
        """Count an item that has left."""
        self.pending -= 1
        self.pending_bytes -= size
