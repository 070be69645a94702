from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.score import Evaluation
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn


@dataclass
class Captured:
    """The turns that an instrumented process captured."""

    handle: rageval_hooks.Instrumentation
    exporter: InMemoryExporter

    @property
    def evaluations(self) -> list[Evaluation]:
        assert self.handle.flush(10)
        return self.exporter.evaluations

    @property
    def turns(self) -> list[Turn]:
        """Return the turns by start time. They may be delivered in another order."""
        turns = [evaluation.turn for evaluation in self.evaluations if evaluation.stage == "inline"]
        return sorted(turns, key=lambda turn: turn.timing.started_at if turn.timing else 0)

    @property
    def turn(self) -> Turn:
        [turn] = self.turns
        return turn


@pytest.fixture
def captured() -> Iterator[Captured]:
    """An instrumented process without metrics. Afterwards the table is empty and no error was counted."""
    exporter = InMemoryExporter()
    given_up = shared_recorder().given_up  # by earlier tests: the recorder is that of the process
    with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
        yield Captured(handle, exporter)
        handle.flush(10)
    stats = handle.stats()
    assert len(shared_recorder()) == 0, "runs are left in the table"
    assert stats["internal_errors"] == 0
    assert stats["given_up"] == given_up
