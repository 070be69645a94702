"""The span of a turn: its kind, whose completion was evaluated, and tokens that its model calls have too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks import Score, Step, metric
from rageval_hooks.exporters.otel import OtelExporter
from tests.exporters.scored_turns import SPAN, evaluation
from tests.integrations.langchain.fakes import join, retriever
from tests.judges.server import JudgeServer, answer

QUESTION = "When did the pier open?"


@metric
def judged(turn: Any) -> Score:
    """A score with the id of the judge's completion."""
    return Score(name="judged", value=1.0, metadata={"judge": {"response_id": "chatcmpl-judge"}})


@tool
def search(query: str) -> str:
    """Search the handbook."""
    return join(retriever().invoke(query))


class BreakingOff(BaseChatModel):
    """Writes a few words, and then loses its connection."""

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for word in ("The ", "pier ", "opened "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        raise ConnectionError("the server is gone")


def spans_of(call: Any) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with rageval_hooks.instrument(metrics=[judged], exporters=["otel"], tracer_provider=provider) as handle:
        with contextlib.suppress(ConnectionError):
            call()
        assert handle.flush(30)
    return list(exporter.get_finished_spans())


def root_of(spans: list[ReadableSpan]) -> Mapping[str, Any]:
    [root] = [span for span in spans if span.parent is None]
    return dict(root.attributes or {})


def of_kind(spans: list[ReadableSpan], kind: str) -> list[ReadableSpan]:
    return [span for span in spans if (span.attributes or {})["openinference.span.kind"] == kind]


def test_a_turn_of_an_agent_is_an_agent() -> None:
    """In the terms of OpenInference and of the GenAI conventions."""
    with JudgeServer() as server:
        server.then(answer({"query": "the pier"}, tool="search", signed=False, finish_reason="tool_calls"))
        server.otherwise(answer("In 2019.", signed=False))
        model = ChatOpenAI(model="gpt-5-mini", base_url=server.url, api_key="sk-test")
        agent = create_agent(model, [search], name="harbour")
        root = root_of(spans_of(lambda: agent.invoke({"messages": [("user", QUESTION)]})))

    assert root["openinference.span.kind"] == "AGENT"
    assert root["gen_ai.operation.name"] == "invoke_agent"
    assert root["gen_ai.agent.name"] == "harbour"


def test_an_evaluation_names_the_completion_that_was_evaluated() -> None:
    """Not the judge's, which is under a name of ours. The requested model and the one that answered are told apart."""
    with JudgeServer() as server:
        server.otherwise(answer("In 2019.", signed=False, model="gpt-5-mini-2026-01-01"))
        model = ChatOpenAI(model="gpt-5-mini", base_url=server.url, api_key="sk-test")
        spans = spans_of(lambda: (retriever() | join | model).invoke(QUESTION))

    [call] = of_kind(spans, "LLM")
    [evaluation] = of_kind(spans, "EVALUATOR")
    written = dict(call.attributes or {})
    assert (evaluation.attributes or {})["gen_ai.response.id"] == written["gen_ai.response.id"] != "chatcmpl-judge"
    assert written["gen_ai.request.model"] == "gpt-5-mini"
    assert written["gen_ai.response.model"] == "gpt-5-mini-2026-01-01"


def test_a_failed_model_call_has_the_tokens_that_its_turn_has() -> None:
    """The call read a prompt and wrote some words before it failed."""
    chain = retriever() | join | BreakingOff()
    spans = spans_of(lambda: list(chain.stream(QUESTION)))

    [call] = of_kind(spans, "LLM")
    root, written = root_of(spans), dict(call.attributes or {})
    assert written["error.type"] == "ConnectionError"
    assert written["llm.token_count.prompt"] == written["gen_ai.usage.input_tokens"] == root["rageval.tokens.input"] > 0
    assert written["llm.token_count.completion"] == root["rageval.tokens.output"] > 0


class OpaqueTracer(trace.Tracer):
    """A tracer that hides the SDK's, so that span ids cannot be chosen."""

    def __init__(self, hidden: trace.Tracer) -> None:
        self._hidden = hidden

    def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
        return self._hidden.start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._hidden.start_as_current_span(*args, **kwargs)


class OpaqueProvider(trace.TracerProvider):
    """A provider of such tracers."""

    def __init__(self, hidden: TracerProvider) -> None:
        self._hidden = hidden

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        return OpaqueTracer(self._hidden.get_tracer(*args, **kwargs))


def test_an_evaluation_is_below_its_turn_where_the_provider_chooses_the_ids() -> None:
    """The turn's span then has other ids than we had reserved for it."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    exporter = OtelExporter(OpaqueProvider(provider), log_events=False, score_metrics=False)
    exporter.export(evaluation(Score(name="faithfulness", value=0.5)))
    [turn] = [span for span in memory.get_finished_spans() if span.parent is None]
    [below] = [span for span in memory.get_finished_spans() if span.name == "evaluate faithfulness"]

    assert turn.context is not None
    assert below.parent is not None
    assert below.parent.span_id == turn.context.span_id != int(SPAN, 16)


class Tenants(SpanProcessor):
    """Copies a value of the baggage, as applications do."""

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        span.set_attribute("tenant", str(baggage.get_baggage("tenant", parent_context)))


def test_the_spans_of_a_turn_of_another_process_have_its_baggage() -> None:
    """A worker of Celery, for example: the context of the request is not there, and its baggage is."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Tenants())
    provider.add_span_processor(SimpleSpanProcessor(memory))
    found = evaluation(Score(name="faithfulness", value=0.5))
    assert found.turn.span is not None
    span = found.turn.span.model_copy(update={"baggage": {"tenant": "north"}})
    turn = found.turn.model_copy(update={"span": span})
    OtelExporter(provider, log_events=False, score_metrics=False).export(found.model_copy(update={"turn": turn}))

    spans = memory.get_finished_spans()
    assert len(spans) > 1
    assert {(span.attributes or {})["tenant"] for span in spans} == {"north"}


def test_the_span_of_a_reranker_has_its_query() -> None:
    """Under OpenInference's name for it."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    step = Step(id="s", kind="reranker", name="Rerank", started_at=0, ended_at=1, input="pier opening")
    found = evaluation(Score(name="faithfulness", value=0.5))
    turn = found.turn.model_copy(update={"steps": (step,)})
    OtelExporter(provider, log_events=False, score_metrics=False).export(found.model_copy(update={"turn": turn}))

    [span] = of_kind(list(memory.get_finished_spans()), "RERANKER")
    assert (span.attributes or {})["reranker.query"] == "pier opening"
