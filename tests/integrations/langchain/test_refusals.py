"""A model's refusal is captured: OpenAI's APIs have a field for it, and leave the text of the answer empty."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_openai import ChatOpenAI

from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import join, retriever
from tests.judges.server import JudgeServer, Reply, answer

QUESTION = "How do I break into the harbour office?"
REFUSAL = "I'm sorry, I can't help with that."

RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1_750_000_000,
    "status": "completed",
    "model": "gpt-5-mini",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "refusal", "refusal": REFUSAL}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
"""As the Responses API has it."""

REPLIES = {False: answer(None, refusal=REFUSAL), True: Reply(content=json.dumps(RESPONSE).encode())}


@pytest.fixture(params=REPLIES, ids=["chat completions", "responses"])
def refusing(request: Any) -> Iterator[ChatOpenAI]:
    """A model that refuses, by both of OpenAI's APIs."""
    with JudgeServer() as server:
        server.otherwise(REPLIES[request.param])
        yield ChatOpenAI(
            model="gpt-5-mini", base_url=server.url, api_key="sk-test", use_responses_api=request.param, max_retries=0
        )


def chain(model: ChatOpenAI) -> Runnable[Any, Any]:
    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    return {"context": retriever() | join, "question": RunnablePassthrough()} | prompt | model


def written_in(turn: Turn) -> list[str]:
    return [step.output for step in turn.steps if step.kind == "llm"]


def test_a_chain_that_returns_the_message(refusing: ChatOpenAI, captured: Captured) -> None:
    """The words of the refusal are the answer."""
    chain(refusing).invoke(QUESTION)

    assert captured.turn.response == REFUSAL
    assert written_in(captured.turn) == [REFUSAL]


def test_an_agent(refusing: ChatOpenAI, captured: Captured) -> None:
    create_agent(refusing, []).invoke({"messages": [("user", QUESTION)]})

    assert captured.turn.response == REFUSAL


def test_a_parser_that_drops_the_refusal(refusing: ChatOpenAI, captured: Captured) -> None:
    """The user got an empty answer, and the model's step says why."""
    assert (chain(refusing) | StrOutputParser()).invoke(QUESTION) == ""

    assert captured.turn.response == ""
    assert written_in(captured.turn) == [REFUSAL]


def test_a_refusal_in_the_conversation_so_far(refusing: ChatOpenAI, captured: Captured) -> None:
    """The next prompt has it, as the model was told it."""
    refused = refusing.invoke(QUESTION)
    chain_of_messages = ChatPromptTemplate.from_messages([("user", "Open it."), refused, ("user", "Why?")]) | refusing
    chain_of_messages.invoke({})

    [step] = [step for step in captured.turns[-1].steps if step.kind == "llm"]
    assert [message.content for message in step.messages] == ["Open it.", REFUSAL, "Why?"]
