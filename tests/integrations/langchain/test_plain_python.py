"""A search, then a model, with nothing around both: what was found belongs to the turn of the model."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

import rageval_hooks
from rageval_hooks.integrations.capture import recent_searches
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain import fakes
from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index import fakes as llama_index

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


def store() -> InMemoryVectorStore:
    found = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    found.add_documents(fakes.FACTS)
    return found


def prompt(documents: list[Document], question: str = QUESTION) -> str:
    return f"Context:\n{fakes.join(documents)}\n\nQuestion: {question}"


def with_store(question: str = QUESTION) -> None:
    fakes.model(ANSWER).invoke(prompt(store().similarity_search(question, k=2), question))


def with_scores(question: str = QUESTION) -> None:
    found = [document for document, _ in store().similarity_search_with_score(question, k=2)]
    fakes.model(ANSWER).invoke([("system", "Be kind."), ("human", prompt(found, question))])


def with_retriever(question: str = QUESTION) -> None:
    fakes.model(ANSWER).invoke(prompt(fakes.retriever().invoke(question), question))


def with_async_store(question: str = QUESTION) -> None:
    async def main() -> None:
        found = await store().asimilarity_search(question, k=2)
        await fakes.model(ANSWER).ainvoke(prompt(found, question))

    asyncio.run(main())


def with_async_retriever(question: str = QUESTION) -> None:
    async def main() -> None:
        found = await fakes.retriever().ainvoke(question)
        await fakes.model(ANSWER).ainvoke(prompt(found, question))

    asyncio.run(main())


def with_llama_index(question: str = QUESTION) -> None:
    found = llama_index.index().as_retriever(similarity_top_k=2).retrieve(question)
    text = "\n".join(node.text for node in found)
    llama_index.llm(ANSWER).complete(f"Context:\n{text}\n\nQuestion: {question}")


def answers(captured: Captured) -> list[Turn]:
    """A search by a retriever is a root of its own."""
    return [turn for turn in captured.turns if turn.response]


@pytest.mark.parametrize(
    "ask", [with_store, with_scores, with_retriever, with_async_store, with_async_retriever, with_llama_index]
)
def test_a_search_and_a_model(captured: Captured, ask: Any) -> None:
    """The question is what was searched for, and not the whole prompt."""
    ask()

    [turn] = answers(captured)
    assert (turn.query, turn.response, turn.is_rag) == (QUESTION, ANSWER, True)
    assert len(turn.passages) == 2
    assert all(passage.in_prompt and passage.from_turn is None for passage in turn.passages)
    assert captured.handle.stats()["evaluated"] == 1


def test_several_searches_for_one_answer(captured: Captured) -> None:
    """What was not given to the model was retrieved all the same."""
    found = [store().similarity_search(query, k=1)[0] for query in ("pier", QUESTION)]
    fakes.model(ANSWER).invoke(prompt(found))

    [turn] = answers(captured)
    assert (turn.query, turn.retrieval_queries) == (QUESTION, ("pier",))
    assert {passage.text for passage in turn.passages} == {document.page_content for document in found}


def test_a_model_in_between(captured: Captured) -> None:
    """It rewrites the question, and its prompt has nothing of what was found."""
    found = store().similarity_search(QUESTION, k=2)
    fakes.model("pier opening").invoke("Write keywords.")
    fakes.model(ANSWER).invoke(prompt(found))

    assert [(turn.response, len(turn.passages)) for turn in answers(captured)] == [("pier opening", 0), (ANSWER, 2)]


def test_a_search_that_is_not_in_the_prompt(captured: Captured) -> None:
    store().similarity_search(QUESTION)
    fakes.model(ANSWER).invoke(QUESTION)

    [turn] = answers(captured)
    assert (turn.query, turn.passages, turn.is_rag) == (QUESTION, (), False)


def test_the_next_answer_of_a_conversation(captured: Captured) -> None:
    """Its prompt still has the passages, which an earlier turn found."""
    found = store().similarity_search(QUESTION, k=2)
    for question in (QUESTION, "And who paid for it?"):
        fakes.model(ANSWER).invoke(prompt(found, question))
        assert captured.handle.flush(10)

    first, second = answers(captured)
    assert [passage.from_turn for passage in first.passages] == [None, None]
    assert [passage.from_turn for passage in second.passages] == [first.id, first.id]
    assert not second.is_rag


def test_questions_at_the_same_time(captured: Captured) -> None:
    """Each answer has what was found in its own task."""

    async def ask(number: int) -> None:
        found = await fakes.ScriptedRetriever(
            find=lambda query: [Document(id=query, page_content=f"Fact {number} about {query} and piers.")]
        ).ainvoke(f"question {number}")
        await asyncio.sleep(0)
        await fakes.model(f"answer {number}").ainvoke(prompt(found, f"question {number}"))

    async def main() -> None:
        await asyncio.gather(*map(ask, range(8)))

    asyncio.run(main())

    turns = answers(captured)
    assert len(turns) == 8
    for turn in turns:
        number = turn.response.removeprefix("answer ")
        assert (turn.query, [passage.id for passage in turn.passages]) == (f"question {number}", [f"question {number}"])


@pytest.mark.parametrize(("query", "passages"), [(QUESTION, 2), ("pier, opening", 0)])
def test_a_search_in_another_context_is_for_the_question(captured: Captured, query: str, passages: int) -> None:
    """What another request searches for at the same time is not in the prompt."""
    found = contextvars.Context().run(store().similarity_search, query, 2)
    fakes.model(ANSWER).invoke(prompt(found))

    assert [len(turn.passages) for turn in answers(captured)] == [passages]


def test_searches_in_threads_and_side_by_side(captured: Captured) -> None:
    """An application that serves requests with asyncio sends the search to a thread."""

    async def main() -> None:
        searched = store()
        found = await asyncio.to_thread(searched.similarity_search, QUESTION, k=1)
        for more in await asyncio.gather(searched.asimilarity_search(QUESTION, k=2)):
            found += more
        await fakes.model(ANSWER).ainvoke(prompt(found))

    asyncio.run(main())

    [turn] = answers(captured)
    assert (turn.query, turn.is_rag, len(turn.passages)) == (QUESTION, True, 2)


def test_short_queries_side_by_side(captured: Captured) -> None:
    """Each search is a task with a context of its own."""

    async def main() -> set[str]:
        searched = store()
        found = await asyncio.gather(*(searched.asimilarity_search(query, k=1) for query in ("pier", "opened")))
        documents = [document for one in found for document in one]
        await fakes.model(ANSWER).ainvoke(prompt(documents))
        return {document.page_content for document in documents}

    found = asyncio.run(main())

    [turn] = answers(captured)
    assert (turn.is_rag, {passage.text for passage in turn.passages}) == (True, found)


def test_searches_are_remembered_for_a_while(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many, and at most for so long."""
    searched = store()
    for _ in range(recent_searches._MAX_SEARCHES + 5):
        found = searched.similarity_search(QUESTION, k=2)
    assert len(recent_searches.recent_searches()) == recent_searches._MAX_SEARCHES

    monkeypatch.setattr(recent_searches, "_SECONDS", 0.0)
    fakes.model(ANSWER).invoke(prompt(found))

    assert [turn.passages for turn in answers(captured)] == [()]


def test_without_instrument_nothing_is_remembered() -> None:
    with rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()]):
        pass
    store().similarity_search(QUESTION)

    assert recent_searches.recent_searches() == []
