"""A chain that another tracer traces already: the scores are added to its spans, in both orders of instrumenting."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.trace import SpanContext

import rageval_hooks
from rageval_hooks.integrations.langchain import CallbackHandler, other_tracers
from tests.integrations.langchain.fakes import PROMPT, lcel, model
from tests.integrations.other_tracers import LANGCHAIN, Finished, in_order, recording_provider

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUESTION = "When was the pier opened?"

each_tracer = pytest.mark.parametrize("tracer", LANGCHAIN)
each_order = pytest.mark.parametrize("order", ["theirs first", "ours first"])


@contextmanager
def ours(provider: TracerProvider, **settings: Any) -> Iterator[rageval_hooks.Instrumentation]:
    settings = {"metrics": ["unsupported_facts", "context_relevance"], "models": "lexical", **settings}
    with rageval_hooks.instrument(tracer_provider=provider, exporters=["otel"], **settings) as handle:
        yield handle
        assert handle.flush(10)
        assert handle.stats()["internal_errors"] == handle.stats()["export_errors"] == 0


def ask(config: dict[str, Any], way: str = "invoke") -> None:
    """Ask in a context that ends with the question: some tracers leave a span in it."""
    copy_context().run(_ask, config, way)


def _ask(config: dict[str, Any], way: str) -> None:
    if way == "stream":
        list(lcel().stream(QUESTION, config))
    elif way == "ainvoke":
        asyncio.run(lcel().ainvoke(QUESTION, config))
    elif way == "astream":

        async def read() -> None:
            async for _ in lcel().astream(QUESTION, config):
                pass

        asyncio.run(read())
    else:
        lcel().invoke(QUESTION, config)


def traced(tracer: str, order: str = "theirs first", way: str = "invoke", **settings: Any) -> Finished:
    """Return the spans of one call with another tracer and us."""
    provider, exporter = recording_provider()
    with in_order(order, LANGCHAIN[tracer](provider), ours(provider, **settings)) as (config, _):
        ask(config, way)
    return Finished(exporter)


@each_order
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
@each_tracer
def test_the_scores_are_below_the_span_of_the_chain(tracer: str, way: str, order: str) -> None:
    """One trace, no second span for the turn or its steps; one EVALUATOR span, a child of theirs and linked to it."""
    spans = traced(tracer, order, way)

    [root] = spans.roots
    [evaluation] = spans.ours
    assert root.instrumentation_scope.name != "rageval_hooks"
    assert evaluation.name == "evaluate"
    assert evaluation.parent.span_id == root.context.span_id
    assert evaluation.links[0].context.span_id == root.context.span_id
    assert len(spans.traces) == 1
    if tracer != "LangSmith":  # when its span ends is not known in time
        assert root.start_time <= evaluation.start_time < evaluation.end_time <= root.end_time


@each_order
@each_tracer
def test_scores_of_passages_name_the_retrievers_span(tracer: str, order: str) -> None:
    """That span has ended: a link leads there."""
    spans = traced(tracer, order)

    [evaluation] = spans.ours
    assert len(json.loads(evaluation.attributes["rageval.passage_scores.context_relevance"])) == 2
    assert evaluation.links[-1].attributes["rageval.link.target"] == "passages"
    assert spans.by_id[evaluation.links[-1].context.span_id].name in (
        "ScriptedRetriever",
        "vector_db_retrieve ScriptedRetriever",
        "retrieval",
    )


@each_tracer
def test_below_a_span_of_the_application_everything_is_in_its_trace(tracer: str) -> None:
    """Theirs is a child of the application's span, and the scores are below theirs."""
    provider, exporter = recording_provider()
    with (
        in_order("theirs first", LANGCHAIN[tracer](provider), ours(provider)) as (config, _),
        provider.get_tracer("application").start_as_current_span("request"),
    ):
        ask(config)
    spans = Finished(exporter)

    [root] = spans.roots
    [evaluation] = spans.ours
    assert root.name == "request"
    assert spans.parent(spans.parent(evaluation)) is root
    assert len(spans.traces) == 1


@each_tracer
def test_all_spans_on_request(tracer: str) -> None:
    """With ``spans="rag"`` there are both: our turn is below their span, in the same trace."""
    spans = traced(tracer, spans="rag")

    [root] = spans.roots
    turn = next(span for span in spans.ours if span.name.startswith("rag "))
    assert turn.parent.span_id == root.context.span_id
    assert {span.name for span in spans.ours} == {
        "rag RunnableSequence",
        "retrieval ScriptedRetriever",
        "chat scripted-1-2026",
        "evaluate",
    }
    assert len(spans.traces) == 1
    assert len(spans.by_id) == len(spans.all)


