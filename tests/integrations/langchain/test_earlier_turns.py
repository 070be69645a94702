"""Conversations with a memory: passages of earlier turns are in the prompt or in the state, but were not retrieved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from llama_index.core.schema import NodeWithScore, TextNode

import rageval_hooks
from rageval_hooks.score import Evaluation, Score, Skipped
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import PROMPT, join, model, retriever
from tests.integrations.llama_index import fakes as llama_index

QUESTION = "When was the pier opened?"

BOOK = {
    "pier": [Document(id="pier", page_content="The pier was opened in 2019.")],
    "ferry": [Document(id="ferry", page_content="The ferry to Quern takes 18 minutes.")],
}
FOUND_EARLIER = "Handbook: the pier was opened in 2019, says page 7."
HISTORY: list[Any] = [
    ("human", QUESTION),
    AIMessage("", tool_calls=[{"name": "search", "args": {"query": "pier"}, "id": "call_of_another_process"}]),
    ToolMessage(FOUND_EARLIER, tool_call_id="call_of_another_process"),
    ("ai", "In 2019."),
]
"""A conversation that began in another process, as the client sends it."""

ANSWERS = {"pier": "It was opened in 2019.", "ferry": "It takes 18 minutes."}


class Asked(TypedDict, total=False):
    question: str
    answer: str
    messages: Annotated[list[Any], add_messages]


def test_an_answer_that_the_state_still_has_is_not_that_of_this_turn(captured: Captured) -> None:
    """A graph with a checkpointer, one branch of which only replies in the conversation."""

    def respond(state: Asked) -> Any:
        if topic(state["question"]) is None:
            return {"messages": [model("You are welcome.").invoke(state["messages"])]}
        found = retriever(BOOK["pier"]).invoke(state["question"])
        return {"answer": (PROMPT | model(ANSWERS["pier"])).invoke({"context": found, **state}).text}

    graph = StateGraph(Asked).add_node("respond", respond).add_edge(START, "respond").compile(InMemorySaver())
    for question in (QUESTION, "Thank you!"):
        graph.invoke({"question": question, "messages": [("user", question)]}, {"configurable": {"thread_id": "t"}})

    assert [turn.response for turn in captured.turns] == [ANSWERS["pier"], "You are welcome."]


@pytest.fixture
def scored() -> Iterator[Captured]:
    """An instrumented process with the local metrics that need no model."""
    exporter = InMemoryExporter()
    metrics = ["context_relevance", "groundedness"]
    with rageval_hooks.instrument(models="lexical", metrics=metrics, exporters=[exporter]) as handle:
        yield Captured(handle, exporter)


def topic(text: str) -> str | None:
    return next((name for name in BOOK if name in text), None)


def agent() -> Any:
    """A chat agent that searches for the topics that it knows, and answers anything else by itself."""

    @tool
    def search(query: str) -> str:
        """Search the handbook."""
        return join(retriever(BOOK[query]).invoke(query))

    def script(messages: list[Any]) -> Any:
        question = next(message.text for message in reversed(messages) if message.type == "human")
        name = topic(question)
        if name is None:
            return "You are welcome!"
        if isinstance(messages[-1], ToolMessage):
            return ANSWERS[name]
        call = {"name": "search", "args": {"query": name}, "id": f"call_{len(messages)}"}
        return AIMessage("", tool_calls=[call])

    return create_agent(model(script), [search], checkpointer=InMemorySaver())


@pytest.fixture
def thread() -> Any:
    """The configuration of a conversation."""
    return {"configurable": {"thread_id": str(uuid4())}}


def ask(app: Any, question: str, thread: Any) -> None:
    app.invoke({"messages": [("human", question)]}, thread)


def origins(turn: Turn) -> dict[str | None, str | None]:
    return {passage.id: passage.from_turn for passage in turn.passages}


def test_thanks_in_an_agent_with_memory_is_no_failed_answer(
    captured: Captured, caplog: pytest.LogCaptureFixture, thread: Any
) -> None:
    """The earlier tool message is in the prompt. It does not make the reply a RAG turn, and nothing is missing."""
    app = agent()
    ask(app, QUESTION, thread)
    ask(app, "Thank you", thread)

    first, thanks = captured.turns
    assert (first.is_rag, origins(first)) == (True, {"pier": None})
    assert (thanks.response, thanks.is_rag, thanks.has_retrieval) == ("You are welcome!", False, False)
    assert origins(thanks) == {"pier": first.id}
    assert not any(captured.handle.stats()["without_passages_by_reason"].values())
    assert "RAGEVAL-209" not in caplog.text


def test_a_new_search_next_to_earlier_tool_messages(captured: Captured, thread: Any) -> None:
    """The passages of this turn come first, whatever the order in the prompt."""
    app = agent()
    ask(app, QUESTION, thread)
    ask(app, "And the ferry?", thread)

    first, second = captured.turns
    assert list(origins(second).items()) == [("ferry", None), ("pier", first.id)]
    assert [passage.id for passage in second.retrieved] == ["ferry"]


def test_the_same_retrieval_keeps_its_relevance_as_the_thread_grows(scored: Captured, thread: Any) -> None:
    """Earlier passages are not part of the mean, nor scored by themselves."""
    app = agent()
    for question in (QUESTION, "How long does the ferry take?", "When was the new pier opened?"):
        ask(app, question, thread)

    relevance = [_values(evaluation, "context_relevance") for evaluation in _by_start(scored)]
    alone = [_values(evaluation, "context_relevance") for evaluation in _alone(scored)]
    assert relevance == alone
    assert all(len(values) == 2 for values in relevance)  # the turn's, and that of its only passage


def _alone(scored: Captured) -> list[Evaluation]:
    """Evaluate the same turns without the passages of earlier turns."""
    return [
        rageval_hooks.evaluate(
            turn.model_copy(update={"passages": turn.retrieved}), metrics=["context_relevance"], models="lexical"
        )
        for turn in scored.turns
    ]


def _by_start(scored: Captured) -> list[Evaluation]:
    assert scored.handle.flush(20)
    with_scores = [one for one in scored.exporter.evaluations if _values(one, "context_relevance")]
    return sorted(with_scores, key=lambda one: one.turn.timing.started_at if one.turn.timing else 0)


def _values(evaluation: Evaluation, name: str) -> list[float]:
    return [result.value for result in evaluation.results if isinstance(result, Score) and result.name == name]


def test_scores_of_a_follow_up_without_a_search(thread: Any) -> None:
    """Groundedness uses the earlier passages. Retrieval scores are skipped, and say why."""
    exporter = InMemoryExporter()
    metrics = ["context_relevance", "groundedness"]
    with rageval_hooks.instrument(
        models="lexical", metrics=metrics, exporters=[exporter], evaluate_without_retrieval=True
    ) as handle:
        app = agent()
        ask(app, QUESTION, thread)
        ask(app, "You are sure about 2019?", thread)
        assert handle.flush(20)

    results = [
        result
        for evaluation in exporter.evaluations
        if evaluation.turn.query == "You are sure about 2019?"
        for result in evaluation.results
    ]
    [skipped] = [result for result in results if result.name == "context_relevance"]
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "nothing was retrieved in this turn: its passages (1) are of earlier turns"
    assert any(isinstance(result, Score) and result.name == "groundedness" for result in results)


def test_a_history_that_the_client_sends(captured: Captured) -> None:
    """Without a checkpointer, the turn that searched is not known; its results are not of this turn either."""
    create_agent(model("You are welcome!"), []).invoke({"messages": [*HISTORY, ("human", "Thank you")]})

    turn = captured.turn
    assert (turn.query, turn.is_rag) == ("Thank you", False)
    assert [(passage.text, passage.from_turn) for passage in turn.passages] == [(FOUND_EARLIER, "earlier")]


def test_they_come_after_those_that_another_framework_finds(captured: Captured) -> None:
    """A function of the chain asks a retriever of LlamaIndex."""
    ferry = "The ferry to Quern takes 18 minutes."

    def answer(question: str) -> Any:
        nodes = llama_index.ScriptedRetriever(lambda _: [NodeWithScore(node=TextNode(text=ferry))]).retrieve(question)
        return model("It takes 18 minutes.").invoke([*HISTORY, ("human", f"{nodes[0].text}\n\n{question}")])

    RunnableLambda(answer).invoke("How long does the ferry take?")

    assert [(passage.text, passage.from_turn) for passage in captured.turn.passages] == [
        (ferry, None),
        (FOUND_EARLIER, "earlier"),
    ]


class State(TypedDict, total=False):
    question: str
    documents: list[Document]
    answer: str


def graph(*, uses_old_documents: bool = False) -> Any:
    """A graph with a checkpointer that searches, or replies without a search."""

    def retrieve(state: State) -> Any:
        name = topic(state["question"]) or "pier"
        return {"documents": retriever(BOOK[name]).invoke(state["question"])}

    def generate(state: State) -> Any:
        name = topic(state["question"]) or "pier"
        prompt = PROMPT.invoke({"context": join(state["documents"]), "question": state["question"]})
        return {"answer": model(ANSWERS[name]).invoke(prompt).text}

    def chat(state: State) -> Any:
        old = join(state["documents"]) if uses_old_documents else ""
        return {"answer": model("You are welcome!").invoke(old + state["question"]).text}

    builder: Any = StateGraph(State)
    builder.add_node("retrieve", retrieve).add_node("generate", generate).add_node("chat", chat)
    builder.add_conditional_edges(START, lambda state: "retrieve" if topic(state["question"]) else "chat")
    builder.add_edge("retrieve", "generate")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("uses_old_documents", [False, True])
def test_documents_that_a_checkpoint_carries_over(
    captured: Captured, caplog: pytest.LogCaptureFixture, uses_old_documents: bool, thread: Any
) -> None:
    """The state of the graph still has the documents of the turn before."""
    app = graph(uses_old_documents=uses_old_documents)
    app.invoke({"question": QUESTION}, thread)
    app.invoke({"question": "Thank you"}, thread)

    first, thanks = captured.turns
    assert (first.is_rag, origins(first)) == (True, {"pier": None})
    assert (thanks.response, thanks.is_rag) == ("You are welcome!", False)
    assert origins(thanks) == ({"pier": first.id} if uses_old_documents else {})
    assert not any(captured.handle.stats()["without_passages_by_reason"].values())
    assert "RAGEVAL-209" not in caplog.text


def test_documents_that_are_found_again(captured: Captured, thread: Any) -> None:
    """The state has them already, but this turn has searched, too."""
    app = graph()
    app.invoke({"question": QUESTION}, thread)
    app.invoke({"question": "The pier once more, please"}, thread)

    assert [origins(turn) for turn in captured.turns] == [{"pier": None}, {"pier": None}]


def test_documents_in_the_input_of_a_graph_are_of_this_turn(captured: Captured, thread: Any) -> None:
    """The application has searched before it calls the graph."""
    graph(uses_old_documents=True).invoke({"question": "Thank you", "documents": BOOK["ferry"]}, thread)

    assert (captured.turn.is_rag, origins(captured.turn)) == (True, {"ferry": None})


class Found(TypedDict, total=False):
    question: str
    documents: list[Document]
    answer: str


def answer_from_documents(state: Found) -> Any:
    prompt = PROMPT.invoke({"context": join(state["documents"]), "question": state["question"]})
    return {"answer": model("It was opened in 2019.").invoke(prompt).text}


def add(state: Found) -> Any:
    return {"documents": [*(state.get("documents") or ()), *BOOK["pier" if "pier" in state["question"] else "ferry"]]}


def test_documents_that_a_node_adds_by_itself_are_of_this_turn(captured: Captured, thread: Any) -> None:
    """The function of a conditional edge receives them before the node has ended."""
    graph = StateGraph(Found).add_node("search", add).add_node("respond", answer_from_documents)
    graph.add_edge(START, "search").add_conditional_edges("search", lambda state: "respond", ["respond"])
    app = graph.compile(InMemorySaver())
    for question in (QUESTION, "And the ferry?"):
        app.invoke({"question": question}, thread)

    first, second = captured.turns
    assert origins(first) == {"pier": None}
    assert origins(second) == {"ferry": None, "pier": first.id}


def test_documents_that_a_node_gives_to_a_chain_inside_it_are_of_this_turn(captured: Captured, thread: Any) -> None:
    def respond(state: Found) -> Any:
        return RunnableLambda(answer_from_documents).invoke({"documents": BOOK["pier"], "question": state["question"]})

    graph = StateGraph(Found).add_node("respond", respond).add_edge(START, "respond").compile(InMemorySaver())
    graph.invoke({"question": QUESTION}, thread)

    assert origins(captured.turn) == {"pier": None}


def test_documents_of_an_earlier_turn_in_another_process(captured: Captured) -> None:
    """A message of a tool has them as its artifact, next to their text."""
    found = Document(id="pier", page_content="The pier was opened in 2019.")
    history = [
        *HISTORY[:2],
        ToolMessage(found.page_content, artifact=[found], tool_call_id=HISTORY[1].tool_calls[0]["id"]),
    ]
    model("In 2019, as I said.").invoke([*history, ("ai", "In 2019."), ("human", "Are you sure?")])

    assert {passage.id: passage.in_prompt for passage in captured.turn.passages} == {"pier": True}
