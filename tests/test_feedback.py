"""``handle.feedback()``: what people say of an answer reaches every backend as the annotation of a person."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks import ConfigurationError, Exporter, SpanReference, Turn
from rageval_hooks.exporters.datadog import DatadogExporter
from rageval_hooks.exporters.langfuse import LangfuseExporter
from rageval_hooks.exporters.langsmith import LangsmithExporter
from rageval_hooks.exporters.mlflow import MlflowExporter
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.exporters.phoenix import PhoenixExporter
from rageval_hooks.testing import InMemoryExporter
from tests.exporters.recording import Recorded, RecordingServer, Reply, recording_server
from tests.exporters.test_mlflow import FakeMlflow

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "1234567890abcdef"


def given(
    *values: Any, on: Any = TRACE, exporters: Any = None, settings: dict[str, Any] | None = None, **more: Any
) -> Any:
    """Give feedback, one value after the other, and return the results that exporters got."""
    memory = InMemoryExporter()
    exporters = [memory, *(exporters or ())]
    with rageval_hooks.instrument(metrics=[], exporters=exporters, **(settings or {})) as handle:
        for value in values:
            assert handle.feedback(on, value, **more)
        assert handle.flush(10)
        stats = handle.stats()
    return [result for evaluation in memory.evaluations for result in evaluation.results], stats


@pytest.mark.parametrize(
    ("value", "number", "label"),
    [
        (True, 1, "up"),
        ("up", 1, "up"),
        ("👎", 0, "👎"),
        (False, 0, "down"),
        (4, 4, None),
        (0.25, 0.25, None),
        (" Incorrect", 0, "incorrect"),
        ("good", 1, "good"),
    ],
)
def test_values(value: Any, number: float, label: str | None) -> None:
    """Thumbs, numbers, and words that say good or bad."""
    [result], stats = given(value, comment="The year is wrong.", annotator="ada")

    assert (result.name, result.value, result.label, result.annotator) == ("feedback", number, label, "HUMAN")
    assert (result.explanation, result.metadata) == ("The year is wrong.", {"annotated_by": "ada"})
    assert stats["scores"]["feedback"]["count"] == 1
    assert stats["turns"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TRACE, "meh"), "put other words into the comment"),
        ((TRACE, float("nan")), "a number"),
        ((TRACE, None), "not None"),
        (("no trace", True), "32 hex digits, not 'no trace'"),
        ((0, True), "32 hex digits"),
        ((Turn(query="When?"), True), "has no span"),
        ((TRACE, True, {"comment": 3}), "comment"),
        ((TRACE, True, {"name": " "}), "must not be empty"),
    ],
)
def test_what_is_not_valid_is_said_at_once(arguments: Any, message: str) -> None:
    *positional, options = (*arguments, {}) if not isinstance(arguments[-1], dict) else arguments
    with rageval_hooks.instrument(metrics=[], exporters=[]) as handle, pytest.raises(ConfigurationError, match=message):
        handle.feedback(*positional, **options)


@pytest.mark.parametrize("trace", [TRACE, int(TRACE, 16), f"tr-{TRACE}", "0AF76519-16cd-43dd-8448-eb211c80319c"])
def test_a_trace_is_known_by_its_id(trace: Any) -> None:
    """As OpenTelemetry, MLflow and LangSmith write it."""
    memory = InMemoryExporter()
    given(True, on=trace, exporters=[memory])

    [evaluation] = memory.evaluations
    assert evaluation.turn.span is not None
    assert evaluation.turn.span.trace_id == TRACE


@pytest.mark.parametrize("settings", [{}, {"sample_rate": 0.0}])
def test_an_open_turn_knows_its_trace(settings: dict[str, Any]) -> None:
    """Inside the block and after it, also if it was sampled out; a block inside it has the same."""
    memory = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[memory], **settings) as handle:
        with rageval_hooks.start_turn("When?") as turn, rageval_hooks.start_turn("And when?") as inner:
            turn.add_passages(["The pier was opened in 2019."])
            turn.respond("In 2019.")
            seen = (turn.trace_id, inner.trace_id)
        handle.flush(10)

    assert seen == (turn.trace_id, turn.trace_id)
    assert int(turn.trace_id, 16)
    assert [item.turn.span and item.turn.span.trace_id for item in memory.evaluations] == [seen[0]] * (not settings)


def test_the_trace_of_an_open_turn_may_be_the_applications() -> None:
    provider = TracerProvider()
    with (
        rageval_hooks.instrument(metrics=[], exporters=[]),
        provider.get_tracer("app").start_as_current_span("chat") as span,
    ):
        with rageval_hooks.start_turn("When?") as turn:
            turn.respond("In 2019.")
        assert int(turn.trace_id, 16) == span.get_span_context().trace_id
    with rageval_hooks.start_turn("When?") as turn:
        pass
    assert turn.trace_id == ""


def test_the_turn_may_have_been_sampled_out() -> None:
    """People speak of answers that nobody evaluated, too."""
    [result], stats = given(False, settings={"sample_rate": 0.0})

    assert result.value == 0
    assert stats["sampled_out"] == 0


@pytest.mark.parametrize("settings", [{"enabled": False}, {}])
def test_nothing_is_taken_when_it_is_off(settings: dict[str, Any]) -> None:
    memory = InMemoryExporter()
    handle = rageval_hooks.instrument(metrics=[], exporters=[memory], **settings)
    handle.shutdown()

    assert handle.feedback(TRACE, True) is False
    assert memory.evaluations == []


def test_comment_and_annotator_are_private() -> None:
    """The comment is redacted, and omitted where texts are; ids are hashed where those of users are."""
    said: dict[str, Any] = {"comment": "Write to ada@example.org", "annotator": "ada"}
    [redacted], _ = given(True, settings={"redact": True}, **said)
    [hidden], _ = given(True, settings={"capture_content": False}, **said)
    [hashed], _ = given(True, settings={"id_salt": "a secret salt"}, **said)

    assert "ada@" not in redacted.explanation
    assert (hidden.explanation, hidden.value, hidden.metadata) == (None, 1, {"annotated_by": "ada"})
    assert hashed.metadata["annotated_by"].startswith("hashed-")


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    with recording_server() as server:
        yield server


def of_turn() -> Turn:
    return Turn(id="t", query="When?", response="In 2019.", span=SpanReference(trace_id=TRACE, span_id=SPAN))


def test_phoenix(server: RecordingServer) -> None:
    """An annotation of the trace, and of the turn's span if that is known; another word of the person replaces it."""
    given(True, False, exporters=[PhoenixExporter(server.url)], comment="No.", annotator="ada")
    given(3, on=of_turn(), exporters=[PhoenixExporter(server.url)], name="stars")

    on_traces = [item for body in server.posted("/trace_annotations") for item in body["data"]]
    on_spans = [item for body in server.posted("/span_annotations") for item in body["data"]]
    assert [item["result"].get("label") for item in on_traces] == ["up", "down", None]
    assert {item["annotator_kind"] for item in on_traces} == {"HUMAN"}
    assert {item["identifier"] for item in on_traces[:2]} == {"rageval-hooks feedback ada"}
    assert on_traces[1]["result"] == {"score": 0, "label": "down", "explanation": "No."}
    assert [(item["span_id"], item["name"], item["result"]) for item in on_spans] == [(SPAN, "stars", {"score": 3})]


