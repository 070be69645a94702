from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rageval_hooks import GroundingGuard, metric

PASSAGE = "The new pier was opened in September 2019. It is 200 metres long."
SUPPORTED = "The new pier was opened in September 2019."
UNSUPPORTED = "Penguins eat purple bicycles on Mars."
FALLBACK = "I have no answer to that."


@dataclass
class Traced:
    """A tracer provider, and the spans that it got."""

    provider: TracerProvider = field(default_factory=TracerProvider)
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def __post_init__(self) -> None:
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def decisions(self) -> Sequence[ReadableSpan]:
        spans = self.exporter.get_finished_spans()
        return [span for span in spans if span.attributes["openinference.span.kind"] == "GUARDRAIL"]

    @property
    def decision(self) -> ReadableSpan:
        [span] = self.decisions
        return span


@pytest.fixture
def traced() -> Traced:
    return Traced()


def make_guard(traced: Traced | None = None, **options: Any) -> GroundingGuard:
    """A guard without model weights and without a tight timeout."""
    defaults = {"models": "lexical", "on_fail": "replace", "fallback": FALLBACK, "timeout_ms": 20_000}
    provider = None if traced is None else traced.provider
    return GroundingGuard(**{**defaults, "tracer_provider": provider, **options})


@pytest.fixture
def hanging() -> Iterator[Any]:
    """A metric whose model hangs until the end of the test."""
    released = Event()

    @metric(name="hanging_model", requires=("response",))
    def hanging_model(turn: Any) -> float:
        released.wait()
        return 1.0

    yield hanging_model
    released.set()
    # Until the threads are free again, other checks fail at once.
    while make_guard().check(SUPPORTED, [PASSAGE]).verdict != "supported":
        pass
