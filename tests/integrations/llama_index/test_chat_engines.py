"""Chat engines: the message is the query, a condensed question a retrieval query; streams end their turn."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer

from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import OutOfOrderError, index, llm

QUESTION = "When was it opened?"
CONDENSED = "When was the pier opened?"
ANSWER = "It was opened in 2019."
HISTORY = [
    ChatMessage(role=MessageRole.USER, content="Tell me about the pier."),
    ChatMessage(role=MessageRole.ASSISTANT, content="What do you want to know?"),
]


def script(messages: Any) -> str:
    return CONDENSED if "standalone question" in messages[-1].content.lower() else ANSWER


def chat_engine(mode: str, model: Any) -> Any:
    memory = ChatMemoryBuffer.from_defaults(llm=model)
    if mode == "simple":
        return SimpleChatEngine.from_defaults(llm=model, memory=memory)
    return index().as_chat_engine(chat_mode=mode, llm=model, memory=memory, similarity_top_k=2)


def chat(engine: Any, method: str) -> str:
    if not method.startswith("a"):
        response = getattr(engine, method)(QUESTION, chat_history=HISTORY)
        return "".join(response.response_gen) if method == "stream_chat" else str(response)

    async def main() -> str:
        response = await getattr(engine, method)(QUESTION, chat_history=HISTORY)
        if method == "achat":
            return str(response)
        return "".join([text async for text in response.async_response_gen()])

    return asyncio.run(main())


@pytest.mark.parametrize("method", ["chat", "achat", "stream_chat", "astream_chat"])
@pytest.mark.parametrize("mode", ["context", "condense_plus_context", "condense_question"])
def test_a_message_is_a_turn(captured: Captured, mode: str, method: str) -> None:
    """The query is the user's message, in every mode and for every way of calling."""
    assert chat(chat_engine(mode, llm(script)), method) == ANSWER

    turn = captured.turn
    assert turn.status == "ok"
    assert turn.query == QUESTION
    assert turn.response == ANSWER
    assert turn.retrieval_queries == (() if mode == "context" else (CONDENSED,))
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]
    assert all(passage.in_prompt for passage in turn.passages)
    kinds = [step.kind for step in turn.steps]
    assert kinds == (["retriever", "llm"] if mode == "context" else ["llm", "retriever", "llm"])
    assert "2019" in "".join(message.content for message in turn.prompt)
    assert turn.usage is not None
    assert turn.usage.input_tokens == 40 * kinds.count("llm")
    assert turn.timing is not None
    assert (turn.timing.time_to_first_token is not None) == ("stream" in method)


@pytest.mark.parametrize("method", ["chat", "achat", "stream_chat", "astream_chat"])
def test_a_chat_without_retrieval(captured: Captured, method: str) -> None:
    """The turn is traced, and not evaluated."""
    chat(chat_engine("simple", llm()), method)

    turn = captured.turn
    assert not turn.is_rag
    assert (turn.query, turn.response, turn.status) == (QUESTION, ANSWER, "ok")


@pytest.mark.parametrize("method", ["stream_chat", "astream_chat"])
@pytest.mark.parametrize("mode", ["context", "condense_question", "simple"])
def test_a_reader_that_stops_early(captured: Captured, mode: str, method: str) -> None:
    """The engine writes the whole answer into its history anyway, so the turn is complete."""
    engine = chat_engine(mode, llm(script))

    async def main() -> None:
        response = await engine.astream_chat(QUESTION)
        words = response.async_response_gen()
        await anext(words)
        await words.aclose()

    if method == "astream_chat":
        asyncio.run(main())
    else:
        words = engine.stream_chat(QUESTION).response_gen
        next(words)
        words.close()

    assert engine.chat_history[-1].content == ANSWER
    turn = captured.turn
    assert (turn.status, turn.response) == ("ok", ANSWER)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the engine's own thread
@pytest.mark.parametrize("method", ["stream_chat", "astream_chat"])
@pytest.mark.parametrize("mode", ["context", "condense_question", "simple"])
def test_a_model_that_breaks_off(captured: Captured, mode: str, method: str) -> None:
    """The turn has the error, and the text until then as its answer."""
    with pytest.raises(OutOfOrderError):
        chat(chat_engine(mode, llm(script, fails_after=2)), method)

    turn = captured.turn
    assert turn.status == "error"
    assert turn.error is not None
    assert turn.error.type == "OutOfOrderError"
    assert turn.response == "It was "


def test_the_turn_is_not_over_before_the_answer_is_complete(captured: Captured) -> None:
    """``stream_chat`` returns at once, while the model is still writing."""
    go_on = threading.Event()

    def slowly(messages: Any) -> str:
        assert go_on.wait(10)
        return ANSWER

    response = chat_engine("context", llm(slowly)).stream_chat(QUESTION)
    assert captured.turns == []
    go_on.set()
    assert "".join(response.response_gen) == ANSWER

    assert captured.turn.response == ANSWER


def test_a_conversation(captured: Captured) -> None:
    """Every message is a separate turn."""
    engine = chat_engine("condense_plus_context", llm(script))
    for question in ("first", "second"):
        engine.chat(question)

    assert [turn.query for turn in captured.turns] == ["first", "second"]
