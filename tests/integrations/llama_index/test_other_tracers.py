"""A query engine that another tracer traces already: the scores are added to its spans, in both orders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.llama_index import other_tracers
from tests.integrations.llama_index.test_endings import engine
from tests.integrations.other_tracers import LLAMA_INDEX, Finished, in_order, recording_provider

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."

COMPLETE = ("OpenInference", "OpenLLMetry")
"""The tracers that make a span for a query. GenAI's makes them for retrievers, tools, agents and workflows only."""

each_order = pytest.mark.parametrize("order", ["theirs first", "ours first"])
each_way = pytest.mark.parametrize("way", ["query", "aquery", "stream"])


@contextmanager
def ours(provider: TracerProvider, **settings: Any) -> Iterator[rageval_hooks.Instrumentation]:
    settings = {"metrics": ["unsupported_facts", "context_relevance"], "models": "lexical", **settings}
    with rageval_hooks.instrument(tracer_provider=provider, exporters=["otel"], **settings) as handle:
        yield handle
        assert handle.flush(10)
        assert handle.stats()["internal_errors"] == handle.stats()["export_errors"] == 0
        assert len(shared_recorder()) == 0


def ask(way: str) -> None:
    """Ask in a context that ends with the question: OpenLLMetry leaves its span in it after a stream."""
    copy_context().run(_ask, way)


def _ask(way: str) -> None:
    async def main() -> None:
        await engine().aquery(QUESTION)

    if way == "query":
        engine().query(QUESTION)
    elif way == "aquery":
        asyncio.run(main())
    else:
        assert "".join(engine(streaming=True).query(QUESTION).response_gen) == ANSWER


def traced(tracer: str, order: str, way: str = "query", **settings: Any) -> Finished:
    """Return the spans of one query with another tracer and us."""
    provider, exporter = recording_provider()
    with in_order(order, LLAMA_INDEX[tracer](provider), ours(provider, **settings)):
        ask(way)
    return Finished(exporter)


@each_order
@each_way
@pytest.mark.parametrize("tracer", COMPLETE)
def test_the_scores_are_below_the_span_of_the_query(tracer: str, way: str, order: str) -> None:
    """One trace, no second span for the turn or its steps; one EVALUATOR span, a child of theirs and linked to it."""
    if (tracer, way) == ("OpenLLMetry", "stream"):
        pytest.skip("OpenLLMetry 0.62 never ends the span of a query whose answer is streamed")
    spans = traced(tracer, order, way)

    [root] = spans.roots
    [evaluation] = spans.ours
    assert root.name.startswith("RetrieverQueryEngine.")
    assert evaluation.name == "evaluate"
    assert evaluation.parent.span_id == root.context.span_id
    assert evaluation.links[0].context.span_id == root.context.span_id
    assert len(spans.traces) == 1


@each_order
def test_a_streamed_answer_is_scored_below_openllmetrys_span(order: str) -> None:
    """It keeps the span elsewhere while the answer streams, and (0.62) never ends it, so that it is not exported."""
    spans = traced("OpenLLMetry", order, "stream")

    [evaluation] = spans.ours
    assert evaluation.name == "evaluate"
    assert evaluation.parent.span_id not in spans.by_id
    assert len(spans.traces) == 1


@each_order
@each_way
def test_a_tracer_of_retrievers_only_gets_no_second_retriever(way: str, order: str) -> None:
    """The turn and the model call are spans of ours, the retrieval is theirs, and all are in one trace."""
    spans = traced("GenAI", order, way)

    assert sorted(span.name for span in spans.ours) == [
        "chat scripted-1-2026",
        "evaluate",
        "rag RetrieverQueryEngine",
    ]
    assert [span.name for span in spans.all if span not in spans.ours] == ["retrieval"]
    assert len(spans.traces) == 1


@each_order
@pytest.mark.parametrize("tracer", LLAMA_INDEX)
def test_scores_of_passages_name_the_retrievers_span(tracer: str, order: str) -> None:
    """Their retriever span has ended: a link leads there."""
    spans = traced(tracer, order)

    evaluation = next(span for span in spans.ours if span.name == "evaluate")
    retriever = spans.by_id[evaluation.links[-1].context.span_id]
    assert retriever.name in ("ScriptedRetriever.retrieve", "ScriptedRetriever.task", "retrieval")
    assert evaluation.links[-1].attributes["rageval.link.target"] == "passages"
    assert json.loads(evaluation.attributes["rageval.passage_scores.context_relevance"])


@each_order
@each_way
@pytest.mark.parametrize("tracer", LLAMA_INDEX)
def test_their_spans_are_as_without_us(tracer: str, way: str, order: str) -> None:
    """Neither which spans they make nor how these end changes, also where an answer is streamed."""
    provider, exporter = recording_provider()
    with LLAMA_INDEX[tracer](provider):
        ask(way)
    alone = Finished(exporter)
    both = traced(tracer, order, way)

    def outcome(spans: Finished) -> list[tuple[str, str]]:
        theirs = [span for span in spans.all if span.instrumentation_scope.name != "rageval_hooks"]
        return sorted((span.name, span.status.status_code.name) for span in theirs)

    assert outcome(both) == outcome(alone)


def test_another_version_of_a_tracer_costs_only_its_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """If spans are kept elsewhere, the turn has spans of ours, and nothing fails."""
    readers = {"openinference.instrumentation.llama_index.": lambda kept: kept.moved}
    monkeypatch.setattr(other_tracers, "_READERS", readers)
    spans = traced("OpenInference", "theirs first")

    assert "rag RetrieverQueryEngine" in {span.name for span in spans.ours}
