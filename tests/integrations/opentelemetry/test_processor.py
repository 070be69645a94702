"""Turns from spans while the application runs: spans that start and end through a provider, with ``instrument()``."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer, set_span_in_context

import rageval_hooks
from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.integrations.opentelemetry import processor as processors
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Passage, Turn
from tests.integrations.langchain import fakes as langchain
from tests.integrations.llama_index import fakes as llama_index
from tests.integrations.opentelemetry.recorded import (
    ANSWER,
    CONVENTIONS,
    PASSAGE,
    PROMPT,
    QUESTION,
    load,
    names,
    said,
    text,
)
from tests.integrations.other_tracers import LANGCHAIN, LLAMA_INDEX, Finished, in_order, recording_provider

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Traced:
    """An instrumented process with a provider of its own."""

    def __init__(self, provider: TracerProvider, spans: Any, handle: Any, exporter: InMemoryExporter) -> None:
        self.provider, self.spans, self.handle, self.exporter = provider, spans, handle, exporter
        self.tracer: Tracer = provider.get_tracer("app")

    @property
    def evaluations(self) -> list[Any]:
        assert self.handle.flush(30)
        return [one for one in self.exporter.evaluations if one.stage == "inline"]

    @property
    def turns(self) -> list[Turn]:
        return [one.turn for one in self.evaluations]

    @property
    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = self.handle.stats()
        assert stats["internal_errors"] == 0
        traced: dict[str, Any] = stats["traced"]
        return traced


@contextmanager
def instrumented(**settings: Any) -> Iterator[Traced]:
    provider, spans = recording_provider()
    exporter = InMemoryExporter()
    settings = {"metrics": [], "exporters": [exporter, "otel"], **settings}
    with rageval_hooks.instrument(tracer_provider=provider, **settings) as handle:
        yield Traced(provider, spans, handle, exporter)


@pytest.fixture
def traced() -> Iterator[Traced]:
    with instrumented() as found:
        yield found


def nanoseconds(moment: str) -> int:
    return round(datetime.datetime.fromisoformat(moment).timestamp() * 1e6) * 1000


def replay(tracer: Tracer, spans: list[dict[str, Any]]) -> None:
    """Start and end spans in their order."""
    by_id = {span["context"]["span_id"]: span for span in spans}

    def depth(span: dict[str, Any]) -> int:
        around = by_id.get(span["parent_id"])
        return 0 if around is None else 1 + depth(around)

    moments = [(nanoseconds(span["start_time"]), 0, depth(span), number) for number, span in enumerate(spans)]
    moments += [(nanoseconds(span["end_time"]), 1, -depth(span), number) for number, span in enumerate(spans)]
    live: dict[str, Any] = {}
    for moment, is_end, _, number in sorted(moments):
        span = spans[number]
        if not is_end:
            parent = live.get(span["parent_id"])
            context = Context() if parent is None else set_span_in_context(parent, Context())
            live[span["context"]["span_id"]] = tracer.start_span(span["name"], context=context, start_time=moment)
            continue
        ended = live[span["context"]["span_id"]]
        ended.set_attributes(span["attributes"])
        for event in span["events"]:
            ended.add_event(event["name"], event.get("attributes"))
        ended.end(end_time=moment)


def chat(prompt: str = PROMPT, answer: str = ANSWER) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": text([said("user", prompt)]),
        "gen_ai.output.messages": text([said("assistant", answer)]),
    }


class TestReplay:
    @pytest.mark.parametrize("name", CONVENTIONS)
    def test_each_convention(self, name: str, traced: Traced) -> None:
        """Makes one turn, whose scores belong to a span of the application."""
        spans, passages = CONVENTIONS[name]
        replay(traced.tracer, spans)
        [turn] = traced.turns
        assert (turn.query, turn.response) == (QUESTION, ANSWER)
        assert [passage.text for passage in turn.prompt_passages] == passages
        assert turn.span is not None
        assert turn.span.external
        assert f"{turn.span.span_id}" in {f"{span.context.span_id:016x}" for span in Finished(traced.spans).all}
        assert (traced.stats["open_traces"], traced.stats["open_bytes"]) == (0, 0)

    @pytest.mark.parametrize("name", names())
    def test_recorded_applications(self, name: str) -> None:
        """The verdict is that of ``evaluate`` on what the application used; without texts there is none."""
        recording = load(name)
        with instrumented(metrics="verdict", models="lexical") as traced:
            replay(traced.tracer, recording["spans"])
            evaluations = traced.evaluations
            if not recording["recorded"]:
                assert all("query" in one.turn.missing for one in evaluations)
                assert sum(traced.stats["without_content"].values()) == 1 - len(evaluations)
                return
        expected = recording["truth"].get("turns") or [recording["truth"]]
        shown = sorted(
            (
                one.turn.query,
                [passage.text for passage in one.turn.prompt_passages],
                one.turn.response,
                one.results[0].label,
            )
            for one in evaluations
        )
        truth = []
        for one in expected:
            passages = tuple(Passage(text=passage) for passage in one["passages"])
            turn = Turn(query=one["question"], passages=passages, response=one["answer"])
            verdict = rageval_hooks.evaluate(turn, metrics="verdict", models="lexical").results[0]
            truth.append((one["question"], one["passages"], one["answer"], verdict.label))
        assert shown == sorted(truth)

    def test_a_question_that_the_spans_do_not_have(self) -> None:
        """There is no verdict, and its reason says what to set; other scores do not need the question."""
        with instrumented(metrics=["verdict", "faithfulness"], models="lexical") as traced:
            replay(traced.tracer, load("semantic_kernel_own_agent.json")["spans"])
            assert traced.handle.flush(30)
            results = {result.name: result for one in traced.exporter.evaluations for result in one.results}
        assert results["verdict"].label == "not_evaluable"
        assert "the turn has no query: the spans of " in results["verdict"].reason
        assert results["faithfulness"].status == "scored"

    def test_a_provider_that_is_set_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Has the processor as well."""
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", type(trace._TRACER_PROVIDER_SET_ONCE)())
        exporter = InMemoryExporter()
        provider, _ = recording_provider()
        with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
            trace.set_tracer_provider(provider)
            provider.get_tracer("app").start_span("chat", attributes=chat(), context=Context()).end()
            assert handle.flush(30)
        assert [one.turn.response for one in exporter.evaluations] == [ANSWER]

    def test_scores_are_spans_below_the_answer(self) -> None:
        """Of the application's trace, by the provider of the application."""
        with instrumented(metrics="unsupported_facts", models="lexical", exporters=["otel"]) as traced:
            with traced.tracer.start_as_current_span("ask", context=Context()):
                traced.tracer.start_span("chat", attributes=chat()).end()
            assert traced.handle.flush(30)
            finished = Finished(traced.spans)
        [score] = finished.ours
        assert finished.parent(score).name == "ask"

    def test_concurrent_turns(self, traced: Traced) -> None:
        """Stay apart, whatever thread they run on."""

        def ask(number: int) -> None:
            with traced.tracer.start_as_current_span("ask", context=Context()):
                traced.tracer.start_span(
                    "chat", attributes=chat(PROMPT.replace("When", f"{number}: When"), f"In {number}.")
                ).end()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(30)))
        assert sorted((turn.query.split(":")[0], turn.response) for turn in traced.turns) == sorted(
            (str(number), f"In {number}.") for number in range(30)
        )