def test_mlflow() -> None:
    """A feedback of a person on the trace; another word of the same person overrides it, and that of another stays."""
    store = FakeMlflow()
    with recording_server(store) as server:
        given(True, exporters=[MlflowExporter(server.url)], annotator="ada")
        given(False, exporters=[MlflowExporter(server.url)], annotator="ada", comment="No.")
        given(4, exporters=[MlflowExporter(server.url)])

    first, second, third = store.stored
    assert [item["source"] for item in store.stored] == [
        {"source_type": "HUMAN", "source_id": name} for name in ("ada", "ada", "user")
    ]
    assert [item["feedback"]["value"] for item in store.stored] == [True, False, 4]
    assert (first["trace_id"], first["span_id"], second["rationale"]) == (f"tr-{TRACE}", None, "No.")
    assert (second["overrides"], third.get("overrides")) == (first["assessment_id"], None)


def test_quick_changes_of_mind_are_stored_in_their_order() -> None:
    """Requests of a batch go out side by side, but not those of people: the last word would be any of them."""
    store = FakeMlflow()
    with recording_server(store) as server:
        given(*[True, False] * 5, exporters=[MlflowExporter(server.url)], annotator="ada")

    assert [item["feedback"]["value"] for item in store.stored] == [True, False] * 5
    assert [item.get("overrides") for item in store.stored] == [
        None,
        *(item["assessment_id"] for item in store.stored[:-1]),
    ]


