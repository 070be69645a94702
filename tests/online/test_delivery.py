"""``flush`` tells the truth about exporters that fail."""

from __future__ import annotations

import logging
import threading

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext

from rageval_hooks import Evaluation, Exporter
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import TURN_POOL, EndedTurn
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import SpanReference
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
        pipeline.submit(EndedTurn.of(make_turn("An answer.", ["A passage."], "question")))
    first = pipeline.flush(30)
    broken.is_broken = False
    pipeline.submit(EndedTurn.of(make_turn("An answer.", ["A passage."], "question")))
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
    pipeline.submit(EndedTurn.of(make_turn("An answer.", ["A passage."], "question")))

    assert not pipeline.flush(30)
    pipeline.shutdown(0)
    assert "has not delivered everything within" in caplog.text


def test_a_callback_that_raises_is_counted_and_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The exporters get every turn. The reason is logged once."""
    exporter = InMemoryExporter()

    def call_back(evaluation: Evaluation) -> None:
        raise KeyError("the application's own mistake")

    pipeline = Pipeline.build(metrics=["latency"], exporters=[exporter], on_evaluation=call_back)
    for _ in range(2):
        pipeline.submit(EndedTurn.of(make_turn("An answer.", ["A passage."], "question")))
    assert pipeline.flush(30)
    stats = pipeline.stats()
    pipeline.shutdown(10)

    assert (stats["callback_errors"], stats["internal_errors"], len(exporter.evaluations)) == (2, 0, 2)
    assert caplog.text.count("on_evaluation raised [RAGEVAL-205]") == 1
    assert "the application's own mistake" in caplog.text


def test_an_exporter_that_fails_at_an_open_span_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The other exporters still add their scores to the span of another tracer."""

    class Annotating(InMemoryExporter):
        def annotate(self, evaluation: Evaluation) -> None:
            annotated.append(evaluation)

    class Faulty(Annotating):
        name = "faulty"

        def annotate(self, evaluation: Evaluation) -> None:
            raise ValueError("the span has ended")

    annotated: list[Evaluation] = []
    turn = make_turn("An answer.", ["A passage."], "question")
    span = SpanReference(trace_id="a" * 32, span_id="b" * 16)
    span.within(Context(), NonRecordingSpan(SpanContext(1, 1, is_remote=False)))
    pipeline = Pipeline.build(metrics=["latency"], exporters=[Faulty(), Annotating()])
    for one in (turn, turn.model_copy(update={"span": span})):
        pipeline.submit(EndedTurn.of(one))
        assert pipeline.flush(30)
    stats = pipeline.stats()
    pipeline.shutdown(10)

    assert [evaluation.turn.span for evaluation in annotated] == [span]  # the other turn has no span
    assert stats["export_errors"] == 1
    assert "the exporter faulty failed [RAGEVAL-207]" in caplog.text


def test_a_shared_exporter_is_closed_with_the_last_pipeline_that_uses_it() -> None:
    """Pipelines that name the same exporter share one."""
    made: list[InMemoryExporter] = []

    class Shared(InMemoryExporter):
        name = "shared"

        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    first, second = (Pipeline.build(metrics=[], exporters=[Shared]) for _ in range(2))
    first.shutdown(10)
    [exporter] = made
    assert not exporter.closed
    second.submit(EndedTurn.of(make_turn("An answer.", ["A passage."], "question")))
    assert second.flush(30)
    second.shutdown(10)

    assert exporter.closed
    assert len(exporter.evaluations) == 1


@pytest.mark.parametrize("method", ["flush", "shutdown"])
def test_an_exporter_that_fails_at_the_end_is_counted(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """The others are flushed and shut down all the same."""

    class Faulty(InMemoryExporter):
        name = "faulty"

        def flush(self, timeout: float) -> bool:
            if method == "flush":
                raise ValueError("no connection was ever opened")
            return True

        def shutdown(self, timeout: float) -> bool:
            if method == "shutdown":
                raise ValueError("no connection was ever opened")
            return True

    working = InMemoryExporter()
    pipeline = Pipeline.build(metrics=["latency"], exporters=[Faulty(), working])
    assert pipeline.flush(30) is (method == "shutdown")
    assert not pipeline.shutdown(30)

    assert pipeline.stats()["internal_errors"] == (2 if method == "flush" else 1)
    assert f"the exporter faulty failed to {method}: no connection was ever opened [RAGEVAL-208]" in caplog.text
    assert working.closed


def test_a_turn_whose_export_has_no_place_in_the_queue_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its scores were computed. The first turn is being exported, and the second one waits."""
    gate = threading.Event()

    class Slow(InMemoryExporter):
        def export(self, evaluation: Evaluation) -> None:
            assert gate.wait(30)
            super().export(evaluation)

    monkeypatch.setattr("rageval_hooks.online.delivery._CAPACITY", 2)
    exporter = Slow()
    pipeline = Pipeline.build(metrics=["latency"], exporters=[exporter])
    for number in range(3):
        pipeline.submit(EndedTurn.of(make_turn("An answer.", ["A passage."], f"question {number}")))
        # The threads have done their part.
        assert TURN_POOL.wait(30)
    gate.set()
    assert pipeline.flush(30)
    dropped = pipeline.stats()["dropped_by_cause"]["queue_full"]
    pipeline.shutdown(10)

    assert (len(exporter.evaluations), dropped) == (2, 1)
    assert "turns wait for their export: newer ones are dropped [RAGEVAL-202]" in caplog.text
