"""A score that is missing: its trace says why, whatever the cause. The file of a spool and budgets have own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks import LocalMetric, Skipped
from rageval_hooks.errors import JudgeUnavailableError, ModelUnavailableError
from rageval_hooks.judges.base import Judge
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.testing import FakeJudge


class Broken(LocalMetric):
    name = "broken"

    def evaluate(self, analysis: TurnAnalysis) -> float:
        raise LookupError("no such key")


class WithoutModel(LocalMetric):
    name = "without_model"

    def evaluate(self, analysis: TurnAnalysis) -> float:
        raise ModelUnavailableError("nlp", "the pipeline is not installed")


class Silent(LocalMetric):
    name = "silent"

    def evaluate(self, analysis: TurnAnalysis) -> Skipped:
        return Skipped(name="silent", reason="")


class Hanging(Judge):
    name = "hanging"
    model = "model"

    async def complete(self, messages: Any, schema: Any, *, parameters: Any = None) -> Any:
        await asyncio.sleep(3600)


def unreachable(_: Any) -> Any:
    raise JudgeUnavailableError("the server failed")


def reasons(response: str = "It was opened in 2019.", timeout: float = 60, **arguments: Any) -> Mapping[str, Any]:
    """Return the attributes of a turn's spans that say why a score is missing."""
    provider, spans = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    handle = rageval_hooks.instrument(tracer_provider=provider, exporters=["otel"], **arguments)
    with rageval_hooks.start_turn("When was the pier opened?") as turn:
        turn.add_passages(["The pier was opened in 2019."])
        turn.respond(response)
    handle.shutdown(timeout)
    found = {name: value for span in spans.get_finished_spans() for name, value in (span.attributes or {}).items()}
    return {name: found[name] for name in found if name.startswith(("rageval.skipped.", "rageval.failed."))}


@pytest.mark.parametrize(
    ("arguments", "attribute", "reason"),
    [
        ({"metrics": ["groundedness"], "response": "..."}, "skipped.groundedness", "no words"),
        ({"metrics": [Broken()]}, "failed.broken", "LookupError: no such key"),
        ({"metrics": [Silent()]}, "skipped.silent", "the metric gives no reason"),
        ({"metrics": [Broken()], "inline_budget_ms": 0}, "failed.broken", "LookupError: no such key"),
        ({"metrics": ["trace"], "judge": FakeJudge(unreachable)}, "failed.trace", "unavailable: the server failed"),
        ({"metrics": ["trace"], "judge": Hanging(), "timeout": 0.5}, "skipped.trace", "did not wait for it"),
    ],
    ids=["inline", "metric that raises", "metric without a reason", "late", "judged", "shutdown"],
)
def test_the_trace_says_why_a_score_is_missing(arguments: dict[str, Any], attribute: str, reason: str) -> None:
    found = reasons(models="lexical", **arguments)

    assert reason in found[f"rageval.{attribute}"]


def test_a_missing_model_is_on_every_trace() -> None:
    """Although tables and the log name it once."""
    for _ in range(2):
        found = reasons(metrics=[WithoutModel()], models="lexical")
        assert found["rageval.skipped.without_model"] == "nlp: the pipeline is not installed"
