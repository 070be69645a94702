"""Scores on the evaluation's span as Braintrust reads them."""

from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rageval_hooks import Score
from rageval_hooks.exporters.otel import OtelExporter
from tests.exporters.scored_turns import RESULTS, evaluation


@pytest.mark.parametrize(
    ("endpoint", "headers", "is_braintrust"),
    [
        ("https://api-eu.braintrust.dev/otel", "", True),
        ("https://data-plane.example.com/otel", "x-bt-parent=project_name:harbour", True),
        ("http://localhost:4318", "", False),
    ],
)
def test_where_the_spans_go_to_braintrust(
    endpoint: str, headers: str, is_braintrust: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation is a span of its kind of score. It takes shares only: no seconds, no counts."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    count = Score(name="unsupported_facts", value=3, high=None)
    OtelExporter(provider, log_events=False, score_metrics=False).export(evaluation(*RESULTS, count))

    [found] = [span.attributes or {} for span in spans.get_finished_spans() if span.name.startswith("evaluate")]
    assert ("braintrust.scores" in found) is is_braintrust
    if is_braintrust:
        scores = json.loads(str(found["braintrust.scores"]))
        assert scores == {"groundedness": 0.123456, "trace.adherence": 1.0}
        assert json.loads(str(found["braintrust.span_attributes"])) == {"type": "score"}
