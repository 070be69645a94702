"""One reader of passages for capture, guard, files, ``start_turn`` and ``evaluate``: the shapes that it reads."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from pydantic import BaseModel, ConfigDict

import rageval_hooks
from rageval_hooks.guard.checking import read_passages
from rageval_hooks.integrations.capture import passages as passage_reading
from rageval_hooks.integrations.capture.passages import EarlierPassages, passage_of, text_results
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Passage
from tests.integrations.langchain import fakes
from tests.integrations.langchain.conftest import Captured

TEXT = "The pier of Hallay is 120 metres long and was opened in 2019."
QUESTION = "How long is the pier?"


@dataclasses.dataclass
class Chunk:
    id: str
    text: str
    score: float


@dataclasses.dataclass(frozen=True, slots=True)
class SlotChunk:
    id: str
    content: str
    score: float


class Model(BaseModel):
    id: str
    content: str
    score: float


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Named(NamedTuple):
    id: str
    text: str
    score: float


class Plain:
    def __init__(self, text: str) -> None:
        self.id, self.page_content, self.metadata, self.score = "c", text, {"page": 3}, 0.9


class Lazy:
    """Its text is loaded by a property."""

    def __init__(self) -> None:
        self.id, self.score = "c", 0.9

    @property
    def text(self) -> str:
        raise AssertionError("a property of the application was read")

    page_content = content = node = metadata = text


class Hit(NamedTuple):
    chunk: Any
    score: float


SHAPES: dict[str, Any] = {
    "dataclass": Chunk("c", TEXT, 0.9),
    "dataclass with slots": SlotChunk("c", TEXT, 0.9),
    "pydantic": Model(id="c", content=TEXT, score=0.9),
    "pydantic with other fields": Open(id="c", text=TEXT, score=0.9),  # type: ignore[call-arg]
    "named tuple": Named("c", TEXT, 0.9),
    "class": Plain(TEXT),
    "namespace": SimpleNamespace(id="c", body=TEXT, score=0.9),
    "mapping": {"id": "c", "text": TEXT, "score": 0.9},
    "payload": {"id": "c", "score": 0.9, "payload": {"text": TEXT}},
    "object in payload": SimpleNamespace(id="c", score=0.9, payload={"text": TEXT}),
    "_source": {"_id": "c", "_score": 0.9, "_source": {"text": TEXT}},
    "mapping and score": ({"id": "c", "content": TEXT}, 0.9),
    "object and score": (SimpleNamespace(id="c", text=TEXT), 0.9),
    "score and object": (0.9, SimpleNamespace(id="c", text=TEXT)),
    "object within": Hit(SimpleNamespace(id="c", text=TEXT), 0.9),
    "document": Document(id="c", page_content=TEXT, metadata={"score": 0.9}),
    "document and score": (Document(id="c", page_content=TEXT), 0.9),
    "node": NodeWithScore(node=TextNode(id_="c", text=TEXT), score=0.9),
    "node and score": (TextNode(id_="c", text=TEXT), 0.9),
}


def with_start_turn(value: Any) -> Any:
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
        with rageval_hooks.start_turn(QUESTION) as turn:
            turn.add_passages([value])
            turn.respond("It is 120 metres long.")
        assert handle.flush(10)
    return exporter.evaluations[0].turn.passages


def with_evaluate(value: Any) -> Any:
    turn = {"question": QUESTION, "answer": "It is 120 metres long.", "contexts": [value]}
    return rageval_hooks.evaluate(turn, metrics=[]).turn.passages


READERS: dict[str, Callable[[Any], Any]] = {
    "passage_of": lambda value: [passage_of(value)],
    "guard": lambda value: read_passages([value]),
    "start_turn": with_start_turn,
    "evaluate": with_evaluate,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("value", SHAPES.values(), ids=SHAPES)
def test_shapes(value: Any, read: Callable[[Any], Any]) -> None:
    [passage] = read(value)

    assert (passage.text, passage.id, passage.score) == (TEXT, "c", 0.9)


@pytest.mark.parametrize("value", [("text", "0.5"), (0.1, 0.2), HumanMessage(TEXT), Lazy(), object(), Chunk, b"x", 7])
def test_what_is_no_passage(value: Any) -> None:
    """No property of an application is read: it may load a page."""
    assert passage_of(value) is None


def test_vectors_are_no_metadata() -> None:
    passage = passage_of(SimpleNamespace(text=TEXT, embedding=[0.1] * 1000, page=3))

    assert passage is not None
    assert passage.metadata == {"page": 3}


@pytest.mark.parametrize(
    "response",
    [
        {"hits": {"total": 1, "hits": [SHAPES["_source"]]}},
        SimpleNamespace(points=[SHAPES["object in payload"]], usage=None),
        {"matches": [{"id": "c", "score": 0.9, "values": [0.1], "metadata": {"text": TEXT}}]},
    ],
    ids=["Elasticsearch", "Qdrant", "Pinecone"],
)
def test_responses_of_stores(response: Any) -> None:
    found = text_results(response, {})

    assert [(passage.text, passage.id, passage.score) for passage in found] == [(TEXT, "c", 0.9)]


class State(TypedDict, total=False):
    question: str
    documents: Any
    results: Any
    answer: str


@pytest.mark.parametrize("key", ["documents", "results"])
@pytest.mark.parametrize(
    "value",
    [*SHAPES.values(), (TEXT, 0.9), {"document": TEXT, "distance": 0.3}],
    ids=[*SHAPES, "text and score", "document and distance"],
)
def test_fields_of_a_graph(captured: Captured, value: Any, key: str) -> None:
    """A node returns what it has found, and another one writes the prompt."""

    def answer(state: Any) -> Any:
        return {"answer": fakes.model("It is 120 metres long.").invoke(f"Context: {TEXT}\n{state['question']}").text}

    builder: Any = StateGraph(State)
    builder.add_node("retrieve", lambda state: {key: [value]})
    builder.add_node("generate", answer)
    builder.add_edge(START, "retrieve").add_edge("retrieve", "generate")
    builder.compile().invoke({"question": QUESTION})

    turn = captured.turn
    assert [passage.text for passage in turn.passages] == [TEXT]
    assert turn.is_rag


class Found(Event):
    chunks: list[Any]


class OwnChunks(Workflow):
    """It searches by itself, without nodes."""

    @step
    async def retrieve(self, event: StartEvent) -> Found:
        return Found(chunks=[Chunk("c", TEXT, 0.9)])

    @step
    async def answer(self, context: Context, event: Found) -> StopEvent:
        from tests.integrations.llama_index.fakes import llm

        return StopEvent(result=str(await llm("It is 120 metres long.").acomplete(f"Context: {event.chunks[0].text}")))


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")
@pytest.mark.filterwarnings("ignore:is_running called from within a step")
def test_events_of_a_workflow(captured: Captured) -> None:
    async def main() -> None:
        await OwnChunks().run(question=QUESTION)

    asyncio.run(main())

    assert [(passage.id, passage.text) for passage in captured.turn.passages] == [("c", TEXT)]


@pytest.fixture
def captured() -> Iterator[Captured]:
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], evaluate_without_retrieval=True) as handle:
        yield Captured(handle, exporter)


def test_passages_of_the_latest_tool_calls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is bounded: the oldest call is forgotten."""
    monkeypatch.setattr(passage_reading, "_MAX_KEYS", 2)
    earlier = EarlierPassages()
    for key in "123":
        earlier.add(key, [Passage(text=TEXT)], "turn")

    assert [len(earlier.get(key)) for key in "123"] == [0, 1, 1]