class TestNoTurnTwice:
    @pytest.mark.parametrize("order", ["theirs first", "ours first"])
    @pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke"])
    @pytest.mark.parametrize("tracer", LANGCHAIN)
    def test_langchain_with_another_tracer(self, tracer: str, way: str, order: str) -> None:
        """The callbacks capture the turn, and the spans make none."""
        provider, _ = recording_provider()
        exporter = InMemoryExporter()
        ours = rageval_hooks.instrument(tracer_provider=provider, metrics=[], exporters=[exporter, "otel"])
        with in_order(order, LANGCHAIN[tracer](provider), ours) as (config, handle):
            chain = langchain.lcel()
            if way == "ainvoke":
                asyncio.run(chain.ainvoke(QUESTION, config))
            elif way == "stream":
                list(chain.stream(QUESTION, config))
            else:
                chain.invoke(QUESTION, config)
            assert handle.flush(30)
            assert handle.stats()["traced"]["turns"] == {}
        assert [one.turn.framework for one in exporter.evaluations] == ["langchain"]

    @pytest.mark.parametrize("tracer", LLAMA_INDEX)
    def test_llama_index_with_another_tracer(self, tracer: str) -> None:
        """The callbacks capture the turn, and the spans make none."""
        provider, _ = recording_provider()
        exporter = InMemoryExporter()
        ours = rageval_hooks.instrument(tracer_provider=provider, metrics=[], exporters=[exporter, "otel"])
        with in_order("theirs first", LLAMA_INDEX[tracer](provider), ours) as (_, handle):
            llama_index.index().as_query_engine(llm=llama_index.llm()).query("When was the pier opened?")
            assert handle.flush(30)
            assert handle.stats()["traced"]["turns"] == {}
        assert [one.turn.framework for one in exporter.evaluations] == ["llama_index"]

    def test_a_client_inside_a_captured_model(self, traced: Traced) -> None:
        """Its span is a detail of the model call, also if nothing is around the model."""

        def answer(_: Any) -> str:
            traced.tracer.start_span("chat", attributes=chat(), context=Context()).end()
            return ANSWER

        langchain.model(answer).invoke(PROMPT)
        assert [turn.framework for turn in traced.turns] == ["langchain"]

    def test_a_block_of_the_application(self, traced: Traced) -> None:
        """What ``start_turn`` marks is the turn."""
        with rageval_hooks.start_turn(QUESTION) as turn:
            traced.tracer.start_span("chat", attributes=chat(), context=Context()).end()
            turn.add_passages([PASSAGE])
            turn.respond(ANSWER)
        assert [found.framework for found in traced.turns] == [None]


