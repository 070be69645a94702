"""What ``rageval-hooks doctor`` says about installed instrumentors."""

from __future__ import annotations

import importlib.metadata

import pytest

from rageval_hooks.integrations.opentelemetry import instrumentors
from rageval_hooks.integrations.opentelemetry.instrumentors import Finding, installed_instrumentors

GENAI = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "http,gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_AND_EVENT",
}


class Installed:
    def __init__(self, name: str) -> None:
        self.metadata, self.version = {"Name": name}, "1.0"


def finding(name: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Finding:
    monkeypatch.setattr(instrumentors, "distributions", lambda: [Installed(name), Installed("requests")])
    [found] = installed_instrumentors(environment)
    return found


@pytest.mark.parametrize(
    ("name", "environment", "advice"),
    [
        ("openinference_instrumentation_dspy", {}, ""),
        (
            "openinference-instrumentation-dspy",
            {"OPENINFERENCE_HIDE_INPUTS": "true"},
            "unset OPENINFERENCE_HIDE_INPUTS",
        ),
        ("opentelemetry-instrumentation-genai-openai", GENAI, ""),
        (
            "opentelemetry-instrumentation-genai-openai",
            {},
            "set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental",
        ),
        (
            "opentelemetry-instrumentation-openai-v2",
            {**GENAI, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "EVENT_ONLY"},
            "set OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
        ),
        ("opentelemetry-instrumentation-openai", {}, ""),
        ("opentelemetry-instrumentation-openai", {"TRACELOOP_TRACE_CONTENT": "false"}, "unset TRACELOOP_TRACE_CONTENT"),
        ("haystack-ai", {}, "set HAYSTACK_CONTENT_TRACING_ENABLED=true"),
        ("agent-framework-core", {}, "set ENABLE_SENSITIVE_DATA=true"),
        ("pydantic-ai-slim", {}, ""),
    ],
)
def test_the_switch_of_each_instrumentor(
    name: str, environment: dict[str, str], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is named where it is not set, and only there."""
    found = finding(name, environment, monkeypatch)
    assert found.advice.startswith(advice)
    assert bool(found.advice) == bool(advice)


def test_an_instrumentor_without_passages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is said to have none."""
    assert "no passages" in finding("opentelemetry-instrumentation-genai-smolagents", GENAI, monkeypatch).has


def test_those_that_are_installed_here() -> None:
    """Are named with their versions."""
    pytest.importorskip("openinference.instrumentation.openai")
    shown = {found.name for found in installed_instrumentors({})}
    assert f"openinference-instrumentation {importlib.metadata.version('openinference-instrumentation')}" not in shown
    assert any(name.startswith("openinference-instrumentation-openai ") for name in shown)
    assert not any("langchain" in name for name in shown)  # its callbacks capture it
