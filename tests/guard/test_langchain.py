"""A guard behind a chain, around a chain, and in its streams."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessageChunk, ChatMessageChunk
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda, RunnablePassthrough

import rageval_hooks
from rageval_hooks import AnswerBlockedError, ConfigurationError
from tests.guard.conftest import FALLBACK, PASSAGE, SUPPORTED, UNSUPPORTED, Traced, make_guard
from tests.integrations.langchain.fakes import lcel

SECOND = "It is 200 metres long."
DOCUMENTS = [Document(PASSAGE)]


def answering(*answers: str) -> Runnable[Any, Any]:
    """A RAG chain that gives one answer after the other."""
    left = iter(answers)
    return lcel(lambda _: next(left), DOCUMENTS)


def streaming(*pieces: Any) -> Runnable[Any, Any]:
    """A chain that streams some pieces, whatever it is asked."""

    def stream(_: Iterator[Any]) -> Iterator[Any]:
        yield from pieces

    async def astream(_: AsyncIterator[Any]) -> AsyncIterator[Any]:
        for piece in pieces:
            yield piece

    return RunnableGenerator(stream, astream)


def invoke(chain: Runnable[Any, Any], value: Any) -> Any:
    return chain.invoke(value)


def ainvoke(chain: Runnable[Any, Any], value: Any) -> Any:
    return asyncio.run(chain.ainvoke(value))


def stream(chain: Runnable[Any, Any], value: Any) -> list[Any]:
    return list(chain.stream(value))


def astream(chain: Runnable[Any, Any], value: Any) -> list[Any]:
    async def read() -> list[Any]:
        return [chunk async for chunk in chain.astream(value)]

    return asyncio.run(read())


CALLS = [invoke, ainvoke]
STREAMS = [stream, astream]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("rate", [1.0, 0.0])
def test_behind_a_chain_the_passages_are_those_of_the_captured_turn(
    call: Callable[..., Any], rate: float, traced: Traced
) -> None:
    """Also if the turn is sampled out. The turn's response is what the user got."""
    with rageval_hooks.instrument(
        metrics=[], models="lexical", sample_rate=rate, tracer_provider=traced.provider
    ) as handle:
        chain = answering(SUPPORTED, UNSUPPORTED) | make_guard()
        assert call(chain, "When was the pier opened?") == SUPPORTED
        assert call(chain, "When was the pier opened?") == FALLBACK
        assert handle.flush(10)
        assert handle.stats()["open_runs"] == 0
        assert handle.stats()["sampled_out"] == 2 * (1 - rate)
    assert [span.attributes["rageval.guard.verdict"] for span in traced.decisions] == ["supported", "unsupported"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("key", ["context", "source_documents"])
def test_without_a_captured_turn_the_passages_are_under_a_key(call: Callable[..., Any], key: str) -> None:
    """The mapping keeps its other keys, and has the decision."""
    chain = RunnableLambda(lambda answer: {key: DOCUMENTS, "answer": answer, "extra": 1}) | make_guard()
    assert call(chain, SUPPORTED)["answer"] == SUPPORTED
    blocked = call(chain, UNSUPPORTED)
    assert blocked["answer"] == FALLBACK
    assert (blocked[key], blocked["extra"]) == (DOCUMENTS, 1)
    assert blocked["rageval_guard"]["verdict"] == "unsupported"


def test_a_message_keeps_its_id_and_has_the_decision() -> None:
    """Nothing is sent to a provider in the next call: the decision is in the response's metadata."""
    message = AIMessage(UNSUPPORTED, id="m1", response_metadata={"model_name": "m"})
    checked = make_guard().invoke({"context": PASSAGE, "answer": message})["answer"]
    assert (checked.content, checked.id, checked.response_metadata["model_name"]) == (FALLBACK, "m1", "m")
    alone = make_guard(on_error="closed").invoke(message)
    assert alone.response_metadata["rageval_guard"]["action"] == "replaced"
    assert message.content == UNSUPPORTED


def test_an_answer_that_passes_keeps_its_blocks() -> None:
    """Only a blocked answer gets another text."""
    blocks = [{"type": "reasoning", "reasoning": "…"}, {"type": "text", "text": SUPPORTED}]
    for value in (
        {"context": PASSAGE, "answer": AIMessage(blocks)},
        {"context": PASSAGE, "messages": [AIMessage(blocks)]},
    ):
        passed = make_guard().invoke(value)
        message = passed.get("answer") or passed["messages"][-1]
        assert message.content == blocks
        blocked = make_guard().invoke(
            {"context": PASSAGE, "answer": AIMessage([{"type": "text", "text": UNSUPPORTED}])}
        )
        assert blocked["answer"].content == FALLBACK


def test_a_refusal_in_a_block_is_a_refusal() -> None:
    """OpenAI's Responses API has a block for the words in which a model refuses."""
    message = AIMessage([{"type": "refusal", "refusal": "I cannot help with that."}])
    found = make_guard().wrap(RunnableLambda(lambda _: {"context": PASSAGE, "answer": message})).invoke("Who?")
    assert found["rageval_guard"]["verdict"] == "refusal"


def test_an_output_without_an_answer_passes() -> None:
    """A guard never breaks a chain."""
    for value in (7, {"documents": [PASSAGE]}, AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "1"}])):
        assert make_guard(on_error="closed").invoke(value) == value
        assert make_guard(on_error="closed").wrap(RunnableLambda(lambda _, value=value: value)).invoke("?") == value