class TestMixedApplications:
    @pytest.mark.parametrize(
        "inner", ["LangChain retriever", "LlamaIndex retriever", "LlamaIndex engine", "LangChain chain"]
    )
    def test_an_agent_whose_tool_searches(self, inner: str, traced: Traced) -> None:
        """One turn: the agent's question and answer, and the passages of the search with their ids."""
        agent = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.input.messages": text([said("user", QUESTION)]),
            "gen_ai.output.messages": text([said("assistant", ANSWER)]),
        }
        with traced.tracer.start_as_current_span("invoke_agent", context=Context(), attributes=agent):
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search_guide"}
            with traced.tracer.start_as_current_span("execute_tool", attributes=tool) as span:
                if inner == "LangChain retriever":
                    found = langchain.retriever().invoke("pier")
                    result = "\n\n".join(document.page_content for document in found)
                elif inner == "LangChain chain":
                    result = langchain.lcel().invoke("When was the pier opened?")
                elif inner == "LlamaIndex retriever":
                    nodes = llama_index.index().as_retriever().retrieve("pier")
                    result = "\n\n".join(node.get_content() for node in nodes)
                else:
                    engine = llama_index.index().as_query_engine(llm=llama_index.llm())
                    result = str(engine.query("When was the pier opened?"))
                span.set_attribute("gen_ai.tool.call.result", result)
        [turn] = traced.turns
        assert (turn.query, turn.response) == (QUESTION, ANSWER)
        assert turn.passages
        assert all(passage.id for passage in turn.passages)

    @pytest.mark.parametrize("output", [{"output.value": ANSWER}, {}], ids=["an answer", "no answer"])
    def test_a_chain_with_a_handler_inside_an_agent(self, output: dict[str, str], traced: Traced) -> None:
        """The handler gets the chain's turn, once, and the agent's turn has its passages."""
        exporter = InMemoryExporter()
        handler = CallbackHandler(metrics=[], exporters=[exporter])
        agent = {"openinference.span.kind": "AGENT", "input.value": QUESTION}
        with traced.tracer.start_as_current_span("agent run", context=Context(), attributes=agent) as span:
            langchain.lcel().invoke("When was the pier opened?", {"callbacks": [handler]})
            span.set_attributes(output)
        assert [turn.query for turn in traced.turns] == [QUESTION] * len(output)
        assert all(turn.framework == "openinference" and turn.passages for turn in traced.turns)
        assert handler.flush(30)
        assert [one.turn.query for one in exporter.evaluations] == ["When was the pier opened?"]

    def test_a_chain_inside_a_span_that_is_only_around_it(self, traced: Traced) -> None:
        """Stays a turn of its own framework."""
        chain = {"openinference.span.kind": "CHAIN"}
        with traced.tracer.start_as_current_span("handle", context=Context(), attributes=chain):
            langchain.lcel().invoke("When was the pier opened?")
        assert [turn.framework for turn in traced.turns] == ["langchain"]


