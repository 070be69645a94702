"""Scores arrive through every tracer provider that applications use; each in its own process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.exporters.collector import Collector, http_collector, values
from tests.exporters.test_providers import clean_environment

APPLICATION = """
import rageval_hooks
from rageval_hooks import Score, metric
from tests.integrations.langchain.fakes import lcel

@metric
def strict(turn):
    "A score that fails its threshold."
    return 0.5

from opentelemetry import trace
metrics = ["groundedness", "context_relevance", strict]
with rageval_hooks.instrument(
    metrics=metrics, models="lexical", exporters="otel", thresholds={"strict": 0.9}
) as handle:
    lcel().invoke("When was the pier opened?")
    assert handle.flush(20)
    stats = handle.stats()
    assert stats["internal_errors"] == stats["export_errors"] == 0, stats
provider = trace.get_tracer_provider()
if hasattr(provider, "force_flush"):
    provider.force_flush()
"""

SDK = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
"""
SETUPS = {
    "SDK": SDK
    + """
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
trace.set_tracer_provider(provider)
""",
    "OpenInference": SDK
    + """
from openinference.instrumentation import TracerProvider
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
trace.set_tracer_provider(provider)
""",
    "phoenix.otel.register": """
from phoenix.otel import register
register(endpoint=f"{url}/v1/traces", project_name="harbour", verbose=False)
""",
    "phoenix.otel.register with auto_instrument": """
from phoenix.otel import register
register(endpoint=f"{url}/v1/traces", auto_instrument=True, batch=True, verbose=False)
""",
    "Logfire": SDK
    + """
import logfire
processor = BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces"))
logfire.configure(send_to_logfire=False, console=False, metrics=False, additional_span_processors=[processor])
""",
    "Langfuse": """
from langfuse import Langfuse
Langfuse(public_key="pk-lf-harbour", secret_key="sk-lf-harbour", base_url=url)
""",
    "opentelemetry-instrument": "",
    "standard variables alone": "",
}
PACKAGES = {
    "phoenix.otel.register": "phoenix",
    "phoenix.otel.register with auto_instrument": "phoenix",
    "Logfire": "logfire",
    "Langfuse": "langfuse",
    "opentelemetry-instrument": "opentelemetry.distro",
}
STANDARD_VARIABLES = ("opentelemetry-instrument", "standard variables alone")


def run(setup: str, url: str) -> None:
    """Run the application with a set-up that sends its spans to a URL."""
    script = f"url = {url!r}\n{SETUPS[setup]}\n{APPLICATION}"
    environment = {**clean_environment(), "OTEL_PYTHON_LOG_LEVEL": "error", "LOGFIRE_IGNORE_NO_CONFIG": "1"}
    if setup in STANDARD_VARIABLES:
        environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            # The distribution instruments every library that it finds; here the chain is all that matters.
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*",
        }
    command = [sys.executable, "-W", "ignore", "-c", script]
    if setup == "opentelemetry-instrument":
        command = [str(Path(sys.executable).with_name("opentelemetry-instrument")), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr


class Trace:
    """The spans of one turn at the other end.

    Attributes:
        spans: by name.
        root: the span of the turn.
        evaluation: the span of the results.
    """

    def __init__(self, spans: list[Span]) -> None:
        self.spans = {span.name: span for span in spans}
        [self.root] = [span for span in spans if not span.parent_span_id]
        [self.evaluation] = [span for span in spans if span.name.startswith("evaluate")]


@pytest.fixture(scope="module", params=SETUPS)
def trace(request: pytest.FixtureRequest) -> Iterator[Trace]:
    """The trace of one turn, as a collector received it."""
    package = PACKAGES.get(request.param, "opentelemetry")
    if find_spec(package.split(".")[0]) is None or find_spec(package) is None:
        pytest.skip(f'{package} is not installed: pip install "rageval-hooks[compat]"')
    with http_collector() as collector:
        run(request.param, collector.url)
        yield Trace(received(collector))


def received(collector: Collector) -> list[Span]:
    """Return what came; Logfire sends a placeholder first, while a span is open."""
    return [span for span in collector.spans if values(span).get("logfire.span_type") != "pending_span"]


def test_the_scores_arrive_in_the_turns_trace(trace: Trace) -> None:
    """On one evaluation span below the span of the turn."""
    found = values(trace.evaluation)

    assert trace.evaluation.trace_id == trace.root.trace_id
    assert trace.evaluation.parent_span_id == trace.root.span_id
    assert 0 < found["rageval.score.groundedness"] <= 1
    assert found["rageval.score.strict"] == 0.5


def test_every_result_is_on_the_span(trace: Trace) -> None:
    """Each once, as attributes."""
    scores = {name.removeprefix("rageval.score.") for name in values(trace.evaluation) if "rageval.score." in name}

    assert scores == {"groundedness", "context_relevance", "strict"}
    assert not trace.evaluation.events


def test_what_failed_can_be_searched_for(trace: Trace) -> None:
    """By a label on the span of the turn, or on the evaluation where another tracer made the span of the turn."""
    external = "rageval.turn.id" not in values(trace.root)
    found = values(trace.evaluation if external else trace.root)

    assert found["rageval.label.strict"] == "fail"
