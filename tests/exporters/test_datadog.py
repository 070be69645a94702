"""Scores in Datadog: the same JSON as from ddtrace, to the site or through the agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from rageval_hooks import ConfigurationError
from rageval_hooks.exporters.datadog import DatadogAutoExporter, DatadogExporter
from tests.exporters.recording import RecordingServer, Reply, recording_server
from tests.exporters.score_backends import SECRET, Backend
from tests.exporters.scored_turns import ENDED_AT, RESULTS, SPAN, TRACE, deliver, evaluation

BACKEND = Backend(
    name="datadog",
    variables={"DD_API_KEY": SECRET},
    address="DD_LLMOBS_OVERRIDE_ORIGIN",
    place=("https://otlp.us3.datadoghq.com/v1/traces", "dd-otlp-source=llmobs"),
    scores=lambda body: body["data"]["attributes"]["metrics"],
    identity=lambda score: (score["join_on"]["span"]["span_id"], score["label"], score["timestamp_ms"]),
    bad_filter="evaluation `verdict`, assessment `fail`",
    filtered=lambda body: [
        (score["label"], score.get("assessment") == "fail", score.get("reasoning", ""))
        for score in body["data"]["attributes"]["metrics"]
    ],
)

# Recorded from ddtrace 4.16.0: LLMObs.submit_evaluation with DD_TRACE_OTEL_ENABLED=true, without the SDK's version.
RECORDED = {
    "event_kind": "evaluation",
    "join_on": {"span": {"span_id": str(int(SPAN, 16)), "trace_id": str(int(TRACE, 16))}},
    "label": "groundedness",
    "metric_type": "score",
    "timestamp_ms": ENDED_AT // 1_000_000,
    "score_value": 0.123456,
    "ml_app": "harbour",
    "tags": ["ml_app:harbour", "source:otel"],
    "eval_scope": "span",
    "assessment": "fail",
    "reasoning": "no passage has: 2019",
    "metadata": {"annotator": "CODE", "version": "3", "probability": 1.0, "label": "fail"},
}

# ddtrace changes a process in which it is imported, so it gets its own.
SDK = """
import json, os, sys
url, score = sys.argv[1], json.loads(sys.argv[2])
os.environ.update(
    DD_LLMOBS_OVERRIDE_ORIGIN=url, DD_TRACE_ENABLED="false", DD_INSTRUMENTATION_TELEMETRY_ENABLED="false",
    DD_REMOTE_CONFIGURATION_ENABLED="false", DD_TRACE_OTEL_ENABLED="true",
)
from ddtrace.llmobs import LLMObs
LLMObs.enable(ml_app=score["ml_app"], api_key="key", agentless_enabled=True, integrations_enabled=False)
LLMObs.submit_evaluation(
    span=score["join_on"]["span"], label=score["label"], metric_type=score["metric_type"], value=score["score_value"],
    assessment=score["assessment"], reasoning=score["reasoning"], metadata=score["metadata"],
    timestamp_ms=score["timestamp_ms"],
)
LLMObs.flush()
LLMObs.disable()
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingServer]:
    monkeypatch.setenv("DD_LLMOBS_ML_APP", "harbour")
    with recording_server(lambda _: Reply(status=202)) as server:
        yield server


def metrics(body: Any) -> list[dict[str, Any]]:
    assert body["data"]["type"] == "evaluation_metric"
    return body["data"]["attributes"]["metrics"]  # type: ignore[no-any-return]


def test_the_json_is_that_of_datadogs_sdk(server: RecordingServer) -> None:
    """As it was recorded."""
    deliver(DatadogExporter(server.url, api_key="key"), *RESULTS)
    [request] = server.requests

    assert [score["label"] for score in metrics(request.body)] == ["groundedness", "trace_adherence"]
    assert metrics(request.body)[0] == RECORDED
    assert (request.path, request.headers["dd-api-key"]) == ("/api/intake/llm-obs/v2/eval-metric", "key")


@pytest.mark.skipif(find_spec("ddtrace") is None, reason="needs the extra compat")
def test_the_recorded_json_is_that_of_the_installed_ddtrace(server: RecordingServer) -> None:
    """Its SDK is asked to send the same score."""
    subprocess.run([sys.executable, "-c", SDK, server.url, json.dumps(RECORDED)], check=True, timeout=240)
    [request] = [found for found in server.requests if found.path.endswith("eval-metric")]

    [score] = metrics(request.body)
    score["tags"] = [tag for tag in score["tags"] if not tag.startswith("ddtrace.version:")]
    assert score == RECORDED


def test_without_a_key_scores_go_through_the_agent(server: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It adds the key."""
    monkeypatch.setenv("DD_TRACE_AGENT_URL", server.url)
    deliver(DatadogExporter(), *RESULTS)
    [request] = server.requests

    assert request.path == "/evp_proxy/v2/api/intake/llm-obs/v2/eval-metric"
    assert request.headers["x-datadog-evp-subdomain"] == "api"
    assert "dd-api-key" not in request.headers


@pytest.mark.parametrize(("port", "url"), [("", "http://agent:8126"), ("9126", "http://agent:9126")])
def test_the_agent_is_where_ddtrace_finds_it(monkeypatch: pytest.MonkeyPatch, port: str, url: str) -> None:
    """By its host, at the standard port or another one."""
    monkeypatch.setenv("DD_AGENT_HOST", "agent")
    monkeypatch.setenv("DD_TRACE_AGENT_PORT", port)

    assert repr(DatadogExporter().connect()) == f"Datadog('{url}')"


@pytest.mark.parametrize(
    ("agentless", "url"),
    [("", "https://api.datadoghq.com"), ("true", "https://api.datadoghq.com"), ("0", "http://agent")],
)
def test_with_a_key_scores_go_through_an_agent_only_if_asked(
    monkeypatch: pytest.MonkeyPatch, agentless: str, url: str
) -> None:
    """By ddtrace's own variable."""
    monkeypatch.setenv("DD_TRACE_AGENT_URL", "http://agent")
    monkeypatch.setenv("DD_LLMOBS_AGENTLESS_ENABLED", agentless)

    assert repr(DatadogExporter(api_key="key").connect()) == f"Datadog('{url}')"


def test_spans_need_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not go through the agent. The error names the variable."""
    monkeypatch.setenv("DD_AGENT_HOST", "agent")
    with pytest.raises(ConfigurationError, match="set DD_API_KEY"):
        DatadogExporter().otlp_place("harbour")

    place = DatadogExporter(api_key="key").otlp_place("harbour")
    assert place.url == "https://otlp.datadoghq.com/v1/traces"
    assert place.headers == {"dd-api-key": "key", "dd-otlp-source": "llmobs"}


def test_site_key_and_name_are_those_of_the_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Datadog's own variables say nothing."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://otlp.us3.datadoghq.com/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "dd-api-key=key,dd-otlp-source=llmobs")
    provider = TracerProvider(resource=Resource({"service.name": "harbour"}), shutdown_on_exit=False)
    exporter = DatadogAutoExporter(tracer_provider=provider)
    destination = exporter.connect()
    [item] = exporter.items(evaluation(), evaluation().turn.span)  # type: ignore[arg-type]

    assert repr(destination) == "Datadog('https://api.us3.datadoghq.com')"
    assert item.body["ml_app"] == "harbour"
    destination.close()
    exporter.shutdown(1)


def test_an_agent_behind_a_unix_socket_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to set."""
    monkeypatch.setenv("DD_TRACE_AGENT_URL", "unix:///var/run/datadog/apm.socket")

    with pytest.raises(ConfigurationError, match="DD_AGENT_HOST"):
        DatadogExporter()
