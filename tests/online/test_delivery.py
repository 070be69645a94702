"""``flush`` tells the truth about exporters that fail."""

from __future__ import annotations

import logging

import pytest

from rageval_hooks import Evaluation, Exporter
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.testing import InMemoryExporter
from tests.local import make_turn


class Broken(Exporter):
    """Fails as long as it is broken. It does not say so when it is flushed."""

    name = "broken"
    is_broken = True

    def export(self, evaluation: Evaluation) -> None:
        if self.is_broken:
            raise OSError("No space left on device")


def test_a_flush_is_false_if_one_of_several_exporters_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    """The reason is logged once and counted. The next flush is about what came after it."""
    caplog.set_level(logging.WARNING)
    broken, working = Broken(), InMemoryExporter()
    pipeline = Pipeline.build(metrics=["latency"], exporters=[working, broken])
    for _ in range(3):
        pipeline.submit(make_turn("An answer.", ["A passage."], "question"))
    first = pipeline.flush(30)
    broken.is_broken = False
    pipeline.submit(make_turn("An answer.", ["A passage."], "question"))
    second = pipeline.flush(30)
    stats = pipeline.stats()
    pipeline.shutdown(10)

    assert (first, second) == (False, True)
    assert stats["export_errors"] == 3
    assert len(working.evaluations) == 4
    # With redaction of the log, as another test may have left it, a traceback follows in the message.
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [
        "rageval-hooks: the exporter broken failed [RAGEVAL-206]"
    ]
    assert "No space left on device" in caplog.text


def test_a_flush_is_false_if_not_everything_was_delivered_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """A line says which exporter it was."""

    class Slow(InMemoryExporter):
        def flush(self, timeout: float) -> bool:
            return False

    pipeline = Pipeline.build(metrics=["latency"], exporters=[Slow()])
    pipeline.submit(make_turn("An answer.", ["A passage."], "question"))

    assert not pipeline.flush(30)
    pipeline.shutdown(0)
    assert "has not delivered everything within" in caplog.text
