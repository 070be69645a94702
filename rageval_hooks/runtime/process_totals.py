"""Counts over all pipelines of this process, and its queues: what OpenTelemetry metrics report.

A pipeline may live for one request only. A counter that is reported to a metrics backend must never go down, so its
value cannot be the sum over the pipelines that exist at the moment.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from rageval_hooks.runtime.fork import ForkSafeLock, reset_in_child


class Queue(Protocol):
    """A bounded queue.

    Attributes:
        name: what waits in it. Several queues may have the same name.
        capacity: how many items may wait.
    """

    name: str
    capacity: int

    @property
    def pending(self) -> int:
        """How many items wait."""


class QueueState(NamedTuple):
    """All queues of one name together.

    Attributes:
        pending: how many items wait.
        capacity: how many items may wait.
    """

    pending: int
    capacity: int


class ProcessTotals:
    """Counts that outlive the pipelines they come from. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._queues: weakref.WeakValueDictionary[int, Queue] = weakref.WeakValueDictionary()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start from zero: a child counts its own turns."""
        self._events: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()

    def add(self, event: str, amount: int = 1) -> None:
        """Count events."""
        with self._lock.lock:
            self._events[event] += amount

    def add_dropped(self, queue: str, amount: int = 1) -> None:
        """Count items that a queue did not take or did not keep."""
        with self._lock.lock:
            self._dropped[queue] += amount

    def watch(self, queue: Queue) -> None:
        """Include a queue in :meth:`queues`, for as long as it exists."""
        self._queues[id(queue)] = queue

    def __getitem__(self, event: str) -> int:
        """Return how many events of a name were counted."""
        return self._events[event]

    def dropped(self) -> Mapping[str, int]:
        """Return how many items were dropped, by the name of the queue; queues without a drop are 0."""
        with self._lock.lock:
            return {**dict.fromkeys(self.queues(), 0), **self._dropped}

    def queues(self) -> dict[str, QueueState]:
        """Return the state of the queues by name."""
        states: dict[str, QueueState] = {}
        # The references and not the queues: a finalizer may make a queue meanwhile, on any thread.
        for queue in [reference() for reference in self._queues.valuerefs()]:
            if queue is not None:
                pending, capacity = states.get(queue.name, (0, 0))
                states[queue.name] = QueueState(pending + queue.pending, capacity + queue.capacity)
        return states


PROCESS_TOTALS = ProcessTotals()
