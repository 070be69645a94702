"""``start_turn`` around LangChain and LlamaIndex: what they run belongs to the one turn."""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from llama_index.core import get_response_synthesizer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain import fakes as langchain
from tests.integrations.llama_index import fakes as llama_index
from tests.integrations.manual.conftest import Captured

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."
PIER, FERRY = (document.page_content for document in langchain.FACTS)


def ask_model(model: Any, documents: list[Document]) -> str:
    messages = langchain.PROMPT.format_messages(context=langchain.join(documents), question=QUESTION)
    return str(model.invoke(messages).content)


def test_a_chain(captured: Captured) -> None:
    """The turn has the chain's steps, passages, usage and answer."""
    with rageval_hooks.start_turn(QUESTION, session_id="s-1"):
        langchain.lcel().invoke(QUESTION)

    turn = captured.turn
    assert (turn.query, turn.response, turn.session_id) == (QUESTION, ANSWER, "s-1")
    assert [(passage.text, passage.in_prompt) for passage in turn.passages] == [(PIER, True), (FERRY, True)]
    assert [step.kind for step in turn.steps] == ["retriever", "llm"]
    assert turn.usage is not None
    assert turn.usage.total_tokens == 47
    assert turn.model == "scripted-1-2026"
    assert turn.prompt
    assert turn.framework == "langchain"
    assert turn.retrieval_queries == ()


def test_a_vector_store_that_is_searched_directly(captured: Captured) -> None:
    """Without a retriever or a chain around it, in plain Python."""
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents(langchain.FACTS)
    with rageval_hooks.start_turn(QUESTION):
        ask_model(langchain.model(), store.similarity_search("pier", k=2))

    turn = captured.turn
    assert {passage.text: passage.in_prompt for passage in turn.passages} == {PIER: True, FERRY: True}
    assert [(step.kind, step.name, step.top_k) for step in turn.steps[:1]] == [("retriever", "InMemoryVectorStore", 2)]
    assert (turn.response, turn.retrieval_queries, turn.is_rag) == (ANSWER, ("pier",), True)


def test_a_graph_that_waits_for_a_person(captured: Captured) -> None:
    """The question has no answer yet."""

    class State(TypedDict, total=False):
        question: str
        reply: str

    def ask(state: State) -> State:
        langchain.retriever().invoke(state["question"])
        return {"reply": interrupt("Is this the right pier?")}

    graph = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile(InMemorySaver())
    with rageval_hooks.start_turn(QUESTION):
        graph.invoke({"question": QUESTION}, {"configurable": {"thread_id": "t"}})

    assert (captured.turn.status, captured.turn.response) == ("interrupted", "")


def test_an_async_chain(captured: Captured) -> None:
    """Tasks inherit the turn."""

    async def ask() -> None:
        async with rageval_hooks.start_turn(QUESTION) as turn:
            [answer] = await asyncio.gather(asyncio.create_task(langchain.lcel().ainvoke(QUESTION)))
            turn.respond(answer)

    asyncio.run(ask())

    turn = captured.turn
    assert [step.kind for step in turn.steps] == ["retriever", "llm"]
    assert turn.response == ANSWER


def test_a_chain_on_another_thread(captured: Captured) -> None:
    """``asyncio.to_thread`` passes the context on."""

    async def ask() -> None:
        async with rageval_hooks.start_turn(QUESTION):
            await asyncio.to_thread(langchain.lcel().invoke, QUESTION)

    asyncio.run(ask())

    assert captured.turn.query == QUESTION
    assert captured.turn.response == ANSWER


def test_a_streamed_chain(captured: Captured) -> None:
    """A stream that is read inside the block is the answer."""
    with rageval_hooks.start_turn(QUESTION):
        assert "".join(langchain.lcel().stream(QUESTION)) == ANSWER

    turn = captured.turn
    assert turn.response == ANSWER
    assert turn.timing is not None
    assert turn.timing.time_to_first_token is not None


def test_a_loop_of_searches_and_model_calls(captured: Captured) -> None:
    """A helper that searches in a plain loop makes one turn."""
    retriever = langchain.retriever()
    rewriter = langchain.model("opening date pier")
    with rageval_hooks.start_turn(QUESTION):
        documents: list[Document] = []
        for _ in range(3):
            query = str(rewriter.invoke(QUESTION).content)
            documents = retriever.invoke(query)
        ask_model(langchain.model(ANSWER), documents)

    turn = captured.turn
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert turn.retrieval_queries == ("opening date pier",)
    assert [(passage.text, passage.in_prompt) for passage in turn.passages] == [(PIER, True), (FERRY, True)]
    assert [step.kind for step in turn.steps] == ["llm", "retriever"] * 3 + ["llm"]
    assert turn.usage is not None
    assert turn.usage.total_tokens == 4 * 47


def test_graded_documents_do_not_count_as_seen(captured: Captured) -> None:
    """Only the prompt of the answer counts, not a grader's. The document of a web search is named."""
    web = "The harbour office says: the pier was opened in September 2019."
    with rageval_hooks.start_turn(QUESTION) as turn:
        for document in langchain.retriever().invoke(QUESTION):
            ask_model(langchain.model("no"), [document])
        turn.add_passages([web])
        turn.respond(ask_model(langchain.model("In September 2019."), [Document(page_content=web)]))

    passages = captured.turn.passages
    assert [(passage.text, passage.in_prompt) for passage in passages] == [(web, True), (PIER, False), (FERRY, False)]
    assert captured.turn.response == "In September 2019."


