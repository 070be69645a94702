"""Counters of a pipeline, for ``stats()``."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from rageval_hooks.runtime.fork import ForkSafeLock, reset_in_child
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.score import Evaluation, Failed, Result, Score, is_about_turn

_NAMES = (
    "turns",
    "evaluated",
    "in_progress",
    "without_retrieval",
    "sampled_out",
    "unsampled_traces",
    "dropped",
    "deferred_metrics",
    "undone",
    "scored",
    "skipped",
    "failed",
    "export_errors",
    "callback_errors",
    "internal_errors",
)


DROPPED = ("queue_full", "not_ended", "not_built", "failed")
"""Why a turn was dropped: a queue had no room for it; it did not end, for example because its stream was neither read
nor closed; it could not be built from what was recorded; or its evaluation failed with an error of ours."""

_BY_CAUSE = "dropped."

_MOST_SCORES = 200


@dataclass(slots=True)
class ScoreTotals:
    """What became of one score over all turns.

    Attributes:
        count: turns with a value.
        total: the sum of the values.
        last: the latest value; None before the first.
        labels: turns by label: ``pass`` and ``fail``, of the verdict ``good``, ``doubtful``, ``bad``, ``declined`` …
        skipped: turns for which it was skipped.
        failed: turns for which it failed.
    """

    count: int = 0
    total: float = 0.0
    last: float | None = None
    labels: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    failed: int = 0

    def add(self, result: Result) -> None:
        """Add one result."""
        if not isinstance(result, Failed) and result.label:
            self.labels[result.label] += 1
        if isinstance(result, Score):
            self.count += 1
            self.total += result.value
            self.last = result.value
        elif result.status == "skipped":
            self.skipped += 1
        else:
            self.failed += 1

    def as_data(self) -> dict[str, Any]:
        """Return the totals with the mean of the values, for ``stats()``."""
        return {
            "count": self.count,
            "mean": self.total / self.count if self.count else None,
            "last": self.last,
            "labels": dict(self.labels),
            "skipped": self.skipped,
            "failed": self.failed,
        }


class Counters:
    """Counts events by name. Safe to use from any thread.

    A turn is counted under ``turns`` and under exactly one other name, at any moment: ``in_progress``, ``evaluated``,
    ``without_retrieval``, ``sampled_out``, ``unsampled_traces`` or ``dropped``.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start from zero: a child counts its own turns."""
        self._counts: Counter[str] = Counter()
        self._scores: dict[str, ScoreTotals] = {}
        self._unnoted: deque[str] = deque()

    def add(self, name: str, amount: int = 1) -> None:
        """Count events, here and for the process."""
        with self._lock.lock:
            self._counts[name] += amount
        PROCESS_TOTALS.add(name, amount)

    def begin_turn(self) -> None:
        """Count a turn that is to be evaluated."""
        with self._lock.lock:
            self._counts["turns"] += 1
            self._counts["in_progress"] += 1
        PROCESS_TOTALS.add("turns")

    def exclude_turn(self, reason: str) -> None:
        """Count a turn that is not evaluated, as ``sampled_out`` or ``unsampled_traces``."""
        with self._lock.lock:
            self._counts["turns"] += 1
            self._counts[reason] += 1
        PROCESS_TOTALS.add(reason)

    def end_turn(self, outcome: str) -> None:
        """Count a turn that was in progress, as ``evaluated`` or ``without_retrieval``."""
        with self._lock.lock:
            # After a fork the child does not count a turn that its parent has begun.
            if not self._counts["in_progress"]:
                return
            self._counts["in_progress"] -= 1
            self._counts[outcome] += 1
        PROCESS_TOTALS.add(outcome)

    def drop_turn(self, cause: str) -> None:
        """Count a turn that was in progress as dropped, by one of the causes in :data:`DROPPED`."""
        with self._lock.lock:
            if not self._counts["in_progress"]:
                return
            self._counts["in_progress"] -= 1
            self._counts["dropped"] += 1
            self._counts[_BY_CAUSE + cause] += 1

    def drop_unbegun(self, cause: str) -> None:
        """Count a turn that was dropped before it was submitted. Takes no lock: a finalizer may call this."""
        self._unnoted.append(cause)

    def _note_drops(self) -> None:
        """Count what :meth:`drop_unbegun` was given; under the lock."""
        while self._unnoted:
            cause = self._unnoted.popleft()
            self._counts["turns"] += 1
            self._counts["dropped"] += 1
            self._counts[_BY_CAUSE + cause] += 1
            PROCESS_TOTALS.add("turns")

    def counted(self, evaluation: Evaluation) -> Evaluation:
        """Count the results of an evaluation by status and by score, and return it."""
        for result in evaluation.results:
            self.add(result.status)
        with self._lock.lock:
            for result in filter(is_about_turn, evaluation.results):
                # A metric of the user's might make up names without end.
                if result.name in self._scores or len(self._scores) < _MOST_SCORES:
                    self._scores.setdefault(result.name, ScoreTotals()).add(result)
        return evaluation

    def __getitem__(self, name: str) -> int:
        """Return how many events of a name were counted."""
        with self._lock.lock:
            self._note_drops()
            return self._counts[name]

    def snapshot(self) -> dict[str, Any]:
        """Return all counts of one moment, zeros included."""
        with self._lock.lock:
            self._note_drops()
            counts = {name: self._counts[name] for name in _NAMES}
            causes = {cause: self._counts[_BY_CAUSE + cause] for cause in DROPPED}
            scores = {name: totals.as_data() for name, totals in self._scores.items()}
        return {**counts, "dropped_by_cause": causes, "scores": scores}
