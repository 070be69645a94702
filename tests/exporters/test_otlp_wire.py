"""What leaves is plain OTLP, over HTTP and over gRPC: read back with the classes of opentelemetry-proto."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status

from tests.exporters.collector import Collector, grpc_collector, http_collector
from tests.judges.server import JudgeServer, answer
from tests.online.test_judge_stage import LABELS
from tests.warm import run_warm_script

APPLICATION = """
import rageval_hooks
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from tests.integrations.langchain.fakes import lcel

metrics = ["groundedness", "unsupported_facts", "context_relevance", "tokens", "trace"]
rageval_hooks.instrument(metrics=metrics, models="lexical", judge="openai:judge-model")
state = TraceState([("vendor", "harbour")])
parent = SpanContext(0xABCDEF0123456789ABCDEF0123456789, 0x1234567890ABCDEF, True, TraceFlags(1), state)
with trace.use_span(NonRecordingSpan(parent)):
    lcel().invoke("When was the pier opened?")
"""


@dataclass
class Received:
    """What a collector got from the application, and when it ran: nanoseconds since the epoch."""

    collector: Collector
    started: int
    ended: int

    def span(self, name: str) -> Span:
        [span] = [span for span in self.collector.spans if span.name == name]
        return span

    @property
    def resource(self) -> dict[str, Any]:
        return attributes(self.collector.requests[0].resource_spans[0].resource)


def attributes(holder: Any) -> dict[str, Any]:
    """Return attributes with the names of their types: ``("double_value", 0.5)``."""
    found = {}
    for item in holder.attributes:
        kind = item.value.WhichOneof("value")
        value = getattr(item.value, kind)
        found[item.key] = (kind, [v.string_value for v in value.values] if kind == "array_value" else value)
    return found


@pytest.fixture(scope="module", params=["http/protobuf", "grpc"])
def received(request: pytest.FixtureRequest) -> Received:
    """The spans of an application in another process, which ends at once after its one turn."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_"))}
    collecting = grpc_collector() if request.param == "grpc" else http_collector()
    with collecting as collector, JudgeServer() as judge:
        judge.otherwise(answer(LABELS))
        started = time.time_ns()
        variables = {
            **clean,
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": judge.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": request.param,
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
            "OTEL_SERVICE_NAME": "harbour",
            "RAGEVAL_EXPORTERS": "otel",
            "RAGEVAL_THRESHOLDS": "groundedness=0.5",
            # A busy machine is given time.
            "RAGEVAL_INLINE_BUDGET_MS": "20000",
            "RAGEVAL_DRAIN_TIMEOUT": "60",
        }
        done = run_warm_script(APPLICATION, environment=variables)
    assert done.stderr == ""
    return Received(collector, started, time.time_ns())


def test_ids_and_parents(received: Received) -> None:
    """In the application's trace: the turn below the span that was current, its steps and evaluations below it."""
    turn = received.span("rag RunnableSequence")

    assert {span.trace_id.hex() for span in received.collector.spans} == {"abcdef0123456789abcdef0123456789"}
    assert turn.parent_span_id.hex() == "1234567890abcdef"
    others = [span for span in received.collector.spans if span is not turn]
    assert {span.parent_span_id for span in others} == {turn.span_id}
    assert sorted(span.name for span in others) == [
        "chat scripted-1-2026",
        "evaluate",
        "evaluate trace",
        "retrieval ScriptedRetriever",
    ]
    ids = [span.span_id for span in received.collector.spans]
    assert len(set(ids)) == len(ids) == 5
    assert set(map(len, ids)) == {8}


def test_what_the_application_said_about_the_trace_is_kept(received: Received) -> None:
    """The tracestate, and that the parent is in another process."""
    turn = received.span("rag RunnableSequence")

    assert {span.trace_state for span in received.collector.spans} == {"vendor=harbour"}
    assert turn.flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
    assert not received.span("evaluate").flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


def test_evaluations_are_linked_to_the_turn(received: Received) -> None:
    """Then to the retriever, if passages have scores; no other span has links."""
    turn, late = received.span("rag RunnableSequence"), received.span("evaluate trace")
    retriever = received.span("retrieval ScriptedRetriever")

    links = received.span("evaluate").links
    assert [link.span_id for link in links] == [turn.span_id, retriever.span_id]
    assert (late.links[0].trace_id, late.links[0].span_id) == (turn.trace_id, turn.span_id)
    assert [span.name for span in received.collector.spans if span.links] == ["evaluate", "evaluate trace"]


def test_the_scope_has_a_schema(received: Received) -> None:
    """So that a backend can tell which version of the conventions the names follow."""
    [scope] = {
        scope.schema_url
        for request in received.collector.requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
    }

    assert scope == "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"


def test_times(received: Received) -> None:
    """Real ones; steps lie inside the turn, and late scores do not reach beyond its end."""
    turn = received.span("rag RunnableSequence")

    assert received.started <= turn.start_time_unix_nano < turn.end_time_unix_nano <= received.ended
    for span in received.collector.spans:
        assert turn.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano <= turn.end_time_unix_nano


def test_attributes_have_types(received: Received) -> None:
    """Scores are doubles, labels strings, token counts integers."""
    turn = attributes(received.span("rag RunnableSequence"))
    inline = attributes(received.span("evaluate"))
    late = attributes(received.span("evaluate trace"))
    model = attributes(received.span("chat scripted-1-2026"))
    retriever = attributes(received.span("retrieval ScriptedRetriever"))

    kind, value = turn["rageval.score.groundedness"]
    assert kind == "double_value"
    assert 0 < value <= 1
    assert turn["rageval.label.groundedness"] == ("string_value", "pass")
    assert turn["rageval.score.unsupported_facts"] == ("double_value", 0.0)
    assert inline["rageval.explanation.groundedness"][0] == "string_value"
    assert inline["rageval.passage_scores.context_relevance"][0] == "string_value"
    assert late["rageval.score.trace.adherence"] == ("double_value", 1.0)
    assert late["openinference.span.kind"] == ("string_value", "EVALUATOR")
    assert model["gen_ai.usage.input_tokens"] == ("int_value", 40)
    assert model["llm.token_count.prompt"] == ("int_value", 40)
    assert retriever["retrieval.documents.0.document.score"] == ("double_value", 0.9)
    assert received.resource["service.name"] == ("string_value", "harbour")


def test_the_judge_adds_nothing_to_the_applications_tokens(received: Received) -> None:
    """Its usage stands under names of our own, and nothing has failed."""
    late = attributes(received.span("evaluate trace"))

    assert not [name for name in late if name.startswith(("llm.token_count", "gen_ai.usage", "llm.cost"))]
    assert {span.status.code for span in received.collector.spans} <= {Status.STATUS_CODE_UNSET, Status.STATUS_CODE_OK}
