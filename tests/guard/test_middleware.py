"""A guard as middleware of langchain's agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

import rageval_hooks
from rageval_hooks import AnswerBlockedError, GroundingGuard
from tests.guard.conftest import FALLBACK, PASSAGE, SUPPORTED, UNSUPPORTED, Traced, make_guard
from tests.integrations.langchain.fakes import ScriptedChatModel


@tool
def search(query: str) -> str:
    """Search the handbook."""
    return PASSAGE


class Opening(BaseModel):
    """A structured answer."""

    text: str


class Script:
    """Searches first, and then gives one answer after the other."""

    def __init__(self, *answers: str) -> None:
        self.answers: Iterator[str] = iter(answers)
        self.prompts: list[list[BaseMessage]] = []

    def __call__(self, messages: list[BaseMessage]) -> Any:
        self.prompts.append(list(messages))
        if any(isinstance(message, ToolMessage) for message in messages):
            return next(self.answers)
        return AIMessage("", tool_calls=[{"name": "search", "args": {"query": "pier"}, "id": "call-1"}])


def agent(guard: GroundingGuard, script: Script) -> Any:
    return create_agent(ScriptedChatModel(script=script), [search], middleware=[guard.middleware()])


QUESTION = {"messages": [("user", "When was the pier opened?")]}


def invoke(graph: Any) -> list[BaseMessage]:
    return graph.invoke(QUESTION)["messages"]


def ainvoke(graph: Any) -> list[BaseMessage]:
    return asyncio.run(graph.ainvoke(QUESTION))["messages"]


CALLS = [invoke, ainvoke]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("instrumented", [True, False])
def test_the_final_answer_is_checked_against_what_tools_found(call: Callable[..., Any], instrumented: bool) -> None:
    """With and without instrument(). The call of the tool passes unchecked."""
    handle = rageval_hooks.instrument(metrics=[], exporters=[], models="lexical") if instrumented else None
    try:
        assert call(agent(make_guard(on_error="closed"), Script(SUPPORTED)))[-1].content == SUPPORTED
        blocked = call(agent(make_guard(on_error="closed"), Script(UNSUPPORTED)))[-1]
        assert blocked.content == FALLBACK
        assert blocked.response_metadata["rageval_guard"]["verdict"] == "unsupported"
    finally:
        if handle is not None:
            handle.shutdown()


@pytest.mark.parametrize("call", CALLS)
def test_a_blocked_answer_is_written_again_with_the_reason(call: Callable[..., Any], traced: Traced) -> None:
    """The blocked answer and the feedback are in the prompt, and not in the conversation."""
    script = Script(UNSUPPORTED, SUPPORTED)
    messages = call(agent(make_guard(traced, on_fail="regenerate"), script))
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai"]
    assert messages[-1].content == SUPPORTED
    *_, answer, feedback = script.prompts[-1]
    assert answer.content == UNSUPPORTED
    assert "“Penguins eat purple bicycles on Mars.”: no passage has" in feedback.content
    assert [span.attributes["rageval.guard.action"] for span in traced.decisions] == ["regenerated", "passed"]


def test_the_question_is_the_users_last_message(traced: Traced) -> None:
    """Also in a longer conversation, whose earlier search results do not count."""
    messages = [("user", "Who built it?"), ("ai", "The mayor."), *QUESTION["messages"]]
    agent(make_guard(traced), Script(SUPPORTED)).invoke({"messages": messages})
    seen = json.loads(traced.decision.attributes["input.value"])
    assert (seen["question"], [passage["text"] for passage in seen["passages"]]) == (
        "When was the pier opened?",
        [PASSAGE],
    )


def test_a_structured_answer_passes() -> None:
    """The keys of its JSON are no words of a passage."""
    answer = '{"text": "Penguins eat purple bicycles on Mars."}'
    graph = create_agent(
        ScriptedChatModel(script=Script(answer)),
        [search],
        middleware=[make_guard(on_error="closed").middleware()],
        response_format=ProviderStrategy(Opening),
    )
    result = graph.invoke(QUESTION)
    assert result["messages"][-1].content == answer
    assert result["structured_response"] == Opening(text=UNSUPPORTED)


@pytest.mark.parametrize("call", CALLS)
def test_regenerating_is_bounded(call: Callable[..., Any]) -> None:
    """Then the user gets the fallback."""
    script = Script(*[UNSUPPORTED] * 9)
    messages = call(agent(make_guard(on_fail="regenerate", max_regenerations=2), script))
    assert messages[-1].content == FALLBACK
    assert len(script.prompts) == 1 + 3


def test_a_blocked_answer_can_raise() -> None:
    """Out of the agent."""
    with pytest.raises(AnswerBlockedError):
        invoke(agent(make_guard(on_fail="raise"), Script(UNSUPPORTED)))


def test_a_conversation_without_a_question_uses_what_tools_returned() -> None:
    """An agent may be started by another one, with the result of a search."""
    call = AIMessage("", tool_calls=[{"name": "search", "args": {"query": "pier"}, "id": "call-1"}])
    given = {"messages": [call, ToolMessage(PASSAGE, tool_call_id="call-1", name="search")]}
    for answer, shown in ((SUPPORTED, SUPPORTED), (UNSUPPORTED, FALLBACK)):
        graph = agent(make_guard(on_error="closed"), Script(answer))
        assert graph.invoke(given)["messages"][-1].content == shown


def test_tokens_are_not_streamed_before_the_check() -> None:
    """The message is shown as a whole once it is checked."""
    graph = agent(make_guard(), Script(UNSUPPORTED))
    shown = [
        chunk.content
        for chunk, about in graph.stream(QUESTION, stream_mode="messages")
        if about["langgraph_node"] == "model"
    ]
    assert "".join(shown) == FALLBACK


def test_tokens_are_streamed_if_the_answer_is_only_flagged() -> None:
    """There is nothing to hold back."""
    graph = agent(make_guard(on_fail="flag"), Script(SUPPORTED))
    shown = [
        chunk.content
        for chunk, about in graph.stream(QUESTION, stream_mode="messages")
        if about["langgraph_node"] == "model"
    ]
    assert len(shown) > 5
    assert "".join(shown) == SUPPORTED
