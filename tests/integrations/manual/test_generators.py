"""``start_turn`` in a generator: the block is open only while the generator's own code runs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

import rageval_hooks
from rageval_hooks.integrations.manual import block
from rageval_hooks.turn import Turn
from tests.integrations.langchain import fakes
from tests.integrations.manual.conftest import Captured

PIECES = ("It leaves ", "at 07:40.")
OTHER = "What does a ticket cost?"


def answer(question: str) -> Iterator[str]:
    """Search, and write the answer piece by piece with a model call before each."""
    with rageval_hooks.start_turn(question) as turn:
        turn.add_passages([f"Passage for {question}"])
        for number, piece in enumerate(PIECES):
            fakes.model(f"call {number} for {question}").invoke(question)
            yield piece
        turn.respond("".join(PIECES))


async def aanswer(question: str) -> AsyncIterator[str]:
    async with rageval_hooks.start_turn(question) as turn:
        turn.add_passages([f"Passage for {question}"])
        for number, piece in enumerate(PIECES):
            # In tasks of their own, while the generator waits.
            await asyncio.gather(fakes.model(f"call {number} for {question}").ainvoke(question))
            yield piece
        turn.respond("".join(PIECES))


def ask_another() -> None:
    fakes.lcel().invoke(OTHER)


def check(turn: Turn, question: str, calls: int = 2) -> None:
    assert (turn.query, [passage.text for passage in turn.passages]) == (question, [f"Passage for {question}"])
    outputs = [step.output for step in turn.steps if step.kind == "llm"]
    assert outputs == [f"call {number} for {question}" for number in range(calls)]


def turns_by_query(captured: Captured) -> dict[str, Turn]:
    turns = captured.turns
    found = {turn.query: turn for turn in turns}
    assert len(found) == len(turns)
    return found


def test_two_answers_that_are_read_side_by_side(captured: Captured) -> None:
    for _ in zip(answer("A?"), answer("B?"), strict=True):
        pass

    turns = turns_by_query(captured)
    assert set(turns) == {"A?", "B?"}
    for question, turn in turns.items():
        check(turn, question)
        assert turn.response == "It leaves at 07:40."


def test_two_async_answers_that_are_read_side_by_side(captured: Captured) -> None:
    async def main() -> None:
        first, second = aanswer("A?"), aanswer("B?")
        for _ in PIECES:
            await anext(first)
            await anext(second)
        for stream in (first, second):
            async for _ in stream:
                pass

    asyncio.run(main())

    turns = turns_by_query(captured)
    assert set(turns) == {"A?", "B?"}
    for question, turn in turns.items():
        check(turn, question)


def test_what_the_reader_does_between_two_pieces(captured: Captured) -> None:
    """Another question, and tasks and blocks of the reader's own."""
    stream = answer("A?")
    next(stream)
    ask_another()
    with rageval_hooks.start_turn("Reader?") as turn:
        turn.respond("Yes.")
    list(stream)

    turns = turns_by_query(captured)
    assert set(turns) == {"A?", OTHER, "Reader?"}
    check(turns["A?"], "A?")
    assert turns["Reader?"].passages == ()


def test_what_the_reader_of_an_async_answer_does_between_two_pieces(captured: Captured) -> None:
    async def main() -> None:
        stream = aanswer("A?")
        await anext(stream)
        await asyncio.gather(fakes.lcel().ainvoke(OTHER), asyncio.to_thread(fakes.lcel().invoke, "In a thread?"))
        async for _ in stream:
            pass

    asyncio.run(main())

    turns = turns_by_query(captured)
    assert set(turns) == {"A?", OTHER, "In a thread?"}
    check(turns["A?"], "A?")


def test_a_stream_that_is_left_open(captured: Captured) -> None:
    """Further questions in the same thread are turns of their own. Afterwards nothing is left."""
    stream: Any = answer("A?")
    next(stream)
    for _ in range(3):
        ask_another()
    stream.close()

    turns = captured.turns
    assert [turn.query for turn in turns] == ["A?", OTHER, OTHER, OTHER]
    assert turns[0].status == "cancelled"
    check(turns[0], "A?", calls=1)
    assert not block._in_generators


def test_a_stream_that_is_dropped(captured: Captured) -> None:
    stream = answer("A?")
    next(stream)
    del stream
    ask_another()

    assert set(turns_by_query(captured)) == {"A?", OTHER}
    assert not block._in_generators


def test_a_generator_that_is_read_on_several_threads(captured: Captured) -> None:
    """In a context of its own each time, as a web server does."""
    stream = answer("A?")
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        for pool in (first, second, first):
            pool.submit(contextvars.copy_context().run, next, stream, None).result()

    check(captured.turn, "A?")


@pytest.mark.parametrize("stream", [answer, aanswer], ids=["sync", "async"])
def test_a_streaming_response(captured: Captured, stream: Callable[[str], Any]) -> None:
    """FastAPI reads a synchronous generator on a pool of threads."""
    app = FastAPI()

    @app.get("/")
    async def ask(question: str) -> StreamingResponse:
        return StreamingResponse(stream(question))

    with TestClient(app) as client:
        for question in ("A?", "B?"):
            assert client.get("/", params={"question": question}).text == "It leaves at 07:40."

    turns = turns_by_query(captured)
    assert set(turns) == {"A?", "B?"}
    for question, turn in turns.items():
        check(turn, question)


@contextlib.contextmanager
def in_a_turn(question: str) -> Iterator[Any]:
    with rageval_hooks.start_turn(question) as turn:
        yield turn


@contextlib.asynccontextmanager
async def in_an_async_turn(question: str) -> AsyncIterator[Any]:
    async with rageval_hooks.start_turn(question) as turn:
        yield turn


def test_a_generator_that_is_a_context_manager(captured: Captured) -> None:
    """Its block is around what it manages."""
    with in_a_turn("A?") as turn:
        ask_another()
        turn.respond("Yes.")

    assert (captured.turn.query, captured.turn.response) == ("A?", "Yes.")
    assert [step.kind for step in captured.turn.steps] == ["retriever", "llm"]


def test_an_async_generator_that_is_a_context_manager(captured: Captured) -> None:
    async def main() -> None:
        async with in_an_async_turn("A?") as turn:
            await fakes.lcel().ainvoke(OTHER)
            turn.respond("Yes.")

    asyncio.run(main())

    assert (captured.turn.query, captured.turn.response) == ("A?", "Yes.")


def test_a_context_manager_in_a_generator(captured: Captured) -> None:
    def stream() -> Iterator[str]:
        with contextlib.ExitStack() as stack:
            turn = stack.enter_context(in_a_turn("A?"))
            fakes.lcel().invoke("Inside?")
            yield "Yes."
            turn.respond("Yes.")

    reading = stream()
    next(reading)
    ask_another()
    list(reading)

    turns = turns_by_query(captured)
    assert set(turns) == {"A?", OTHER}
    assert [step.kind for step in turns["A?"].steps] == ["retriever", "llm"]
