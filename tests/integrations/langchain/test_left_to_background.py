"""If nothing is computed before the call returns, the turn is built later from copies made at the end of the call."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableLambda

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.text.tokens import count_tokens
from tests.integrations.langchain.fakes import USAGE, lcel, model, retriever


def test_what_the_application_changes_afterwards_does_not_count() -> None:
    """The application may change the documents, messages, lists and dictionaries that the call returned."""

    def search(question: dict[str, Any]) -> list[Document]:
        return [Document(page_content="The pier was opened in 2019.", id="1", metadata={"source": "a"})]

    def respond(state: dict[str, Any]) -> dict[str, Any]:
        documents = RunnableLambda(search).invoke(state)
        return {"context": documents, "messages": [*state["messages"], AIMessage("In 2019.")]}

    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
        given = {"messages": [HumanMessage("When?")]}
        result = RunnableLambda(respond).invoke(given)
        result["context"][0].page_content = "cut"
        result["context"][0].metadata["source"] = "b"
        result["context"].clear()
        result["messages"][-1].content = "changed"
        given["messages"].append(HumanMessage("And who built it?"))
        result.clear()
        assert handle.flush(10)

    [turn] = [evaluation.turn for evaluation in exporter.evaluations]
    assert turn.query == "When?"
    assert turn.response == "In 2019."
    assert [(passage.text, passage.metadata) for passage in turn.passages] == [
        ("The pier was opened in 2019.", {"source": "a"})
    ]


def test_also_deep_inside() -> None:
    """Copies include content blocks, dictionary subclasses, nested metadata and lists that are in two places."""
    messages = [HumanMessage([{"type": "text", "text": "When?"}])]
    given = OrderedDict(deep={"within": {"what": messages}}, messages=messages)
    documents = [Document(page_content="The pier.", id="1", metadata={"source": {"file": "a"}})]
    answer = AIMessage([{"type": "text", "text": "In 2019."}])

    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
        chain = RunnableLambda(lambda _: documents) | RunnableLambda(lambda _: answer)
        chain.invoke(given)
        messages[0].content[0]["text"] = "changed"  # type: ignore[index]
        answer.content[0]["text"] = "changed"  # type: ignore[index]
        documents[0].metadata["source"]["file"] = "b"
        given.clear()
        assert handle.flush(10)

    [turn] = [evaluation.turn for evaluation in exporter.evaluations]
    assert (turn.query, turn.response) == ("When?", "In 2019.")
    assert [passage.metadata for passage in turn.passages] == [{"source": {"file": "a"}}]


CALL: Any = {"name": "search", "args": {"query": "pier"}, "id": "1", "type": "tool_call"}
BLOCKS: Any = [{"type": "text", "text": "In 2019."}]


class Asking(BaseMessage):
    """A message class of the application."""

    type: str = "ai"

    @property
    def tool_calls(self) -> Any:
        """Return the tool calls of the message."""
        return [CALL]


MODELS: dict[str, Any] = {
    "text": model(),
    "blocks": model(AIMessage(BLOCKS, usage_metadata=USAGE, response_metadata={"model_name": "m-2"})),  # type: ignore[arg-type]
    "tool calls": model(AIMessage("", tool_calls=[CALL], usage_metadata=USAGE)),  # type: ignore[arg-type]
    "failure": model(ValueError("no answer")).with_fallbacks([model("It was opened.")]),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("spans", ["rag", "all"])
@pytest.mark.parametrize("name", list(MODELS))
def test_the_turn_is_the_one_that_would_have_been_built_at_once(name: str, spans: Any, streamed: bool) -> None:
    """Apart from ids and times, a turn built from copies equals one built at once."""
    count_tokens(["load the tokenizer"], wait=True)
    history = [
        HumanMessage("When?"),
        AIMessage("", tool_calls=[CALL]),
        ToolMessage("In 2019.", tool_call_id="1"),
        ChatMessage("", role="assistant", tool_calls=[CALL]),  # type: ignore[call-arg]
        Asking(content=""),
    ]
    chain: Runnable[Any, Any] = {"context": retriever()} | RunnableLambda(lambda _: history) | MODELS[name]
    turns = []
    for settings in ({}, {"on_evaluation": lambda evaluation: None}):
        exporter = InMemoryExporter()
        with rageval_hooks.instrument(metrics=[], exporters=[exporter], spans=spans, **settings) as handle:
            list(chain.stream("When?")) if streamed else chain.invoke("When?")
            assert handle.flush(10)
        [turn] = [evaluation.turn for evaluation in exporter.evaluations]
        data = turn.model_dump(exclude={"id", "span", "timing"})
        for step in data["steps"]:
            for field in ("id", "parent_id", "started_at", "ended_at", "time_to_first_token"):
                del step[field]
        turns.append(data)

    assert turns[0] == turns[1]
    assert [message["role"] for message in turns[0]["prompt"]] == ["user", "assistant", "tool", "chat", "assistant"]
    assert all('"search"' in turns[0]["prompt"][number]["content"] for number in (1, 3, 4))


def test_statistics_count_turns_that_are_not_built_yet() -> None:
    """A turn is counted when its call returns, and as evaluated after a flush."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
        for number in range(3):
            lcel().invoke(f"When? {number}")
        before = handle.stats()
        assert handle.flush(10)
        after = handle.stats()

    assert before["turns"] == 3
    assert (after["turns"], after["evaluated"]) == (3, 3)
    assert len(exporter.evaluations) == 3


def test_somebody_who_is_called_has_the_turn_when_the_call_returns() -> None:
    """With ``on_evaluation`` the turn is built before the call returns."""
    seen = []
    with rageval_hooks.instrument(metrics=[], exporters=[], on_evaluation=seen.append):
        lcel("fine").invoke("When?")
        assert [evaluation.turn.response for evaluation in seen] == ["fine"]


@pytest.mark.parametrize("settings", [{}, {"on_evaluation": lambda evaluation: None}], ids=["later", "at once"])
def test_passages_that_are_cut_in_place_before_the_prompt(settings: Any) -> None:
    """The passage keeps its whole text, and has the share of it that is in the prompt."""
    found = [Document(page_content=text * 8) for text in ("The pier was opened in 2019. ", "Cows like clover. ")]
    texts = [document.page_content for document in found]

    def cut(documents: list[Document]) -> str:
        documents[0].page_content = documents[0].page_content[:60]
        del documents[1:]
        return "\n".join(document.page_content for document in documents)

    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], **settings) as handle:
        (retriever(found) | RunnableLambda(cut) | RunnableLambda(lambda text: [HumanMessage(text)]) | model()).invoke(
            "When?"
        )
        assert handle.flush(10)

    [turn] = [evaluation.turn for evaluation in exporter.evaluations]
    assert [passage.text for passage in turn.passages] == [*texts, texts[0][:60]]
    assert [passage.prompt_share for passage in turn.passages] == [
        pytest.approx(60 / len(texts[0]), abs=0.02),
        0.0,
        1.0,
    ]
