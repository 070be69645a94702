"""Where spans go: the application's provider, a standard OTLP endpoint, else the console; each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from rageval_hooks.exporters.otel.providers import QueuedExporter
from tests.exporters.collector import Collector, http_collector, values
from tests.exporters.phoenix.test_exporter import Server as PhoenixServer
from tests.exporters.phoenix.test_exporter import serving
from tests.interpreter import run_script
from tests.warm import run_warm_script

PRELUDE = """
import logging, os, sys, json
logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s %(message)s")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import rageval_hooks
from tests.integrations.langchain.fakes import lcel

def provider():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter

def names(exporter):
    return sorted(span.name for span in exporter.get_finished_spans())
"""


def clean_environment() -> dict[str, str]:
    """Return the environment without settings of OpenTelemetry and Phoenix, and with one of ours."""
    foreign = ("OTEL_", "RAGEVAL_", "PHOENIX_", "OPENINFERENCE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "RAGEVAL_INLINE_BUDGET_MS": "20000"}  # as in tests/conftest.py


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a separate process."""
    return run_warm_script(PRELUDE + script, environment={**clean_environment(), **environment})


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as collector:
        yield collector


def test_the_applications_provider_serves() -> None:
    """The global provider, and it stays the application's."""
    result = run("""
app, exporter = provider()
trace.set_tracer_provider(app)
with rageval_hooks.instrument(metrics=[]) as handle:
    lcel().invoke("When?")
assert trace.get_tracer_provider() is app
print(json.dumps(names(exporter)))
""")

    assert json.loads(result.stdout) == ["chat scripted-1-2026", "rag RunnableSequence", "retrieval ScriptedRetriever"]


def test_a_provider_that_is_set_afterwards_serves_too() -> None:
    """Frameworks often set theirs up after the imports."""
    result = run("""
handle = rageval_hooks.instrument(metrics=[])
app, exporter = provider()
trace.set_tracer_provider(app)
lcel().invoke("When?")
handle.flush()
print(json.dumps(names(exporter)))
""")

    assert "rag RunnableSequence" in json.loads(result.stdout)
    assert result.stderr == ""


def test_the_standard_variables_are_enough(collector: Collector) -> None:
    """With an endpoint and no provider, spans go there; at exit nothing is lost, and no global provider is set."""
    result = run(
        """
rageval_hooks.instrument(metrics=["latency"])
lcel().invoke("When?")
print(type(trace.get_tracer_provider()).__name__)
""",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_SERVICE_NAME="handbook",
    )

    assert result.stdout.strip() == "ProxyTracerProvider"
    assert sorted(span.name for span in collector.spans) == [
        "chat scripted-1-2026",
        "evaluate latency",
        "rag RunnableSequence",
        "retrieval ScriptedRetriever",
    ]
    [request] = collector.requests
    resource = {item.key: item.value.string_value for item in request.resource_spans[0].resource.attributes}
    assert resource["service.name"] == "handbook"
    assert collector.paths == ["/v1/traces"]


def test_an_exporter_that_is_not_installed() -> None:
    """The application runs, and one line says what to install."""
    result = run(
        """
sys.modules["opentelemetry.exporter.otlp.proto.http.trace_exporter"] = None
rageval_hooks.instrument(metrics=["latency"])
for question in ("When?", "Where?"):
    print(lcel().invoke(question))
""",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
    )

    assert len(result.stdout.splitlines()) == 2
    assert result.stderr.count('pip install "rageval-hooks[otlp]" [RAGEVAL-102]') == 1


def test_without_anything_the_console_has_a_summary() -> None:
    """And one line says how to send traces; standard output stays the application's."""
    result = run("""
rageval_hooks.instrument(metrics=["latency"])
lcel().invoke("When?")
lcel().invoke("Where?")
""")

    assert result.stdout == ""
    assert result.stderr.count("OTEL_EXPORTER_OTLP_ENDPOINT") == 2  # both in the one line
    assert result.stderr.count("no OpenTelemetry TracerProvider is set") == 1
    assert "question: Where?" in result.stderr
    assert "latency.retrieval" in result.stderr


def test_a_provider_that_shuts_down_at_exit_still_gets_everything(collector: Collector) -> None:
    """Our drain comes before the provider's own handler, which was registered earlier or later."""
    errors = run_script(
        PRELUDE
        + """
os.dup2(1, 2)  # the test reads one stream
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
rageval_hooks.instrument(metrics=["latency"], inline_budget_ms=0)
lcel().invoke("before there is a provider")
app = TracerProvider()
app.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(app)
for number in range(20):
    lcel().invoke(f"question {number}")
""",
        **dict.fromkeys(os.environ.keys() - clean_environment().keys()),
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
    )

    assert errors == ""
    turns = [span for span in collector.spans if span.name == "rag RunnableSequence"]
    late = [span for span in collector.spans if span.name == "evaluate latency"]
    assert len(turns) == len(late) == 21