@pytest.mark.parametrize("tracer", ["OpenInference", "OpenLLMetry", "Langfuse"])
def test_a_turn_around_the_chain_is_in_the_trace_of_the_chain(tracer: str) -> None:
    """``start_turn`` marks it, so it has a span of ours; the retriever and the model have theirs alone."""
    provider, exporter = recording_provider()
    with (
        in_order("theirs first", LANGCHAIN[tracer](provider), ours(provider)) as (config, _),
        rageval_hooks.start_turn(QUESTION) as turn,
    ):
        ask(config)
        turn.respond("It was opened in 2019.")
    spans = Finished(exporter)

    assert [span.name for span in spans.ours] == ["rag turn", "evaluate"]
    assert len(spans.traces) == 1


@pytest.mark.parametrize("tracer", ["OpenInference", "OpenLLMetry", "GenAI", "Langfuse"])
def test_exactly_the_traces_that_are_recorded_have_scores(tracer: str) -> None:
    """The provider samples them: a turn follows the decision for the other tracer's span."""
    provider, exporter = recording_provider(TraceIdRatioBased(0.5))
    with in_order("theirs first", LANGCHAIN[tracer](provider), ours(provider)) as (config, handle):
        for _ in range(20):
            ask(config)
        assert handle.flush(10)
        evaluated = handle.stats()["evaluated"]
    spans = Finished(exporter)

    assert 0 < len(spans.roots) < 20
    assert {span.parent.span_id for span in spans.ours} == {root.context.span_id for root in spans.roots}
    assert evaluated == len(spans.roots)


def test_a_run_that_langsmith_samples_out_has_a_trace_of_ours() -> None:
    """LangSmith decides after the run. Scores below a span that it never makes would have no trace."""
    from langsmith import run_trees

    provider, exporter = recording_provider()
    with LANGCHAIN["LangSmith"](provider) as config, pytest.MonkeyPatch.context() as patch, ours(provider):
        patch.setattr(run_trees._CLIENT, "tracing_sample_rate", 0.0)
        ask(config)
    spans = Finished(exporter)

    assert [span.name for span in spans.roots] == ["rag RunnableSequence"]
    assert spans.ours == list(spans.all)


def test_a_span_that_langsmith_has_made_already() -> None:
    """Its thread may be faster than our handler: the scores are below that span, and not below one that never comes."""
    from langsmith import run_trees

    provider, exporter = recording_provider()
    with LANGCHAIN["LangSmith"](provider) as config, ours(provider):
        run_id, span = uuid4(), provider.get_tracer("langsmith").start_span("made before")
        run_trees._CLIENT.otel_exporter._span_info.set(run_id, span)
        ask(config | {"run_id": run_id})
        run_trees._CLIENT.flush()
    spans = Finished(exporter)

    assert [evaluation.parent.span_id for evaluation in spans.ours] == [span.get_span_context().span_id]


def test_the_spans_that_langsmith_has_not_made_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may never make them: the oldest is forgotten."""
    monkeypatch.setattr(other_tracers, "_REMEMBERED", 1)
    monkeypatch.setattr(other_tracers, "_chosen", OrderedDict())
    monkeypatch.setattr(other_tracers, "_pending", set())
    traced("LangSmith")

    assert len(other_tracers._chosen) == 1
    assert len(other_tracers._pending) <= 1


def test_only_scores_without_another_tracer() -> None:
    """With ``spans="scores"`` the turn has a span of ours, and no steps."""
    provider, exporter = recording_provider()
    with ours(provider, spans="scores"):
        ask({})

    assert [span.name for span in Finished(exporter).all] == ["rag RunnableSequence", "evaluate"]


@each_tracer
def test_a_chain_without_retrieval_adds_nothing(tracer: str) -> None:
    """There is nothing that was evaluated."""
    provider, exporter = recording_provider()
    with in_order("theirs first", LANGCHAIN[tracer](provider), ours(provider)) as (config, _):
        copy_context().run((PROMPT | model()).invoke, {"context": "x", "question": "When?"}, config)

    assert not Finished(exporter).ours


@each_tracer
def test_a_failing_chain_is_on_their_span_too(tracer: str) -> None:
    """The model raises: what could be evaluated is below their span."""

    def fail(_: Any) -> Any:
        raise RuntimeError("no model")

    provider, exporter = recording_provider()
    with (
        in_order("theirs first", LANGCHAIN[tracer](provider), ours(provider)) as (config, _),
        pytest.raises(RuntimeError, match="no model"),
    ):
        copy_context().run((lcel() | fail).invoke, QUESTION, config)
    spans = Finished(exporter)

    [root] = spans.roots
    assert {span.parent.span_id for span in spans.ours} <= {root.context.span_id}
    assert len(spans.traces) == 1


@each_tracer
def test_concurrent_calls_keep_their_scores(tracer: str) -> None:
    """Each in its own trace."""
    provider, exporter = recording_provider()

    async def ask_all(config: dict[str, Any]) -> None:
        await asyncio.gather(*(lcel().ainvoke(f"{QUESTION} {number}", config) for number in range(5)))

    with in_order("theirs first", LANGCHAIN[tracer](provider), ours(provider)) as (config, _):
        asyncio.run(ask_all(config))
    spans = Finished(exporter)

    assert len(spans.traces) == len(spans.roots) == len(spans.ours) == 5
    assert {span.parent.span_id for span in spans.ours} == {root.context.span_id for root in spans.roots}


@pytest.mark.parametrize("tracer", ["OpenInference", "OpenLLMetry", "GenAI"])
def test_an_open_span_gets_the_main_scores(tracer: str) -> None:
    """A handler that is passed to the call comes before those of instrumentors, whose span is then still open."""
    provider, exporter = recording_provider()
    handler = CallbackHandler(
        metrics=["unsupported_facts"], models="lexical", tracer_provider=provider, exporters=["otel"]
    )
    with LANGCHAIN[tracer](provider):
        ask({"callbacks": [handler]})
        assert handler.flush(10)
    spans = Finished(exporter)

    [root] = spans.roots
    assert root.attributes["rageval.label.unsupported_facts"] == "pass"
    assert [spans.parent(span) for span in spans.ours] == [root]


def test_a_function_with_traceable_around_the_chain() -> None:
    """The chain is in the trace of LangSmith's function: the scores follow, as soon as that span exists."""
    from langsmith import run_trees, traceable

    provider, exporter = recording_provider()
    with in_order("theirs first", LANGCHAIN["LangSmith"](provider), ours(provider)) as (config, _):

        @traceable
        def answer() -> None:
            run_trees._CLIENT.flush()
            ask(config)

        answer()
    spans = Finished(exporter)

    [evaluation] = spans.ours
    assert spans.parent(evaluation).name == "RunnableSequence"
    assert spans.parent(spans.parent(evaluation)).name == "answer"
    assert len(spans.traces) == 1


