"""Helpers for tests: an in-memory exporter and a scripted judge."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import ClassVar

from rageval_hooks.exporters.base import Exporter
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.score import Evaluation, Result

__all__ = ["FakeJudge", "InMemoryExporter"]


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
