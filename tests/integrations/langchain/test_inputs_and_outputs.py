"""Questions and answers are found in every shape that LangChain applications have."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompt_values import StringPromptValue
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langgraph.types import Command

from rageval_hooks.integrations.langchain.payloads import DocumentReader
from rageval_hooks.integrations.langchain.question_and_answer import answer_of
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import FACTS, lcel, model, retriever

HISTORY = [
    SystemMessage("Be brief."),
    HumanMessage("Hello"),
    AIMessage("Hello!"),
    HumanMessage("When was it opened?"),
    AIMessage("", tool_calls=[{"name": "search", "args": {}, "id": "1"}]),
]

INPUTS: dict[str, tuple[Any, str]] = {
    "a string": ("When?", "When?"),
    "input": ({"input": "When?", "lang": "en"}, "When?"),
    "question": ({"question": "When?", "style": "short"}, "When?"),
    "query": ({"query": "When?", "k": 4}, "When?"),
    "the only string": ({"ask": "When?", "k": 4}, "When?"),
    "two strings that could be it": ({"ask": "When?", "lang": "en"}, "search terms"),
    "messages": ({"messages": HISTORY}, "When was it opened?"),
    "a list of messages": (HISTORY, "When was it opened?"),
    "pairs": ({"messages": [("system", "Be brief."), ("human", "When?")]}, "When?"),
    "role mappings": ({"messages": [{"role": "user", "content": "When?"}]}, "When?"),
    "a question and a history": ({"input": "When?", "chat_history": HISTORY}, "When?"),
    "a history under input": ({"input": HISTORY}, "When was it opened?"),
    "a message": (HumanMessage("When?"), "When?"),
    "content blocks": (
        HumanMessage([{"type": "text", "text": "When?"}, {"type": "image_url", "image_url": ""}]),
        "When?",
    ),
    "a command": (Command(resume="yes", update={"question": "When?"}), "When?"),
    "a prompt value": (StringPromptValue(text="When?"), "When?"),
    "nothing that is known": (42, "search terms"),
}


@pytest.mark.parametrize(("given", "query"), INPUTS.values(), ids=INPUTS.keys())
def test_the_query(captured: Captured, given: Any, query: str) -> None:
    """The user's question is found in the input; without one, the retriever's query is used."""
    chain = RunnableLambda(lambda value: "search terms") | retriever() | RunnableLambda(lambda documents: "In 2019.")
    chain.invoke(given)

    assert captured.turn.query == query


OUTPUTS: dict[str, tuple[Any, str]] = {
    "a string": ("In 2019.", "In 2019."),
    "a message": (AIMessage("In 2019."), "In 2019."),
    "blocks": (AIMessage([{"type": "text", "text": "In "}, {"type": "text", "text": "2019."}]), "In 2019."),
    "answer": ({"answer": "In 2019.", "context": FACTS}, "In 2019."),
    "output": ({"input": "When?", "output": "In 2019."}, "In 2019."),
    "result": ({"query": "When?", "result": "In 2019."}, "In 2019."),
    "the only string": ({"reply": "In 2019.", "documents": FACTS}, "In 2019."),
    "the only string, under a key of the application": ({"spoken": "In 2019.", "hits": 2}, "In 2019."),
    "a message in a mapping": ({"response": AIMessage("In 2019.")}, "In 2019."),
    "blocks next to other texts": (
        {"rewritten": "opening year", "answer": [{"type": "text", "text": "In 2019."}]},
        "In 2019.",
    ),
    "blocks under another key": ({"reply": [{"type": "text", "text": "In 2019."}], "hits": 2}, "In 2019."),
    "agent state": (
        {"messages": [HumanMessage("When?"), AIMessage("In 2019.")]},
        "In 2019.",
    ),
    "messages": ([HumanMessage("When?"), AIMessage("In 2019.")], "In 2019."),
    "an empty answer": ("", ""),
    "something else": (FACTS, "what the model wrote"),
}


@pytest.mark.parametrize(("returned", "answer"), OUTPUTS.values(), ids=OUTPUTS.keys())
def test_the_answer(captured: Captured, returned: Any, answer: str) -> None:
    """The answer is found in the output; without one, the model's text is used."""
    chain = retriever() | str | model("what the model wrote") | RunnableLambda(lambda message: returned)
    chain.invoke("When?")

    assert captured.turn.response == answer