def test_afterwards_the_other_tracers_are_as_before() -> None:
    """The methods that were wrapped are the original ones."""
    LangchainCallbackHandler = pytest.importorskip("langfuse.langchain.CallbackHandler").LangchainCallbackHandler
    from langsmith._internal.otel._otel_exporter import OTELExporter

    before = vars(LangchainCallbackHandler)["_attach_observation"], vars(OTELExporter)["_create_span_for_run"]
    with rageval_hooks.instrument(metrics=["latency"], exporters=[]):
        during = vars(LangchainCallbackHandler)["_attach_observation"], vars(OTELExporter)["_create_span_for_run"]
    after = vars(LangchainCallbackHandler)["_attach_observation"], vars(OTELExporter)["_create_span_for_run"]

    assert after == before
    assert not set(during) & set(before)


def test_another_version_of_a_tracer_costs_only_its_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """If spans are kept elsewhere, the turn has spans of ours, and nothing fails."""
    OpenInferenceTracer = pytest.importorskip("openinference.instrumentation.langchain._tracer").OpenInferenceTracer

    monkeypatch.delattr(OpenInferenceTracer, "get_span")
    spans = traced("OpenInference")

    assert "rag RunnableSequence" in {span.name for span in spans.ours}


@pytest.mark.parametrize("tracer", ["Langfuse", "LangSmith"])
def test_a_version_that_is_too_new_is_left_alone(tracer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its private methods are not wrapped, and the turn has spans of ours."""
    # A run of an earlier test whose span LangSmith never made keeps the wrapper in place.
    monkeypatch.setattr(other_tracers, "_pending", set())
    other_tracers.unwatch()
    monkeypatch.setattr("rageval_hooks.integrations.langchain.wrapped_methods.version", lambda distribution: "7.1rc2")
    spans = traced(tracer, "ours first")

    assert "rag RunnableSequence" in {span.name for span in spans.ours}


def test_the_log_names_the_tracer_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """So a missing span of ours is no riddle."""
    monkeypatch.setattr("rageval_hooks.integrations.capture.trace_context._named", set())
    caplog.set_level("INFO")
    traced("OpenInference")
    traced("OpenInference")

    line = "openinference.instrumentation.langchain makes spans, so the scores are added to those"
    assert caplog.text.count(line) == 1


def test_an_invalid_span_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer that is switched off makes spans without ids."""
    OpenInferenceTracer = pytest.importorskip("openinference.instrumentation.langchain._tracer").OpenInferenceTracer
    from opentelemetry.trace import NonRecordingSpan

    nothing = NonRecordingSpan(SpanContext(0, 0, is_remote=False))
    monkeypatch.setattr(OpenInferenceTracer, "get_span", lambda self, run_id: nothing)
    spans = traced("OpenInference")

    assert "rag RunnableSequence" in {span.name for span in spans.ours}
