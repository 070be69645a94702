"""Helpers for tests: an in-memory exporter, a scripted judge, sequential ids and a manual clock."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import ClassVar

from opentelemetry.sdk.trace.id_generator import IdGenerator

from rageval_hooks.exporters.base import Exporter
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.score import Evaluation, Result

__all__ = ["FakeJudge", "InMemoryExporter", "ManualClock", "SequentialIds"]


class InMemoryExporter(Exporter):
    """Keeps every evaluation, in the order of arrival. Safe to use from any thread."""

    name: ClassVar[str] = "memory"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._evaluations: list[Evaluation] = []
        self.closed = False

    def export(self, evaluation: Evaluation) -> None:
        """Keep an evaluation."""
        with self._lock:
            self._evaluations.append(evaluation)

    def shutdown(self, timeout: float) -> bool:
        """Note that the exporter was shut down."""
        self.closed = True
        return True

    @property
    def evaluations(self) -> list[Evaluation]:
        """The evaluations so far."""
        with self._lock:
            return list(self._evaluations)

    def results(self, name: str) -> Iterable[Result]:
        """Return the results with a name, of all evaluations."""
        return [result for evaluation in self.evaluations for result in evaluation.results if result.name == name]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._evaluations.clear()


class SequentialIds(IdGenerator):
    """Trace ids and span ids 1, 2, 3 …, so that a test knows them in advance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trace_id = 0
        self._span_id = 0

    def generate_trace_id(self) -> int:
        """Return the next trace id."""
        with self._lock:
            self._trace_id += 1
            return self._trace_id

    def generate_span_id(self) -> int:
        """Return the next span id."""
        with self._lock:
            self._span_id += 1
            return self._span_id


class ManualClock:
    """A clock that moves only when a test advances it.

    Args:
        now: the time, in any unit.
    """

    def __init__(self, now: float = 0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def advance(self, amount: float) -> None:
        """Move the clock forward."""
        self.now += amount
