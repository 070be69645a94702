"""If OpenInference traces the application already, only evaluation spans are added, below its spans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from tests.integrations.llama_index.test_endings import engine

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:openinference")

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


@contextmanager
def openinference(provider: TracerProvider) -> Iterator[None]:
    instrumentor = LlamaIndexInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        yield
    finally:
        instrumentor.uninstrument()


@contextmanager
def rageval(provider: TracerProvider) -> Iterator[None]:
    with rageval_hooks.instrument(metrics=["latency", "unsupported_facts"], tracer_provider=provider) as handle:
        yield
        assert handle.flush(10)
        assert handle.stats()["internal_errors"] == 0
        assert len(shared_recorder()) == 0


@contextmanager
def relevance(provider: TracerProvider) -> Iterator[None]:
    with rageval_hooks.instrument(metrics=["context_relevance"], models="lexical", tracer_provider=provider) as handle:
        yield
        assert handle.flush(10)


def ask(way: str) -> None:
    async def main() -> None:
        await engine().aquery(QUESTION)

    if way == "query":
        engine().query(QUESTION)
    elif way == "aquery":
        asyncio.run(main())
    else:
        assert "".join(engine(streaming=True).query(QUESTION).response_gen) == ANSWER


@pytest.mark.parametrize("order", ["ours last", "ours first"])
@pytest.mark.parametrize("way", ["query", "aquery", "stream"])
def test_scores_stand_below_the_span_of_the_query(way: str, order: str) -> None:
    """There is no second span for the turn or its steps. One EVALUATOR span is a child of the query's span."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    first, second = (openinference, rageval) if order == "ours last" else (rageval, openinference)
    with first(provider), second(provider):
        ask(way)

    spans = exporter.get_finished_spans()
    [root] = [span for span in spans if span.parent is None]
    ours = [span for span in spans if span.instrumentation_scope.name == "rageval_hooks"]
    assert root.name.startswith("RetrieverQueryEngine.")
    assert [span.name for span in ours] == ["evaluate"]
    assert {span.parent.span_id for span in ours} == {root.context.span_id}
    assert {span.context.trace_id for span in ours} == {root.context.trace_id}
    assert {link.context.span_id for span in ours for link in span.links} == {root.context.span_id}


@pytest.mark.parametrize("order", ["ours last", "ours first"])
def test_their_spans_are_as_without_us(order: str) -> None:
    """Following a stream changes neither which spans OpenInference makes nor how these end."""

    def names(*instrumentations: Any) -> set[tuple[str, str]]:
        exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with instrumentations[0](provider):
            if len(instrumentations) > 1:
                with instrumentations[1](provider):
                    ask("stream")
            else:
                ask("stream")
        return {
            (span.name, span.status.status_code.name)
            for span in exporter.get_finished_spans()
            if span.instrumentation_scope.name != "rageval_hooks"
        }

    both = (openinference, rageval) if order == "ours last" else (rageval, openinference)
    assert names(*both) == names(openinference)


@pytest.mark.parametrize("order", ["ours last", "ours first"])
def test_scores_of_passages_name_the_retrievers_span(order: str) -> None:
    """That span has ended, so an event has its id and the passage's position, and a link leads to it."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    first, second = (openinference, relevance) if order == "ours last" else (relevance, openinference)
    with first(provider), second(provider):
        ask("query")

    spans = {span.name: span for span in exporter.get_finished_spans()}
    retriever, evaluation = spans["ScriptedRetriever.retrieve"], spans["evaluate context_relevance"]
    event = dict(evaluation.events[-1].attributes)
    assert event["rageval.target.span_id"] == f"{retriever.context.span_id:016x}"
    assert event["rageval.target.document_position"] == 0
    assert evaluation.links[-1].context.span_id == retriever.context.span_id
