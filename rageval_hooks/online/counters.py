"""Counters of a pipeline, for ``stats()``."""

from __future__ import annotations

from collections import Counter

from rageval_hooks.runtime.executors import ForkSafeLock
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.score import Evaluation

__all__ = ["Counters"]

_NAMES = (
    "turns",
    "evaluated",
    "without_retrieval",
    "sampled_out",
    "unsampled_traces",
    "deferred_metrics",
    "undone",
    "scored",
    "skipped",
    "failed",
    "export_errors",
    "callback_errors",
    "internal_errors",
)


class Counters:
    """Counts events by name. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start from zero: a child counts its own turns."""
        self._counts: Counter[str] = Counter()

    def add(self, name: str, amount: int = 1) -> None:
        """Count events, here and for the process."""
        with self._lock.lock:
            self._counts[name] += amount
        PROCESS_TOTALS.add(name, amount)

    def counted(self, evaluation: Evaluation) -> Evaluation:
        """Count the results of an evaluation by status, and return it."""
        for result in evaluation.results:
            self.add(result.status)
        return evaluation

    def __getitem__(self, name: str) -> int:
        """Return how many events of a name were counted."""
        with self._lock.lock:
            return self._counts[name]

    def snapshot(self) -> dict[str, int]:
        """Return all counts, zeros included."""
        with self._lock.lock:
            return {name: self._counts[name] for name in _NAMES}
