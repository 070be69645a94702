"""The nodes of vector stores that are queried directly are passages of the turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery, VectorStoreQueryResult
from workflows import Workflow, step
from workflows.events import StartEvent, StopEvent

import rageval_hooks
from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index import fakes

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


class OutOfOrderError(Exception):
    """An exception of the store."""


class Store(BasePydanticVectorStore):
    """A vector store that keeps texts, as most stores do."""

    stores_text: bool = True
    broken: bool = False

    @property
    def client(self) -> Any:
        return None

    def add(self, nodes: Any, **kwargs: Any) -> list[str]:
        return []

    def delete(self, ref_doc_id: str, **kwargs: Any) -> None: ...

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        if self.broken:
            raise OutOfOrderError
        nodes = [TextNode(id_=key, text=text) for key, text in list(fakes.FACTS.items())[:2]]
        return VectorStoreQueryResult(nodes=nodes, similarities=[0.9, 0.4], ids=["d1", "d2"])


class Search(Workflow):
    """A workflow whose step queries a store and passes on text only."""

    def __init__(self, store: Any, asynchronous: bool = False) -> None:
        super().__init__()
        self.store = store
        self.asynchronous = asynchronous

    @step
    async def answer(self, event: StartEvent) -> StopEvent:
        query = VectorStoreQuery(query_str="pier", query_embedding=[1.0])
        found = await self.store.aquery(query) if self.asynchronous else self.store.query(query)
        context = "\n".join(node.text for node in found.nodes[:1])
        return StopEvent(result=str(fakes.llm(ANSWER).complete(f"{context}\n{event.question}")))


async def ask(store: Store, asynchronous: bool = False) -> Any:
    return await Search(store, asynchronous).run(question=QUESTION)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_store_that_a_step_queries(captured: Captured, asynchronous: bool) -> None:
    """Its nodes are passages once, with their scores, although ``aquery`` calls ``query``."""
    asyncio.run(ask(Store(), asynchronous))

    turn = captured.turn
    assert turn.response == ANSWER
    assert [(passage.id, passage.score, passage.in_prompt) for passage in turn.passages] == [
        ("d1", 0.9, True),
        ("d2", 0.4, False),
    ]
    assert [step.name for step in turn.steps if step.kind == "retriever"] == ["Store"]
    assert turn.retrieval_queries == ("pier",)


def test_inside_a_block(captured: Captured) -> None:
    """They are also passages of a turn of ``start_turn``."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        Store().query(VectorStoreQuery(query_str=QUESTION))
        turn.respond(ANSWER)

    assert [passage.id for passage in captured.turn.passages] == ["d1", "d2"]


def test_outside_of_a_turn(captured: Captured) -> None:
    """A query by itself is not recorded."""
    Store().query(VectorStoreQuery(query_str=QUESTION))

    assert captured.turns == []


def test_inside_a_retriever(captured: Captured) -> None:
    """The retriever's run has the nodes; the store adds none."""
    from llama_index.core import VectorStoreIndex

    retriever = VectorStoreIndex.from_vector_store(Store(), embed_model=fakes.WordCounts()).as_retriever()
    with rageval_hooks.start_turn(QUESTION):
        retriever.retrieve(QUESTION)

    assert [step.name for step in captured.turn.steps] == ["VectorIndexRetriever"]


def test_an_exception_passes_through(captured: Captured) -> None:
    """The application sees the store's exception, and the search is a step that failed."""
    with pytest.raises(OutOfOrderError):
        asyncio.run(ask(Store(broken=True)))

    assert captured.turn.status == "error"
    [search] = [step for step in captured.turn.steps if step.kind == "retriever"]
    assert (search.name, search.error and search.error.type) == ("Store", "OutOfOrderError")


def test_the_classes_are_as_before_after_the_shutdown() -> None:
    """No method stays wrapped, also not in classes that were defined meanwhile."""
    before = (Store.query, SimpleVectorStore.query, BasePydanticVectorStore.aquery)
    with rageval_hooks.instrument(metrics=[], exporters=[]):
        assert Store.query is not before[0]

        class Later(Store):
            def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
                return super().query(query, **kwargs)

        assert hasattr(Later.query, "__wrapped__")

    assert (Store.query, SimpleVectorStore.query, BasePydanticVectorStore.aquery) == before
    assert not hasattr(Later.query, "__wrapped__")
    assert "__init_subclass__" not in vars(BasePydanticVectorStore)