class TestBounds:
    def test_a_root_that_never_ends(self, traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is given up, and counted by its instrumentor."""
        monkeypatch.setattr(processors, "MAX_TRACES", 1)
        root = traced.tracer.start_span("root", context=Context())
        traced.tracer.start_span("chat", attributes=chat(), context=set_span_in_context(root, Context())).end()
        traced.tracer.start_span("other", context=Context()).end()
        assert traced.stats["without_end"] == {"OpenTelemetry GenAI": 1}

    def test_a_chain_inside_an_agent_that_never_ends(self, traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is a turn by itself, of its handler if it has one."""
        monkeypatch.setattr(processors, "MAX_TRACES", 1)
        exporter = InMemoryExporter()
        handler = CallbackHandler(metrics=[], exporters=[exporter])
        agent = traced.tracer.start_span(
            "agent run", context=Context(), attributes={"openinference.span.kind": "AGENT"}
        )
        with trace.use_span(agent):
            langchain.lcel().invoke("When was the pier opened?")
            langchain.lcel().invoke("Who built the pier?", {"callbacks": [handler]})
        traced.tracer.start_span("other", context=Context()).end()
        assert [turn.query for turn in traced.turns] == ["When was the pier opened?"]
        assert handler.flush(30)
        assert [one.turn.query for one in exporter.evaluations] == ["Who built the pier?"]

    @pytest.mark.parametrize("step", ["shared_recorder", "_is_known"], ids=["start", "end"])
    def test_a_failure_does_not_reach_the_application(
        self, step: str, traced: Traced, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The application's span is exported, and the failure is counted."""

        def fail(*_: Any) -> Any:
            raise ValueError("a broken attribute")

        monkeypatch.setattr(processors, step, fail)
        with traced.tracer.start_as_current_span("ask"):
            pass
        assert traced.handle.flush(30)
        assert [span.name for span in traced.spans.get_finished_spans()] == ["ask"]
        assert traced.handle.stats()["internal_errors"] == 1

    def test_spans_of_the_application_are_not_kept(self, traced: Traced) -> None:
        """Only those of models, searches, tools and agents, and those around them."""
        with traced.tracer.start_as_current_span("request", context=Context()):
            for _ in range(50):
                traced.tracer.start_span("SELECT", attributes={"db.statement": "x" * 1000}).end()
            assert traced.stats["open_bytes"] == 0
        assert traced.turns == []

    def test_a_long_running_root(self, traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its turns are evaluated before it ends, once there are many spans."""
        monkeypatch.setattr(processors, "MAX_SPANS", 10)
        with traced.tracer.start_as_current_span("worker", context=Context()):
            for number in range(30):
                with traced.tracer.start_as_current_span("ask"):
                    prompt = PROMPT.replace("When", f"{number}: When")
                    traced.tracer.start_span("chat", attributes=chat(prompt, f"In {number}.")).end()
            assert len(traced.turns) > 10
        assert len(traced.turns) == 30

    def test_an_agent_with_many_spans(self, traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is one turn, when it has ended, also where a long-running function is around its steps."""
        monkeypatch.setattr(processors, "MAX_SPANS", 10)
        agent = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.input.messages": text([said("user", QUESTION)]),
            "gen_ai.output.messages": text([said("assistant", ANSWER)]),
        }
        with traced.tracer.start_as_current_span("invoke_agent", context=Context(), attributes=agent):
            with traced.tracer.start_as_current_span("loop"):
                for _ in range(30):
                    traced.tracer.start_span("chat", attributes=chat()).end()
            assert traced.turns == []
            assert traced.stats["open_bytes"] > 30 * (500 + len(PROMPT + ANSWER))
        assert [(turn.query, turn.response) for turn in traced.turns] == [(QUESTION, ANSWER)]

    def test_more_turns_than_the_queue_takes(self, traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those that find no place are counted as dropped."""
        monkeypatch.setattr(deferred, "_MAX_PENDING", 1)
        monkeypatch.setattr(deferred, "_pending", {object(): 0})
        traced.tracer.start_span("chat", attributes=chat(), context=Context()).end()
        monkeypatch.setattr(deferred, "_pending", {})
        assert traced.turns == []
        assert traced.handle.stats()["dropped_by_cause"]["queue_full"] == 1

    def test_a_span_that_ends_after_the_root(self, traced: Traced) -> None:
        """A streamed answer is part of the turn."""
        root = traced.tracer.start_span("ask", context=Context())
        late = traced.tracer.start_span("chat", attributes=chat(), context=set_span_in_context(root, Context()))
        root.end()
        assert traced.turns == []
        late.end()
        assert [turn.response for turn in traced.turns] == [ANSWER]

    def test_calls_of_the_judge(self, traced: Traced) -> None:
        """Are no turns of the application."""
        from rageval_hooks.runtime.suppression import suppressed

        with suppressed():
            traced.tracer.start_span("chat", attributes=chat(), context=Context()).end()
        assert traced.turns == []

    def test_turns_that_are_sampled_out(self) -> None:
        """Are not evaluated."""
        with instrumented(sample_rate=0.0) as traced:
            traced.tracer.start_span("chat", attributes=chat(), context=Context()).end()
            assert traced.turns == []
            assert traced.handle.stats()["sampled_out"] == 1

    @pytest.mark.parametrize("prompt", [PROMPT, f"{PASSAGE} {QUESTION}"])
    def test_a_search_in_a_trace_of_its_own(self, prompt: str) -> None:
        """The passages are those of the prompt. If they cannot be told there, there is no verdict; both are counted."""
        with instrumented(metrics="verdict", models="lexical") as traced:
            document = {"retrieval.documents.0.document.content": PASSAGE}
            search = {"openinference.span.kind": "RETRIEVER", "input.value": QUESTION, **document}
            traced.tracer.start_span("search", attributes=search, context=Context()).end()
            traced.tracer.start_span("chat", attributes=chat(prompt), context=Context()).end()
            labels = [result.label for one in traced.evaluations for result in one.results]
            assert labels == (["good"] if prompt == PROMPT else [])
            assert traced.stats["search_only"] == {"OpenInference": 1}
            assert sum(traced.stats["without_passages"].values()) == 1 - len(labels)

    def test_hidden_passages_give_no_verdict(self) -> None:
        """The reason names the switch."""
        with instrumented(metrics="verdict", models="lexical") as traced:
            root = {"openinference.span.kind": "CHAIN", "input.value": QUESTION, "output.value": ANSWER}
            with traced.tracer.start_as_current_span("chain", context=Context(), attributes=root):
                hidden = {
                    "openinference.span.kind": "RETRIEVER",
                    "retrieval.documents.0.document.content": "__REDACTED__",
                }
                traced.tracer.start_span("retriever", attributes=hidden).end()
            [evaluation] = traced.evaluations
            [verdict] = evaluation.results
        assert verdict.status == "skipped"
        assert verdict.label == "not_evaluable"
        assert "OPENINFERENCE_HIDE" in verdict.reason
