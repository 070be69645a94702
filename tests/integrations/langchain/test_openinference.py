"""If OpenInference traces the application already, only evaluation spans are added, below its spans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from tests.integrations.langchain.fakes import lcel

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:openinference")


@pytest.fixture
def traced() -> Iterator[tuple[TracerProvider, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield provider, exporter
    instrumentor.uninstrument()


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
def test_scores_stand_below_the_span_of_the_chain(traced: Any, way: str) -> None:
    """There is no second span for the turn or its steps. One EVALUATOR span is a child of the chain's span."""
    provider, exporter = traced
    with rageval_hooks.instrument(metrics=["latency", "unsupported_facts"], tracer_provider=provider) as handle:
        if way == "stream":
            list(lcel().stream("When?"))
        elif way == "ainvoke":
            asyncio.run(lcel().ainvoke("When?"))
        else:
            lcel().invoke("When?")
        assert handle.flush(10)

    spans = exporter.get_finished_spans()
    [root] = [span for span in spans if span.parent is None]
    ours = [span for span in spans if span.instrumentation_scope.name == "rageval_hooks"]
    assert root.name == "RunnableSequence"
    assert [span.name for span in ours] == ["evaluate"]
    assert {span.parent.span_id for span in ours} == {root.context.span_id}
    assert {span.context.trace_id for span in ours} == {root.context.trace_id}
    assert {link.context.span_id for span in ours for link in span.links} == {root.context.span_id}


def test_a_chain_without_retrieval_adds_nothing(traced: Any) -> None:
    """Nothing is evaluated, so there is no EVALUATOR span."""
    from tests.integrations.langchain.fakes import PROMPT, model

    provider, exporter = traced
    with rageval_hooks.instrument(metrics=["latency"], tracer_provider=provider) as handle:
        (PROMPT | model()).invoke({"context": "x", "question": "When?"})
        assert handle.flush(10)

    assert not [span for span in exporter.get_finished_spans() if span.instrumentation_scope.name == "rageval_hooks"]


@pytest.mark.parametrize("order", ["ours first", "ours last"])
def test_scores_of_passages_name_the_retrievers_span(traced: Any, order: str) -> None:
    """That span has ended, so an event has its id and the passage's position, and a link leads to it."""
    provider, exporter = traced
    with rageval_hooks.instrument(metrics=["context_relevance"], models="lexical", tracer_provider=provider) as handle:
        if order == "ours first":
            instrumentor = LangChainInstrumentor()
            instrumentor.uninstrument()
            instrumentor.instrument(tracer_provider=provider)
        lcel().invoke("When was the pier opened?")
        assert handle.flush(10)

    spans = {span.name: span for span in exporter.get_finished_spans()}
    retriever, evaluation = spans["ScriptedRetriever"], spans["evaluate context_relevance"]
    events = [dict(event.attributes) for event in evaluation.events]
    places = [(event["rageval.target.span_id"], event["rageval.target.document_position"]) for event in events[-2:]]
    span_id = f"{retriever.context.span_id:016x}"
    assert places == [(span_id, 0), (span_id, 1)]
    assert evaluation.links[-1].context.span_id == retriever.context.span_id
