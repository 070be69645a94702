"""Ids of sessions and users, and calls that are not turns."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_classic.chains import RetrievalQA
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableFieldSpec, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import FACTS, PROMPT, join, lcel, model, retriever

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.deprecation.LangChainDeprecationWarning")

QUESTION = "When was the pier opened?"


def test_the_session_of_a_chain_with_history(captured: Captured) -> None:
    """``RunnableWithMessageHistory`` has the session id in ``configurable`` only."""
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Use this:\n{context}"), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    histories: dict[str, InMemoryChatMessageHistory] = {}
    chain: Any = RunnablePassthrough.assign(context=(lambda given: given["question"]) | retriever() | join)
    with_history = RunnableWithMessageHistory(
        chain | prompt | model("In 2019."),
        lambda session_id: histories.setdefault(session_id, InMemoryChatMessageHistory()),
        input_messages_key="question",
        history_messages_key="history",
    )
    for _ in range(2):
        with_history.invoke({"question": QUESTION}, {"configurable": {"session_id": "s-1"}})

    assert [(turn.session_id, turn.query, turn.response) for turn in captured.turns] == [
        ("s-1", QUESTION, "In 2019.")
    ] * 2


def test_keys_of_the_applications_own(captured: Captured) -> None:
    """LangChain's guide on histories uses keys for the user and the conversation."""
    with_history = RunnableWithMessageHistory(
        lcel(),
        lambda user_id, conversation_id: InMemoryChatMessageHistory(),
        history_factory_config=[
            ConfigurableFieldSpec(id="user_id", annotation=str, name="", description="", default="", is_shared=True),
            ConfigurableFieldSpec(
                id="conversation_id", annotation=str, name="", description="", default="", is_shared=True
            ),
        ],
    )
    with_history.invoke(QUESTION, {"configurable": {"user_id": "marta", "conversation_id": "c-1"}})

    assert (captured.turn.session_id, captured.turn.user_id) == ("c-1", "marta")


def test_a_run_inside_with_other_ids(captured: Captured) -> None:
    """The ids of the outermost run that has some count."""
    inner = lcel().with_config(metadata={"session_id": "inner", "user_id": "marta"})
    RunnableLambda(lambda question: inner.invoke(question)).invoke(QUESTION, {"metadata": {"session_id": "outer"}})

    assert (captured.turn.session_id, captured.turn.user_id) == ("outer", "marta")


def test_ids_in_the_configuration_of_a_graph(captured: Captured) -> None:
    """``user_id`` is next to ``thread_id``."""

    def respond(state: Any) -> Any:
        found = retriever().invoke(QUESTION)
        return {"messages": [model("In 2019.").invoke(join(found))]}

    graph = StateGraph(MessagesState).add_node("respond", respond).add_edge(START, "respond")
    graph.compile(checkpointer=InMemorySaver()).invoke(
        {"messages": [("human", QUESTION)]}, {"configurable": {"thread_id": "t-1", "user_id": "marta"}}
    )

    assert (captured.turn.session_id, captured.turn.user_id) == ("t-1", "marta")


class Rewriting(BaseRetriever):
    """A retriever that asks a model for a better query, without passing callbacks on."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        model("pier opening year").invoke(f"Rewrite: {query}")
        return FACTS


@pytest.mark.parametrize("chain", ["legacy", "LCEL"])
def test_a_model_that_a_retriever_calls(captured: Captured, chain: str) -> None:
    """The call is part of the turn and its tokens count, but it did not write the answer."""
    if chain == "legacy":
        RetrievalQA.from_llm(model("In 2019."), retriever=Rewriting()).invoke({"query": QUESTION})
    else:
        ({"context": Rewriting() | join, "question": RunnablePassthrough()} | PROMPT | model("In 2019.")).invoke(
            QUESTION
        )

    turn = captured.turn
    assert (turn.query, turn.response) == (QUESTION, "In 2019.")
    assert [step.kind for step in turn.steps] == ["retriever", "llm", "llm"]
    assert turn.steps[1].parent_id == turn.steps[0].id
    assert turn.usage is not None
    assert turn.usage.input_tokens == 80


def test_an_update_of_a_graphs_state_is_not_a_turn(captured: Captured) -> None:
    """``update_state`` runs the branches after a node, but answers nothing."""

    def respond(state: Any) -> Any:
        found = RunnableLambda(retriever().invoke).invoke(QUESTION)
        return {"messages": [model("In 2019.").invoke(join(found))]}

    builder = StateGraph(MessagesState).add_node("respond", respond).add_edge(START, "respond")
    builder.add_conditional_edges("respond", lambda state: END)
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t-1"}}
    graph.invoke({"messages": [("human", QUESTION)]}, config)
    graph.update_state(config, {"messages": [("human", "Thanks.")]}, as_node="respond")

    assert [turn.name for turn in captured.turns] == ["LangGraph"]
    assert captured.handle.stats()["turns"] == 1
