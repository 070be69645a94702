"""Searches in vector stores that are called directly are captured, and the stores behave as before."""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import FACTS, join, model

QUESTION = "When was the pier opened?"


def store(kind: type[InMemoryVectorStore] = InMemoryVectorStore) -> InMemoryVectorStore:
    made = kind(DeterministicFakeEmbedding(size=8))
    made.add_documents([document.model_copy() for document in FACTS])
    return made


SEARCHES: dict[str, Any] = {
    "similarity_search": lambda one: one.similarity_search(QUESTION, k=2),
    "similarity_search_with_score": lambda one: [pair[0] for pair in one.similarity_search_with_score(QUESTION, k=2)],
    "similarity_search_by_vector": lambda one: one.similarity_search_by_vector([1.0] * 8, k=2),
    "search": lambda one: one.search(QUESTION, "similarity", k=2),
    "asimilarity_search": lambda one: asyncio.run(one.asimilarity_search(QUESTION, k=2)),
    "as_retriever": lambda one: one.as_retriever(search_kwargs={"k": 2}).invoke(QUESTION),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES.keys())
def test_a_search_in_a_plain_function(captured: Captured, search: Any) -> None:
    """The search is one retriever step of the turn, however many methods call each other."""

    def answer(question: str) -> str:
        return str(model("In 2019.").invoke(f"Use this: {join(search(store()))}. {question}").text)

    RunnableLambda(answer).invoke(QUESTION)

    turn = captured.turn
    assert {passage.id: passage.in_prompt for passage in turn.passages} == {"d1": True, "d2": True}
    assert [step.kind for step in turn.steps] == ["retriever", "llm"]
    assert (turn.steps[0].top_k, turn.steps[0].data_source) == (2, "InMemoryVectorStore")


def test_a_search_in_middleware(captured: Captured) -> None:
    """This is the RAG chain of LangChain's tutorial."""
    handbook = store()

    @dynamic_prompt
    def with_context(request: Any) -> str:
        return "Use this:\n" + join(handbook.similarity_search(request.state["last"], k=2))

    @dynamic_prompt
    def from_messages(request: Any) -> str:
        return "Use this:\n" + join(handbook.similarity_search(request.state["messages"][-1].text, k=2))

    create_agent(model("In 2019."), [], middleware=[from_messages]).invoke({"messages": [("human", QUESTION)]})

    turn = captured.turn
    assert sorted(str(passage.id) for passage in turn.prompt_passages) == ["d1", "d2"]
    assert turn.is_rag


def test_a_search_in_a_tool_that_returns_text(captured: Captured) -> None:
    """The tool's step has the text; the search inside it has the documents and the query."""
    handbook = store()

    @tool
    def search(query: str) -> str:
        """Search."""
        return join(handbook.similarity_search(query, k=2))

    def script(messages: list[Any]) -> Any:
        if isinstance(messages[-1], ToolMessage):
            return "In 2019."
        return AIMessage("", tool_calls=[{"name": "search", "args": {"query": "pier"}, "id": "1"}])

    create_agent(model(script), [search]).invoke({"messages": [("human", QUESTION)]})

    turn = captured.turn
    assert sorted(str(passage.id) for passage in turn.prompt_passages) == ["d1", "d2"]
    assert turn.retrieval_queries == ("pier",)


class Own(InMemoryVectorStore):
    """A vector store of the application."""

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Find something."""
        if query == "fail":
            raise StopIteration("nothing")
        return super().similarity_search(query, k, **kwargs)


def test_the_methods_of_stores_look_and_behave_as_before() -> None:
    """Signatures, docstrings, kinds, results and exceptions are the same, also in classes of the application."""
    names = [name for name in dir(Own) if "search" in name and not name.startswith("_")]
    before = {name: getattr(Own, name) for name in names}

    with rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()]):

        class Later(Own):
            def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
                return super().similarity_search(query, k, **kwargs)[:1]

        for name in names:
            method = getattr(Own, name)
            assert inspect.signature(method) == inspect.signature(before[name])
            assert inspect.iscoroutinefunction(method) is inspect.iscoroutinefunction(before[name])
            assert (method.__name__, method.__doc__) == (before[name].__name__, before[name].__doc__)
        assert len(store(Later).similarity_search(QUESTION)) == 1
        with pytest.raises(StopIteration, match="nothing"):
            store(Own).similarity_search("fail")

    assert {name: getattr(Own, name) for name in names} == before
    assert "__init_subclass__" not in vars(VectorStore)
    assert "_rageval_hooks_wrapper" not in vars(Later.similarity_search)


def test_a_search_that_fails_is_an_error_of_its_step(captured: Captured) -> None:
    """The application gets the same exception."""

    class Broken(InMemoryVectorStore):
        def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            raise ConnectionError("index is gone")

    with pytest.raises(ConnectionError, match="index is gone"):
        RunnableLambda(lambda question: store(Broken).similarity_search(question)).invoke(QUESTION)

    assert [step.error.type for step in captured.turn.steps if step.error] == ["ConnectionError"]


def test_a_search_outside_of_any_chain_is_not_a_turn(captured: Captured) -> None:
    """A search by itself is not recorded."""
    store().similarity_search(QUESTION)

    assert captured.turns == []


def test_a_class_that_the_application_drops_is_freed_after_the_end() -> None:
    """Notebooks and tests define one again and again."""

    class Own(InMemoryVectorStore):
        def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            return []

    with rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()]):
        store(Own).similarity_search(QUESTION)
    left = weakref.ref(Own)
    del Own
    gc.collect()

    assert left() is None


def test_a_search_that_cannot_be_recorded_reaches_the_application(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our exception is counted, and the application has what it searched for."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("our own mistake")

    monkeypatch.setattr("rageval_hooks.integrations.langchain.hook.copied", broken)
    found = RunnableLambda(lambda question: store().similarity_search(question, k=2)).invoke(QUESTION)

    assert len(found) == len(store().similarity_search(QUESTION, k=2)) == 2
    assert captured.handle.stats()["internal_errors"] == 2
    captured.handle.pipeline._counters.reset_after_fork()


def test_a_class_that_cannot_be_changed_works_as_before(captured: Captured) -> None:
    """A compiled class, for example: its searches are not recorded."""

    class Frozen(type(InMemoryVectorStore)):  # type: ignore[misc] # it is a class
        def __setattr__(cls, name: str, value: Any) -> None:
            if name == "similarity_search":
                raise TypeError("cannot set an attribute of an immutable type")
            super().__setattr__(name, value)

    class Compiled(InMemoryVectorStore, metaclass=Frozen):
        def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            return FACTS

    assert RunnableLambda(lambda question: store(Compiled).similarity_search(question)).invoke(QUESTION) == FACTS
    assert [step for step in captured.turn.steps if step.kind == "retriever"] == []