@pytest.mark.parametrize("call", [*CALLS, *STREAMS])
def test_regenerate_behind_a_chain_is_an_error(call: Callable[..., Any]) -> None:
    """A guard there cannot run the chain again."""
    with pytest.raises(ConfigurationError, match=r"guard\.wrap"):
        call(RunnablePassthrough() | make_guard(on_fail="regenerate"), "answer")


@pytest.mark.parametrize("call", CALLS)
def test_around_a_chain_a_blocked_answer_is_written_again(call: Callable[..., Any], traced: Traced) -> None:
    """Without instrument(): the passages are what retrievers returned."""
    guard = make_guard(traced, on_fail="regenerate")
    assert call(guard.wrap(answering(UNSUPPORTED, SUPPORTED)), "When?") == SUPPORTED
    assert [span.attributes["rageval.guard.action"] for span in traced.decisions] == ["regenerated", "passed"]
    assert [span.attributes["rageval.guard.attempt"] for span in traced.decisions] == [1, 2]


@pytest.mark.parametrize("call", [*CALLS, *STREAMS])
def test_regenerating_ends_with_the_fallback(call: Callable[..., Any]) -> None:
    """The chain runs once more than max_regenerations, and not again."""
    asked: list[str] = []

    def script(messages: Any) -> str:
        asked.append("")
        return UNSUPPORTED

    guard = make_guard(on_fail="regenerate", max_regenerations=2)
    answer = call(guard.wrap(lcel(script, DOCUMENTS)), "When?")
    assert "".join(answer) == FALLBACK
    assert len(asked) == 3


def test_the_chain_gets_the_reason_under_the_feedback_key() -> None:
    """Empty in the first run."""
    seen: list[str] = []

    def run(value: dict[str, Any]) -> dict[str, Any]:
        seen.append(value["feedback"])
        return {"context": PASSAGE, "answer": SUPPORTED if value["feedback"] else UNSUPPORTED}

    guard = make_guard(on_fail="regenerate")
    result = guard.wrap(RunnableLambda(run), feedback_key="feedback").invoke({"question": "When?"})
    assert result["answer"] == SUPPORTED
    assert seen[0] == ""
    assert seen[1].startswith("“Penguins eat purple bicycles on Mars.”: no passage has ")


def question_seen(traced: Traced) -> str:
    return json.loads(traced.decision.attributes["input.value"])["question"]


@pytest.mark.parametrize("key", ["question", "input"])
def test_the_question_is_under_a_key_of_the_input(key: str, traced: Traced) -> None:
    """Metrics that ask a judge need it, and the span has it."""
    chain = RunnableLambda(lambda _: {"context": PASSAGE, "answer": SUPPORTED})
    make_guard(traced).wrap(chain).invoke({key: "When?"})
    assert question_seen(traced) == "When?"


def test_behind_a_chain_the_question_is_under_a_key_of_the_output(traced: Traced) -> None:
    make_guard(traced).invoke({"query": "When?", "context": PASSAGE, "answer": SUPPORTED})
    assert question_seen(traced) == "When?"


