"""The recorder's table of runs: what is in progress is bounded, and a turn ends once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanContext

from rageval_hooks.integrations.capture import trace_context
from rageval_hooks.integrations.capture.recorder import Recorder, Run
from rageval_hooks.integrations.capture.trace_context import claim, is_claimed, span_reference
from rageval_hooks.integrations.langchain.handler import FRAMEWORK
from rageval_hooks.online.pipeline import Pipeline


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline.build(metrics=[], exporters=[])


def test_a_root_that_never_ends_is_given_up_by_age(pipeline: Pipeline) -> None:
    """It is removed when another root starts more than an hour later."""
    now = [0]
    recorder = Recorder(max_age=3600, clock=lambda: now[0])
    recorder.start(pipeline, "old", None, framework=FRAMEWORK, kind="chain", name="old", input="x")
    recorder.start(pipeline, "child", "old", framework=FRAMEWORK, kind="llm", name="model", input="x")
    now[0] = 3601 * 10**9
    recorder.start(pipeline, "new", None, framework=FRAMEWORK, kind="chain", name="new", input="x")

    assert recorder.given_up == 1
    assert recorder.get("child") is None
    assert len(recorder) == 1


def test_too_many_open_roots_are_given_up_oldest_first(pipeline: Pipeline) -> None:
    """Cancelled requests that never report their end do not fill the table."""
    recorder = Recorder(max_open=10)
    for number in range(100):
        recorder.start(pipeline, number, None, framework=FRAMEWORK, kind="chain", name="x", input="x")

    assert recorder.given_up == 90
    assert len(recorder) == 10
    assert isinstance(recorder.get(99), Run)


def test_a_root_with_too_many_runs_drops_the_later_ones(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """An endless agent does not fill the memory. Its turn ends, and a log line says that runs are missing."""
    recorder = Recorder(max_runs=5)
    recorder.start(pipeline, "root", None, framework=FRAMEWORK, kind="chain", name="x", input="x")
    for number in range(20):
        recorder.start(
            pipeline,
            number,
            "root" if number == 0 else number - 1,
            framework=FRAMEWORK,
            kind="llm",
            name="x",
            input="x",
        )
        recorder.end(number, "y")
    recording = recorder.end("root", "y")

    assert recording is not None
    assert len(recording.runs) == 5
    assert len(recorder) == 0
    assert "a turn has more than 5 runs; the later ones are not recorded" in caplog.text


def test_a_straggler_of_an_ended_root_is_not_a_root(pipeline: Pipeline) -> None:
    """A component that starts after its turn has ended is not recorded."""
    recorder = Recorder()
    recorder.start(pipeline, "root", None, framework=FRAMEWORK, kind="chain", name="x", input="x")
    recorder.start(pipeline, "child", "root", framework=FRAMEWORK, kind="chain", name="x", input="x")
    recorder.end("root", "y")

    assert recorder.start(pipeline, "late", "child", framework=FRAMEWORK, kind="llm", name="x", input="x") is None
    assert recorder.end("late", "y") is None
    assert len(recorder) == 0


def test_two_minutes_later_it_is_one(pipeline: Pipeline) -> None:
    """It comes from a worker that has kept the context of the old turn."""
    now = [1]
    recorder = Recorder(clock=lambda: now[0])
    recorder.start(pipeline, "root", None, framework=FRAMEWORK, kind="chain", name="x", input="x")
    recorder.start(pipeline, "child", "root", framework=FRAMEWORK, kind="chain", name="x", input="x")
    recorder.end("root", "y")
    now[0] += 121 * 10**9

    late = recorder.start(pipeline, "late", "child", framework=FRAMEWORK, kind="chain", name="x", input="x")
    assert late is not None
    assert late.parent is None


def test_only_one_caller_gets_the_ended_root(pipeline: Pipeline) -> None:
    """If two handlers report the same end, one of them gets the recording."""
    recorder = Recorder()
    recorder.start(pipeline, "root", None, framework=FRAMEWORK, kind="chain", name="x", input="x")

    assert recorder.end("root", "y") is not None
    assert recorder.end("root", "y") is None


def test_a_sampled_out_root_that_never_ends_is_only_removed(pipeline: Pipeline) -> None:
    """It would have been no turn, so none is missing."""
    recorder = Recorder(max_open=1)
    for number in range(3):
        recorder.start(pipeline, number, None, framework=FRAMEWORK, kind="chain", name="x", input="x", selected=False)

    assert (recorder.given_up, len(recorder)) == (0, 1)


def test_another_thread_changes_the_table_while_the_oldest_is_looked_for(pipeline: Pipeline) -> None:
    """Python raises then: the root that starts is recorded all the same."""

    class Changing(dict[Any, Any]):
        def values(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    recorder = Recorder(max_open=1)
    recorder._open = Changing(other=None)

    assert recorder.start(pipeline, "root", None, framework=FRAMEWORK, kind="chain", name="x", input="x") is not None


def test_a_root_whose_recording_was_interrupted_is_dropped_and_counted(pipeline: Pipeline) -> None:
    """A deadline of the application came meanwhile. What starts next under the same context is a turn of its own."""
    recorder = Recorder()
    recorder.start(pipeline, "root", None, framework=FRAMEWORK, kind="chain", name="x", input="x")
    recorder.start(pipeline, "child", "root", framework=FRAMEWORK, kind="chain", name="x", input="x")
    for _ in range(2):
        recorder.abandon("root")

    assert (len(recorder), pipeline.stats()["dropped_by_cause"]["interrupted"]) == (0, 1)
    assert recorder.end("root", "y") is None
    later = recorder.start(pipeline, "later", "child", framework=FRAMEWORK, kind="chain", name="x", input="x")
    assert later is not None
    assert later.parent is None


def test_the_spans_whose_runs_are_captured_are_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten."""
    monkeypatch.setattr(trace_context, "_MAX_CLAIMED", 2)
    for number in range(10, 13):
        claim(SpanContext(number, number, is_remote=False))

    assert [is_claimed(number, number) for number in range(10, 13)] == [False, True, True]


@pytest.mark.parametrize("inside", [True, False], ids=["in a span of the application", "alone"])
def test_the_trace_of_a_turn_in_which_another_tracer_has_a_step(pipeline: Pipeline, inside: bool) -> None:
    """The application's own span holds the trace together. Without one the turn is in the trace of the step."""
    recorder, step = Recorder(), SpanContext(0xFEED, 0xBEEF, is_remote=False)
    span = TracerProvider().get_tracer("application").start_span("request")
    around: Any = trace.use_span(span) if inside else nullcontext()
    with around:
        recorder.start(pipeline, "root", None, framework=FRAMEWORK, kind="chain", name="x", input="x")
    recording = recorder.recording("root")
    assert recording is not None
    recording.other_context = step
    found = span_reference(recording)
    recorder.forget(pipeline)

    assert int(found.trace_id, 16) == (span.get_span_context().trace_id if inside else step.trace_id)