def test_a_text_accessor_is_a_string(captured: Captured) -> None:
    """``message.text`` is a subclass of str in current versions."""
    chain = retriever() | str | model("In 2019.") | RunnableLambda(lambda message: message.text)
    chain.invoke("When?")

    assert captured.turn.response == "In 2019."
    assert type(captured.turn.response) is str


def test_a_history_that_grows_afterwards_does_not_change_the_turn(captured: Captured) -> None:
    """Applications append to the list that they passed."""
    history = [HumanMessage("When?")]
    chain = RunnablePassthrough() | RunnableLambda(lambda value: "x") | retriever() | str | model("In 2019.")
    chain.invoke({"messages": history})
    history += [AIMessage("In 2019."), HumanMessage("And how much did it cost?")]

    assert captured.turn.query == "When?"


DOCUMENTS: dict[str, tuple[Any, float | None]] = {
    "score": (Document("x", metadata={"score": 0.25}), 0.25),
    "relevance_score": (Document("x", metadata={"relevance_score": "0.25"}), 0.25),
    "similarity_score": (Document("x", metadata={"similarity_score": 0.25}), 0.25),
    "a reranker's score comes before the store's": (
        Document("x", metadata={"score": 9.0, "relevance_score": 0.25}),
        0.25,
    ),
    "next to the document": ((Document("x"), 0.25), 0.25),
    "none": (Document("x"), None),
    "no number": (Document("x", metadata={"score": "high"}), None),
    "not finite": (Document("x", metadata={"score": float("nan")}), None),
}


@pytest.mark.parametrize(("document", "score"), DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_the_score_of_a_document(document: Any, score: float | None) -> None:
    """Stores and rerankers put their score in different places."""
    [passage] = DocumentReader().passages_in([document])

    assert passage.score == score


def test_documents_keep_id_and_metadata(captured: Captured) -> None:
    """The passage has the document's id, and its metadata as JSON-able data."""
    document = Document(id="d1", page_content="x", metadata={"page": 3, "tags": ("a", "b"), "when": object})
    (retriever([document]) | str | model("y")).invoke("When?")

    [passage] = captured.turn.passages
    assert passage.id == "d1"
    assert passage.metadata == {"page": 3, "tags": ["a", "b"], "when": "<class 'object'>"}


def test_an_id_in_the_metadata_serves(captured: Captured) -> None:
    """Some stores put the id into the metadata only."""
    (retriever([Document("x", metadata={"id": 17})]) | str | model("y")).invoke("When?")

    assert captured.turn.passages[0].id == "17"


def test_citations_that_the_model_marks_are_kept(captured: Captured) -> None:
    """The turn has them with their positions in the whole answer, for the metric ``citation``."""
    blocks = [
        {"type": "text", "text": "It was opened in 2019."},
        {"type": "text", "text": " It is 96 m long.", "annotations": [{"type": "citation", "title": "harbour.md"}]},
    ]

    lcel(AIMessage(blocks)).invoke("When?")

    [citation] = captured.turn.metadata["citations"]
    assert citation["title"] == "harbour.md"
    assert captured.turn.response[citation["start_index"] : citation["end_index"]] == " It is 96 m long."


SAVES = AIMessage("In 2019.", tool_calls=[{"name": "save", "args": {}, "id": "1"}])
ASKS = AIMessage("", tool_calls=[{"name": "save", "args": {}, "id": "1"}])
SAVED = ToolMessage("Saved.", tool_call_id="1")


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([ASKS, SAVED, AIMessage("In 2019.")], "In 2019."),
        ([AIMessage("In 2019."), ASKS, SAVED, ASKS], "In 2019."),
        ([SAVES, SAVED], "In 2019."),
        ([ASKS, SAVED], "Saved."),
        ([ASKS, SAVED, HumanMessage("In 2019.")], "In 2019."),
        ([ASKS, SAVED, AIMessage("")], ""),
    ],
    ids=[
        "after the tool",
        "before a call that nothing has answered",
        "next to the call",
        "the tool's",
        "as a human message",
        "none",
    ],
)
def test_the_reply_of_an_agent(messages: list[Any], answer: str) -> None:
    """What comes after the last tool, else what stands before or next to the call, else what the tool returned."""
    assert answer_of({"messages": [HumanMessage("When?"), *messages]}, {"messages": [HumanMessage("When?")]}) == answer
