"""Python's shared random numbers belong to the application: not one of them is drawn by the library."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

import rageval_hooks
from rageval_hooks.runtime.tracing import most_attributes, sdk_tracer
from tests.integrations.langchain.fakes import lcel
from tests.online.processes import run


def test_a_seeded_experiment_draws_the_same_numbers() -> None:
    """Capture, scores and spans, in the calling thread and in ours: the application's numbers stay as they were."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    random.seed(42)
    expected = [random.random() for _ in range(6)]
    random.seed(42)
    with rageval_hooks.instrument(metrics=["latency"], tracer_provider=provider, inline_budget_ms=0) as handle:
        numbers = []
        for _ in range(3):
            numbers.append(random.random())
            lcel().invoke("How far is the Moon?")
            numbers.append(random.random())
        assert handle.flush(10)
    assert len(spans.get_finished_spans()) >= 9
    assert numbers == expected


def test_the_same_seed_does_not_give_two_runs_the_same_trace() -> None:
    provider = TracerProvider()
    traces = []
    with rageval_hooks.instrument(
        metrics=["latency"],
        tracer_provider=provider,
        on_evaluation=lambda evaluation: traces.append(evaluation.turn.span),
    ) as handle:
        for _ in range(2):
            random.seed(42)
            lcel().invoke("How far is the Moon?")
        assert handle.flush(10)
    assert len({span.trace_id for span in traces if span}) == 2
    assert len({span.span_id for span in traces if span}) == 2


class _TenantIds(RandomIdGenerator):
    """An application's own ids: its traces begin with its tenant's number."""

    def generate_trace_id(self) -> int:
        return 0xACE << 116 | super().generate_trace_id() >> 12


def test_an_applications_own_ids_are_kept() -> None:
    provider = TracerProvider(id_generator=_TenantIds())
    turns = []
    with rageval_hooks.instrument(
        metrics=["latency"], tracer_provider=provider, on_evaluation=lambda evaluation: turns.append(evaluation.turn)
    ) as handle:
        lcel().invoke("How far is the Moon?")
        assert handle.flush(10)
    assert [turn.span.trace_id[:3] for turn in turns if turn.span] == ["ace"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_workers_do_not_share_their_ids(tmp_path: Path) -> None:
    evaluations, _ = run(
        """
rageval_hooks.instrument(metrics=["latency"])
children = []
for number in range(3):
    child = os.fork()
    if not child:
        lcel().invoke(f"question {number}")
        rageval_hooks.instrument(metrics=["latency"]).flush(10)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
""",
        tmp_path,
    )
    assert len(evaluations) == 3
    assert len({evaluation["turn"]["span"]["trace_id"] for evaluation in evaluations}) == 3


def test_a_wrapper_of_itself_has_no_tracer_inside() -> None:
    """Wrappers are followed for a few steps only."""

    class Wrapper:
        @property
        def _tracer(self) -> Wrapper:
            return self

    assert sdk_tracer(Wrapper()) is None
    assert most_attributes(Wrapper()) is None
