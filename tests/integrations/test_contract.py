"""The same application built with LangChain and with LlamaIndex gives the same turns and the same spans."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from llama_index.core import get_response_synthesizer
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from openinference.instrumentation import using_attributes
from opentelemetry import context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain import fakes as langchain
from tests.integrations.llama_index import fakes as llama_index

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."
FACTS = [("d1", "The pier was opened in 2019.", 0.9), ("d2", "The ferry to Quern takes 18 minutes.", 0.4)]
MORE_FACTS = [FACTS[1], ("d3", "The lighthouse keeper keeps bees.", 0.2)]


class OutOfOrderError(Exception):
    """What a broken component raises."""


@dataclass
class Scenario:
    """What the application's parts do.

    Attributes:
        answer: what the model writes, or the exception that it raises.
        found: what each retriever finds, or the exception that it raises.
        read: how many words of a stream are read before it is closed; None for a call that does not stream.
    """

    answer: Any = ANSWER
    found: Sequence[Any] = field(default_factory=lambda: [FACTS])
    read: int | None = None


class Framework(Protocol):
    name: str

    def ask(self, scenario: Scenario) -> str: ...


class LangChain:
    """The usual chain, streamed or not, over one or two retrievers."""

    name = "langchain"

    def ask(self, scenario: Scenario) -> str:
        retrievers = {f"r{number}": self.retriever(found) for number, found in enumerate(scenario.found)}
        joined = RunnableLambda(lambda found: langchain.join([item for items in found.values() for item in items]))
        chain: Any = (
            {"context": RunnableParallel(retrievers) | joined, "question": RunnablePassthrough()}
            | langchain.PROMPT
            | langchain.model(scenario.answer)
            | StrOutputParser()
        )
        return str(chain.invoke(QUESTION)) if scenario.read is None else read(chain.stream(QUESTION), scenario.read)

    @staticmethod
    def retriever(found: Any) -> Any:
        if isinstance(found, Exception):
            return langchain.retriever(found)
        documents = [Document(id=key, page_content=text, metadata={"score": score}) for key, text, score in found]
        return langchain.retriever(documents)


class AcmeLLM(llama_index.ScriptedLLM):
    """A model whose class comes from the package of a provider."""

    __module__ = "llama_index.llms.acme.base"


class BothEngine(CustomQueryEngine):
    """An engine that asks several retrievers."""

    retrievers: Any
    synthesizer: Any

    def custom_query(self, query_str: str) -> Any:
        nodes = [node for retriever in self.retrievers for node in retriever.retrieve(query_str)]
        return self.synthesizer.synthesize(query_str, nodes=nodes)


class LlamaIndex:
    """The usual query engine, streaming or not; over two retrievers one of the application's own."""

    name = "llama_index"

    def ask(self, scenario: Scenario) -> str:
        model, streaming = AcmeLLM(script=lambda messages: scenario.answer), scenario.read is not None
        retrievers = [self.retriever(found) for found in scenario.found]
        synthesizer = get_response_synthesizer(llm=model, streaming=streaming)
        engine: Any = (
            RetrieverQueryEngine(retrievers[0], synthesizer)
            if len(retrievers) == 1
            else BothEngine(retrievers=retrievers, synthesizer=synthesizer)
        )
        response = engine.query(QUESTION)
        return str(response) if scenario.read is None else read(response.response_gen, scenario.read)

    @staticmethod
    def retriever(found: Any) -> Any:
        nodes = found
        if not isinstance(found, Exception):
            nodes = [NodeWithScore(node=TextNode(id_=key, text=text), score=score) for key, text, score in found]
        return llama_index.ScriptedRetriever(lambda query: nodes)


def read(stream: Any, words: int) -> str:
    """Read some pieces of a stream, and close it."""
    pieces: list[str] = []
    for piece in stream:
        pieces.append(piece)
        if len(pieces) == words:
            break
    stream.close()
    return "".join(pieces)


@dataclass
class Seen:
    turn: Turn
    spans: list[Any]


@pytest.fixture(params=[LangChain(), LlamaIndex()], ids=lambda framework: framework.name)
def framework(request: pytest.FixtureRequest) -> Framework:
    return request.param


See = Callable[[Framework, Scenario], Seen]