@pytest.mark.parametrize(
    ("make", "path", "expected"),
    [
        (
            lambda url: LangfuseExporter(url, public_key="p", secret_key="s"),
            "/scores",
            {"traceId": TRACE, "name": "feedback", "value": 1.0, "dataType": "NUMERIC", "comment": "Yes."},
        ),
        (
            lambda url: LangsmithExporter(url, api_key="k"),
            "/feedback",
            {"run_id": "0af76519-16cd-43dd-8448-eb211c80319c", "key": "feedback", "score": 1.0, "comment": "Yes."},
        ),
    ],
    ids=["langfuse", "langsmith"],
)
def test_score_apis(
    make: Callable[[str], Exporter], path: str, expected: dict[str, Any], server: RecordingServer
) -> None:
    """A score of the trace, with the same id for what the same person says later."""
    server.respond = lambda request: Reply(body=[{"id": "p"}] if request.path.endswith("/sessions") else {})
    given(True, exporters=[make(server.url)], comment="Yes.")
    given(False, exporters=[make(server.url)])

    first, second = server.posted(path)
    assert expected.items() <= first.items()
    assert first["id"] == second["id"]


def test_langsmith_changes_the_feedback_of_a_person(server: RecordingServer) -> None:
    def respond(request: Recorded) -> Reply:
        if request.path.endswith("/sessions"):
            return Reply(body=[{"id": "p"}])
        return Reply(status=409 if request.method == "POST" else 200)

    server.respond = respond
    given(False, exporters=[LangsmithExporter(server.url, api_key="k")])

    [patched] = [request for request in server.requests if request.method == "PATCH"]
    assert (patched.body["score"], patched.body["value"]) == (0, "down")


def test_a_backend_that_needs_a_span_counts_what_has_none(server: RecordingServer) -> None:
    _, stats = given(True, exporters=[DatadogExporter(server.url, api_key="k")])

    assert stats["exporters"]["datadog"]["unplaced"] == 1
    assert server.requests == []


def test_opentelemetry() -> None:
    """A log event in the trace. A span needs the turn's: it would be a second root."""
    events, spans = InMemoryLogRecordExporter(), InMemorySpanExporter()
    logs, traces = LoggerProvider(), TracerProvider()
    logs.add_log_record_processor(SimpleLogRecordProcessor(events))
    traces.add_span_processor(SimpleSpanProcessor(spans))
    exporter = OtelExporter(traces, logger_provider=logs)
    given(True, exporters=[exporter], comment="Yes.")
    given(True, on=of_turn(), exporters=[OtelExporter(traces, logger_provider=logs)])

    first, second = [event.log_record for event in events.get_finished_logs()]
    assert (f"{first.trace_id:032x}", first.span_id) == (TRACE, 0)
    assert first.attributes is not None
    assert first.attributes["rageval.annotator"] == "HUMAN"
    assert first.attributes["gen_ai.evaluation.explanation"] == "Yes."
    assert f"{second.span_id:016x}" == SPAN
    [span] = spans.get_finished_spans()
    assert (span.name, span.parent and f"{span.parent.span_id:016x}") == ("evaluate feedback", SPAN)


def test_a_line_in_a_file_and_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scores.jsonl"
    given(False, exporters=["jsonl", "console"], comment="No.", settings={"jsonl_path": str(path)})

    [line] = map(json.loads, path.read_text().splitlines())
    assert line["turn"]["span"]["trace_id"] == TRACE
    assert line["results"][0]["annotator"] == "HUMAN"
    assert f"later scores of: trace {TRACE}" in capsys.readouterr().err