def test_a_model_that_is_not_captured(captured: Captured) -> None:
    """The passages that the application named are those that the model saw."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        best, *_ = langchain.retriever().invoke(QUESTION)
        turn.add_passages([best])
        turn.respond("It opened when the last stone was laid, three years ago.")

    turn_ = captured.turn
    assert [(passage.text, passage.in_prompt) for passage in turn_.passages] == [(PIER, None), (FERRY, False)]
    assert turn_.model is None


def test_retrieved_passages_without_named_ones(captured: Captured) -> None:
    """The passages stay unmarked, because the model's prompt is unknown."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        langchain.retriever().invoke(QUESTION)
        turn.respond(ANSWER)

    assert [(passage.text, passage.in_prompt) for passage in captured.turn.passages] == [(PIER, None), (FERRY, None)]


def test_named_passages_that_the_prompt_rewrites(captured: Captured) -> None:
    """If the prompt has none of them, the application's word counts."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        turn.add_passages(["pier;opened;2019"])
        turn.respond(ask_model(langchain.model(ANSWER), langchain.FACTS[:1]))

    assert [passage.in_prompt for passage in captured.turn.passages] == [None]


def test_the_applications_answer_wins(captured: Captured) -> None:
    """It may differ from what the model wrote."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        turn.respond(langchain.lcel().invoke(QUESTION) + " [harbour.md]")

    assert captured.turn.response == ANSWER + " [harbour.md]"
    assert captured.turn.model == "scripted-1-2026"


def test_a_query_engine(captured: Captured) -> None:
    """LlamaIndex runs belong to the turn, too."""
    nodes = [NodeWithScore(node=TextNode(text=PIER, id_="d1"), score=0.9)]
    engine = RetrieverQueryEngine(
        llama_index.ScriptedRetriever(lambda query: nodes), get_response_synthesizer(llm=llama_index.llm(ANSWER))
    )
    with rageval_hooks.start_turn(QUESTION):
        engine.query(QUESTION)

    turn = captured.turn
    assert (turn.response, turn.framework) == (ANSWER, "llama_index")
    assert [(passage.id, passage.score, passage.in_prompt) for passage in turn.passages] == [("d1", 0.9, True)]
    assert [step.kind for step in turn.steps] == ["retriever", "llm"]


def test_both_frameworks(captured: Captured) -> None:
    """A retriever of LlamaIndex and a model of LangChain make one turn."""
    nodes = [NodeWithScore(node=TextNode(text=PIER, id_="d1"), score=0.9)]
    with rageval_hooks.start_turn(QUESTION):
        found = llama_index.ScriptedRetriever(lambda query: nodes).retrieve(QUESTION)
        ask_model(langchain.model(ANSWER), [Document(page_content=node.text) for node in found])

    turn = captured.turn
    assert turn.response == ANSWER
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("d1", True)]


def test_inside_a_chain(captured: Captured) -> None:
    """The framework's run is the turn. The block adds its passages."""

    def search(question: str) -> str:
        with rageval_hooks.start_turn(question) as turn:
            turn.add_passages([PIER])
        return ask_model(langchain.model(ANSWER), langchain.FACTS[:1])

    RunnableLambda(search).invoke(QUESTION)

    turn = captured.turn
    assert (turn.query, turn.response, turn.framework) == (QUESTION, ANSWER, "langchain")
    assert [(passage.text, passage.in_prompt) for passage in turn.passages] == [(PIER, True)]


def test_a_chain_inside_a_block_inside_a_chain(captured: Captured) -> None:
    """The outermost run is the turn."""

    def search(question: str) -> str:
        with rageval_hooks.start_turn("another question") as turn:
            answer = str(langchain.lcel().invoke(question))
            turn.respond(answer)
        return answer

    RunnableLambda(search).invoke(QUESTION)

    turn = captured.turn
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert len(turn.passages) == 2


def test_a_chain_after_the_block_is_a_new_turn(captured: Captured) -> None:
    """The block has ended."""
    with rageval_hooks.start_turn("first") as turn:
        turn.respond(ANSWER)
    langchain.lcel().invoke("second")

    assert [turn.query for turn in captured.turns] == ["first", "second"]


def test_a_chain_that_fails(captured: Captured) -> None:
    """The turn has the exception. The text of a model before it is not a complete answer."""
    broken = langchain.lcel(llama_index.OutOfOrderError("no line"))

    def ask() -> None:
        with rageval_hooks.start_turn(QUESTION):
            langchain.model("opening date pier").invoke(QUESTION)
            broken.invoke(QUESTION)

    with pytest.raises(llama_index.OutOfOrderError):
        ask()

    turn = captured.turn
    assert turn.status == "error"
    assert not turn.complete


def test_sampled_out() -> None:
    """Runs inside a sampled-out block are not separate turns."""
    memory = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[memory], sample_rate=0.0) as handle:
        with rageval_hooks.start_turn(QUESTION):
            langchain.lcel().invoke(QUESTION)
        assert handle.flush(10)
        assert memory.evaluations == []
        assert handle.stats()["sampled_out"] == 1
        assert handle.stats()["open_runs"] == 0


def test_two_calls_with_the_same_text(captured: Captured) -> None:
    """The second model only repeats what it was told to say: the prompt is that of the first one."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        ask_model(langchain.model(), langchain.FACTS)
        langchain.model().invoke([("system", f"Say: {ANSWER}"), ("user", "Please.")])
        turn.respond(ANSWER)

    assert PIER in captured.turn.prompt[0].content