@pytest.mark.parametrize("variable", ["OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"])
def test_our_own_provider_keeps_the_limit_of_attributes(collector: Collector, variable: str) -> None:
    """As the SDK's provider does; without the limit there are more."""
    application = 'rageval_hooks.instrument(metrics=["latency"])\nlcel().invoke("When?")'
    run(application, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    assert min(len(span.attributes) for span in collector.spans) > 12
    collector.requests.clear()
    run(application, **{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, variable: "12"})

    assert {len(span.attributes) for span in collector.spans} == {12}


TWO_PROVIDERS = """
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor

app, exporter = provider()
trace.set_tracer_provider(app)
other = TracerProvider()
other.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(os.environ["OTHER"] + "/v1/traces")))
LangChainInstrumentor().instrument(tracer_provider=other)
handle = rageval_hooks.instrument(metrics=["faithfulness"], models="lexical", exporters=["otel", "auto"])
lcel().invoke("When was the pier opened?")
assert handle.flush(20)
print(json.dumps([names(exporter), handle.stats()["exporters"]]))
"""


def test_an_evaluation_goes_where_the_span_of_its_turn_goes() -> None:
    """The application's global provider is one, and OpenInference's spans go to a Phoenix through another."""
    phoenix = PhoenixServer()
    phoenix.collector = collector = Collector("")
    with serving(phoenix):
        result = run(TWO_PROVIDERS, OTHER=phoenix.url)
    in_application, stats = json.loads(result.stdout)

    assert in_application == []
    assert {"RunnableSequence", "evaluate faithfulness"} <= {span.name for span in collector.spans}
    assert [item["name"] for item in phoenix.stored] == ["faithfulness"]
    assert stats["phoenix-auto"]["delivered"] > 0


def test_phoenixs_own_variable_alone_is_enough() -> None:
    """As in Phoenix's own packages: the endpoint, the key and the project come from its variables."""
    phoenix = PhoenixServer()
    phoenix.collector = collector = Collector("")
    with serving(phoenix):
        result = run(
            """
handle = rageval_hooks.instrument(metrics=["faithfulness"], models="lexical")
lcel().invoke("When was the pier opened?")
print(json.dumps([handle.flush(20), handle.stats()["exporters"]]))
""",
            PHOENIX_COLLECTOR_ENDPOINT=phoenix.url,
            PHOENIX_API_KEY="px-key",
            PHOENIX_PROJECT_NAME="harbour",
        )
    flushed, stats = json.loads(result.stdout)

    assert flushed is True
    assert {"rag RunnableSequence", "evaluate faithfulness"} <= {span.name for span in collector.spans}
    [resource, *_] = [values(found.resource) for request in collector.requests for found in request.resource_spans]
    assert resource["openinference.project.name"] == "harbour"
    assert phoenix.posts[-1][2]["authorization"] == "Bearer px-key"
    assert [item["name"] for item in phoenix.stored] == ["faithfulness"]
    assert phoenix.configs[-1]["path"] == "/v1/projects/harbour/annotation_configs/faithfulness"
    assert stats["otel"]["delivered"] == 4
    assert stats["phoenix-auto"]["handed_over"] == 0


def test_scores_whose_spans_go_nowhere_make_a_flush_false() -> None:
    """Phoenix would look for the spans in vain, and nobody would know."""
    phoenix = PhoenixServer()
    phoenix.collector = Collector("")
    with serving(phoenix):
        result = run(
            """
app, exporter = provider()
trace.set_tracer_provider(app)
handle = rageval_hooks.instrument(
    metrics=["faithfulness"], models="lexical", exporters=["otel", "phoenix"], phoenix_endpoint=os.environ["ENDPOINT"]
)
lcel().invoke("When was the pier opened?")
print(json.dumps([handle.flush(60), handle.stats()["exporters"]]))
""",
            ENDPOINT=phoenix.url,
            OTEL_BSP_SCHEDULE_DELAY="0",
        )
    flushed, stats = json.loads(result.stdout)

    assert flushed is False
    assert stats["phoenix"]["handed_over"] == 2  # of the span and of the trace


def test_spans_that_a_collector_refuses_are_export_errors(collector: Collector) -> None:
    """The log says how many at once, and not that time has run out."""
    collector.status = 400
    result = run(
        """
handle = rageval_hooks.instrument(metrics=["latency"], exporters=["otel"])
lcel().invoke("When?")
print(json.dumps([handle.flush(15), handle.stats()["export_errors"], handle.stats()["exporters"]["otel"]]))
""",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
    )
    flushed, errors, stats = json.loads(result.stdout)

    assert flushed is False
    assert errors == stats["rejected"] == 4
    assert "the exporter otel has not delivered everything (4 rejected) [RAGEVAL-218]" in result.stderr
    assert "seconds [RAGEVAL-218]" not in result.stderr


def test_a_collector_that_answers_with_a_page_has_taken_everything() -> None:
    """Some answer with JSON, or with nothing: only a count of refused spans is an error."""
    refused = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=2))
    for content, rejected in ((b"<html>ok</html>", 0), (b"", 0), (refused.SerializeToString(), 2)):
        sent = QueuedExporter("spans", "test", 1)
        sent.read_response(SimpleNamespace(status_code=200, ok=True, content=content))
        assert (sent._status, sent._rejected) == (200, rejected)


def test_metrics_that_are_too_large_for_a_request_are_rejected_alone() -> None:
    """An export of metrics cannot be halved as a list of spans is; the next one goes out."""
    sent = QueuedExporter("metrics", "test", 1)

    def export(batch: str) -> Any:
        sent._status = 413 if batch == "large" else 200
        return SimpleNamespace(name="SUCCESS" if batch == "small" else "FAILURE")

    sent.exporter = SimpleNamespace(export=export)
    first, second = sent.post("one by one", ["large", "small"])
    assert str(first) == "answers 413: it is too large"
    assert second is None