@contextmanager
def instrumented() -> Iterator[See]:
    """Run scenarios in an instrumented process; gives a function that returns a scenario's turn and spans."""
    spans, turns = InMemorySpanExporter(), InMemoryExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with rageval_hooks.instrument(metrics=[], exporters=[turns, OtelExporter(provider)]) as handle:

        def see(framework: Framework, scenario: Scenario) -> Seen:
            error = next((item for item in (scenario.answer, *scenario.found) if isinstance(item, Exception)), None)
            if error is None:
                framework.ask(scenario)
            else:
                with pytest.raises(type(error), match=str(error)):
                    framework.ask(scenario)
            assert handle.flush(10)
            assert handle.stats()["internal_errors"] == 0
            assert len(shared_recorder()) == 0, "runs are left in the table"
            [evaluation] = turns.evaluations
            return Seen(evaluation.turn, list(spans.get_finished_spans()))

        yield see


@pytest.fixture
def see() -> Iterator[See]:
    with instrumented() as see:
        yield see


SCENARIOS = {
    "an answer": Scenario(),
    "a stream": Scenario(read=100),
    "a stream that is closed early": Scenario(read=1),
    "two retrievals": Scenario(found=[FACTS, MORE_FACTS]),
    "nothing found": Scenario(found=[[]], answer="Empty Response"),
    "an error of the retriever": Scenario(found=[OutOfOrderError("index is gone")]),
    "an error of the model": Scenario(answer=OutOfOrderError("overloaded")),
}

ANSWERED: dict[str, Any] = {
    "query": QUESTION,
    "response": ANSWER,
    "status": "ok",
    "error": None,
    "retrieval_queries": (),
    "passages": [("d1", FACTS[0][1], 0.9, True, 1.0), ("d2", FACTS[1][1], 0.4, True, 1.0)],
    "steps": [("retriever", None, True), ("llm", None, True)],
    "model": "scripted-1-2026",
    "usage": (40, 7, 12, "provider"),
    "timed": (True, True, False),
}

EXPECTED: dict[str, dict[str, Any]] = {
    "an answer": ANSWERED,
    "a stream": {**ANSWERED, "timed": (True, True, True)},
    "a stream that is closed early": {
        **ANSWERED,
        "response": "It ",
        "status": "cancelled",
        "steps": [("retriever", None, True), ("llm", None, False)],
        "model": "scripted-1*",
        "usage": None,
        "timed": (True, True, True),
    },
    "two retrievals": {
        **ANSWERED,
        "passages": [*ANSWERED["passages"], ("d3", MORE_FACTS[1][1], 0.2, True, 1.0)],
        "steps": [("retriever", None, True), ("retriever", None, True), ("llm", None, True)],
    },
    "an error of the retriever": {
        **ANSWERED,
        "response": "",
        "status": "error",
        "error": ("OutOfOrderError", "index is gone"),
        "passages": [],
        "steps": [("retriever", "OutOfOrderError", True)],
        "model": None,
        "usage": None,
        "timed": (True, False, False),
    },
    "an error of the model": {
        **ANSWERED,
        "response": "",
        "status": "error",
        "error": ("OutOfOrderError", "overloaded"),
        "steps": [("retriever", None, True), ("llm", "OutOfOrderError", True)],
        "model": "scripted-1*",
        "usage": None,
    },
}


def told(turn: Turn) -> dict[str, Any]:
    """Return the fields of a turn that do not depend on the framework."""
    timing, usage = turn.timing, turn.usage
    assert timing is not None
    provider = usage is not None and usage.source == "provider"
    return {
        "query": turn.query,
        "response": turn.response,
        "status": turn.status,
        "error": None if turn.error is None else (turn.error.type, turn.error.message),
        "retrieval_queries": turn.retrieval_queries,
        "passages": [
            (passage.id, passage.text, passage.score, passage.in_prompt, passage.prompt_share)
            for passage in turn.passages
        ],
        "steps": [(step.kind, step.error.type if step.error else None, step.complete) for step in turn.steps],
        "model": turn.model,
        "usage": (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.source)
        if usage is not None and provider
        else None,
        "timed": tuple(
            seconds is not None for seconds in (timing.retrieval, timing.generation, timing.time_to_first_token)
        ),
    }


@pytest.mark.parametrize("scenario", EXPECTED)
def test_the_turn(see: See, framework: Framework, scenario: str) -> None:
    """All fields are equal, except those that name parts of the framework."""
    seen, expected = told(see(framework, SCENARIOS[scenario]).turn), dict(EXPECTED[scenario])
    if expected["model"] == "scripted-1*":  # one framework hears the provider's own name for it only at the end
        assert seen.pop("model").startswith("scripted-1")
        del expected["model"]

    assert seen == expected