def test_passages_may_be_in_the_input_of_a_wrapped_chain() -> None:
    """A chain may hand the answer on alone."""
    chain = RunnableLambda(lambda value: value["said"])
    guarded = make_guard(on_error="closed").wrap(chain)
    assert guarded.invoke({"context": [PASSAGE], "said": SUPPORTED}) == SUPPORTED
    assert guarded.invoke({"context": [PASSAGE], "said": UNSUPPORTED}) == FALLBACK


def test_something_else_than_a_runnable_cannot_be_wrapped() -> None:
    """The message says what to use for a query engine."""
    with pytest.raises(ConfigurationError, match=r"not a Engine. For a query engine of LlamaIndex, use wrap_query"):
        make_guard().wrap(type("Engine", (), {"query": None})())


# --------------------------------------------------------------------------- streams


@pytest.mark.parametrize("pieces", [r"\S+ ", r"."], ids=["words", "characters"])
@pytest.mark.parametrize("read", STREAMS)
def test_an_unsupported_sentence_of_a_stream_is_not_shown(read: Callable[..., Any], pieces: str) -> None:
    """What was shown before stays, and the fallback follows."""
    answers = [{"answer": piece} for piece in re.findall(pieces, f"{SUPPORTED} {UNSUPPORTED} ")]
    chain = streaming({"context": [PASSAGE]}, *answers)
    chunks = read(chain | make_guard(), "?")
    assert chunks[0] == {"context": [PASSAGE]}
    assert "".join(chunk.get("answer", "") for chunk in chunks) == f"{SUPPORTED} \n\n{FALLBACK}"


@pytest.mark.parametrize("read", STREAMS)
def test_a_captured_stream_is_checked_and_the_turn_is_what_the_user_got(read: Callable[..., Any]) -> None:
    """The passages are those of the turn whose stream is being read."""
    answer = f"{SUPPORTED} {SECOND}"
    with rageval_hooks.instrument(metrics=[], exporters=[], models="lexical"):
        assert "".join(read(answering(answer) | make_guard(), "When?")) == answer
        assert "".join(read(answering(UNSUPPORTED) | make_guard(), "When?")) == FALLBACK


def test_the_first_sentence_is_shown_when_the_second_one_begins() -> None:
    """Held back is one sentence at most."""
    taken: list[str] = []

    def write(_: Iterator[Any]) -> Iterator[str]:
        for word in f"{SUPPORTED} {SECOND} {SECOND}".split():
            taken.append(word)
            yield word + " "

    guarded = (RunnableGenerator(write) | make_guard(on_error="open")).stream("?")
    next(guarded)
    assert len(taken) <= len(SUPPORTED.split()) + 1


def test_documents_are_shown_before_the_answer_is_written() -> None:
    """A user interface may show the sources while the model writes."""
    taken: list[str] = []

    def write(_: Iterator[Any]) -> Iterator[dict[str, Any]]:
        yield {"context": DOCUMENTS}
        for word in SUPPORTED.split():
            taken.append(word)
            yield {"answer": word + " "}

    guarded = (RunnableGenerator(write) | make_guard()).stream("?")
    assert next(guarded) == {"context": DOCUMENTS}
    assert len(taken) <= 1


def test_a_line_that_leads_to_a_sentence_is_checked_with_it() -> None:
    """No passage supports "Here is what I found:" by itself."""
    chain = streaming({"context": [PASSAGE]}, {"answer": "Here is what I found:\n"}, {"answer": SUPPORTED + " "})
    chunks = list((chain | make_guard(on_error="closed", threshold=0.9)).stream("?"))
    assert "".join(chunk.get("answer", "") for chunk in chunks) == f"Here is what I found:\n{SUPPORTED} "


def test_a_chunk_of_a_message_waits_until_all_of_its_text_is_checked() -> None:
    """Added up, the chunks are the whole message, with its usage once."""
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    pieces = [
        AIMessageChunk("The new pier was opened in September", id="m"),
        AIMessageChunk(" 2019. It is 200 metres", id="m", usage_metadata=usage),
        AIMessageChunk(" long.", id="m"),
    ]
    chunks = list((streaming(*pieces) | make_guard()).stream("?"))
    assert [chunk.content for chunk in chunks] == [piece.content for piece in pieces]
    whole = sum(chunks[1:], start=chunks[0])
    assert (whole.content, whole.usage_metadata, whole.id) == (f"{SUPPORTED} {SECOND}", usage, "m")