def test_nothing_found(see: See, framework: Framework) -> None:
    """A turn counts as RAG even if its retriever found nothing."""
    turn = see(framework, SCENARIOS["nothing found"]).turn

    assert turn.has_retrieval
    assert turn.is_rag
    assert (turn.passages, turn.response) == ((), "Empty Response")


def test_the_prompt(see: See, framework: Framework) -> None:
    """The prompt has the system and user messages, with the passages and the question."""
    turn = see(framework, Scenario()).turn

    assert [message.role for message in turn.prompt] == ["system", "user"]
    text = "\n".join(message.content for message in turn.prompt)
    assert all(fact in text for _, fact, _ in FACTS)
    assert QUESTION in turn.prompt[-1].content
    [call] = [step for step in turn.steps if step.kind == "llm"]
    assert call.messages == turn.prompt
    assert call.output == turn.response
    assert call.provider == "acme"


def test_session_user_and_metadata(see: See, framework: Framework) -> None:
    """They come from the application's OpenTelemetry context."""
    with using_attributes(session_id="s1", user_id="u1", metadata={"tier": "gold"}):
        seen = see(framework, Scenario())

    assert (seen.turn.session_id, seen.turn.user_id, seen.turn.metadata["tier"]) == ("s1", "u1", "gold")
    assert {span.attributes["session.id"] for span in seen.spans} == {"s1"}


def test_metadata_that_is_no_json(see: See, framework: Framework) -> None:
    """The turn has the other attributes."""
    attributes = context.set_value("session.id", "s1", context.set_value("metadata", "{tier"))
    token = context.attach(attributes)
    try:
        turn = see(framework, Scenario()).turn
    finally:
        context.detach(token)

    assert (turn.session_id, turn.response) == ("s1", ANSWER)


def test_under_a_span_of_the_application(see: See, framework: Framework) -> None:
    """The turn's span is a child of the application's span, in the same trace."""
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("app")
    with tracer.start_as_current_span("request") as request:
        seen = see(framework, Scenario())

    context = request.get_span_context()
    [root] = [span for span in seen.spans if span.parent.span_id == context.span_id]
    assert root.name == f"rag {seen.turn.name}"
    assert {span.context.trace_id for span in seen.spans} == {context.trace_id}


def shapes(seen: Seen) -> list[tuple[Any, ...]]:
    """Return of each span, by start time: name, kind, parent, status, events and attribute names."""
    names = {span.context.span_id: shape_of_name(span.name) for span in seen.spans}
    return [
        (
            shape_of_name(span.name),
            span.kind.name,
            names[span.parent.span_id] if span.parent else None,
            (span.status.status_code.name, span.status.description),
            [(event.name, dict(event.attributes)) for event in span.events],
            sorted({re.sub(r"\.\d+\.", ".N.", name) for name in span.attributes} - UNLIKE),
            same_values(span),
        )
        for span in sorted(seen.spans, key=lambda span: (span.start_time, span.name))
    ]


def same_values(span: Any) -> dict[str, Any]:
    """Return the attributes that have the same values with both frameworks."""
    found = {name: span.attributes[name] for name in SAME if name in span.attributes}
    # A retriever's output is its documents with their metadata, which the two stores keep differently.
    if found["openinference.span.kind"] == "RETRIEVER":
        found.pop("output.value", None)
    return found


UNLIKE = {"gen_ai.response.id", "llm.invocation_parameters"}
"""LangChain's scripted model reports no response ids, and has no parameters."""

SAME = (
    "openinference.span.kind",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.retrieval.query.text",
    "gen_ai.retrieval.documents",
    "input.mime_type",
    "output.value",
    "error.type",
    "rageval.turn.status",
    "rageval.passages.count",
    "rageval.passages.in_prompt",
    "rageval.incomplete",
    "gen_ai.usage.output_tokens",
)


def shape_of_name(name: str) -> str:
    operation, _, what = name.partition(" ")
    return f"{operation} {'scripted-1' if what.startswith('scripted-1') else 'NAME'}"


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "nothing found"])
def test_the_spans(scenario: str) -> None:
    """Names, kinds, parents, status, events and attribute names are equal."""
    spans = []
    for framework in (LangChain(), LlamaIndex()):
        with instrumented() as see:
            spans.append(shapes(see(framework, SCENARIOS[scenario])))
    first, second = spans

    assert second == first
    assert first[0][:3] == ("rag NAME", "INTERNAL", None)
    assert {shape[0] for shape in first[1:]} <= {"retrieval NAME", "chat scripted-1"}
    assert {shape[2] for shape in first[1:]} == {"rag NAME"}