@pytest.mark.parametrize("made", [AIMessageChunk, partial(ChatMessageChunk, role="assistant")])
def test_a_blocked_stream_of_messages_ends_with_a_chunk_of_the_same_message(made: Callable[..., Any]) -> None:
    """Added up, the chunks are one message."""
    pieces = [made(content=f"{SUPPORTED} ", id="m"), made(content=UNSUPPORTED, id="m")]
    chunks: list[BaseMessageChunk] = list(make_guard().wrap(streaming(*pieces)).stream({"context": [PASSAGE]}))
    whole = sum(chunks[1:], start=chunks[0])
    assert (type(whole), whole.content) == (type(pieces[0]), f"{SUPPORTED} \n\n{FALLBACK}")
    assert {chunk.id for chunk in chunks} == {"m"}


def test_a_streamed_refusal_passes_sentence_by_sentence() -> None:
    """Courtesies claim nothing either."""
    answer = "I'm sorry. The passages do not mention hotels. Please contact the office."
    chain = streaming({"context": [PASSAGE]}, *({"answer": word + " "} for word in answer.split()))
    chunks = list((chain | make_guard(on_error="closed", threshold=1.0)).stream("?"))
    assert "".join(chunk.get("answer", "") for chunk in chunks).strip() == answer


@pytest.mark.parametrize(
    ("answer", "passage"),
    [
        ("I don't know. the price is 500 EUR.", PASSAGE),
        ("No lo sé… el precio es de 500 euros.", "El nuevo muelle se abrió en septiembre de 2019. Mide 200 metros."),
    ],
)
def test_a_claim_after_a_streamed_refusal_is_not_shown(answer: str, passage: str) -> None:
    """Also in lower case, after an ellipsis and in Spanish."""
    chain = streaming({"context": [passage]}, *({"answer": word + " "} for word in answer.split()))
    shown = "".join(chunk.get("answer", "") for chunk in (chain | make_guard()).stream("?"))
    assert "500" not in shown
    assert FALLBACK in shown


def test_a_line_that_leads_to_the_next_is_shown_with_it() -> None:
    """The passages do not support it by itself."""
    answer = f"Here is what I found:\n{SUPPORTED}"
    chunks = list((streaming({"context": [PASSAGE]}, {"answer": answer}) | make_guard()).stream("?"))
    assert chunks[1:] == [{"answer": answer}]


@pytest.mark.parametrize("read", STREAMS)
def test_a_stream_without_words_passes(read: Callable[..., Any]) -> None:
    """There is nothing to check in it."""
    pieces = [{"context": [PASSAGE]}, {"answer": " "}, {"answer": "\n"}]
    assert read(streaming(*pieces) | make_guard(on_error="closed"), "?") == pieces


def test_a_flagged_stream_is_not_held_back(traced: Traced) -> None:
    """The whole answer is checked at its end."""
    pieces = [{"context": [PASSAGE]}, {"answer": f"{SUPPORTED} "}, {"answer": UNSUPPORTED}]
    assert list((streaming(*pieces) | make_guard(traced, on_fail="flag")).stream("?")) == pieces
    assert traced.decision.attributes["rageval.guard.action"] == "flagged"


@pytest.mark.parametrize("read", STREAMS)
def test_a_stream_raises_at_the_first_unsupported_sentence(read: Callable[..., Any]) -> None:
    """The application sees the exception where it reads the stream."""
    with pytest.raises(AnswerBlockedError):
        read(streaming({"context": [PASSAGE]}, {"answer": UNSUPPORTED}) | make_guard(on_fail="raise"), "?")


@pytest.mark.parametrize("read", STREAMS)
def test_a_blocked_stream_begins_again_while_nothing_was_shown(read: Callable[..., Any]) -> None:
    """After that, the fallback follows."""
    guard = make_guard(on_fail="regenerate")
    assert "".join(read(guard.wrap(answering(UNSUPPORTED, SUPPORTED)), "When?")) == SUPPORTED
    late = read(guard.wrap(answering(f"{SUPPORTED} {UNSUPPORTED}", SUPPORTED)), "When?")
    assert "".join(late) == f"{SUPPORTED} \n\n{FALLBACK}"
