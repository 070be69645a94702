"""``rag_turn``: each call of a function is a turn, and the function does what it did without it."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

import rageval_hooks
from rageval_hooks import ConfigurationError, rag_turn
from rageval_hooks.turn import Turn
from tests.integrations.langchain import fakes
from tests.integrations.manual.conftest import Captured

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."
PIER = "The new pier was opened in September 2019."


@rag_turn
def plain(question: str) -> str:
    return ANSWER


@rag_turn
async def coroutine(question: str) -> str:
    return ANSWER


@rag_turn
def stream(question: str) -> Iterator[str]:
    yield "It was opened "
    yield "in 2019."


@rag_turn
async def astream(question: str) -> AsyncIterator[Any]:
    yield AIMessageChunk("It was opened ")
    yield AIMessageChunk("in 2019.")


async def collect(pieces: AsyncIterator[Any]) -> list[Any]:
    return [piece async for piece in pieces]


KINDS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], Callable[..., Any]]] = {
    "function": (plain, lambda result: result, inspect.isfunction),
    "coroutine": (coroutine, asyncio.run, inspect.iscoroutinefunction),
    "generator": (stream, lambda result: "".join(result), inspect.isgeneratorfunction),
    "async generator": (
        astream,
        lambda result: "".join(piece.text for piece in asyncio.run(collect(result))),
        inspect.isasyncgenfunction,
    ),
}


@pytest.mark.parametrize(("function", "read", "is_kind"), KINDS.values(), ids=KINDS)
def test_question_and_answer(captured: Captured, function: Any, read: Any, is_kind: Any) -> None:
    """From the argument and the result. The function stays of its kind."""
    assert read(function(QUESTION)) == ANSWER
    assert read(function(question=QUESTION)) == ANSWER

    assert [(turn.query, turn.response, turn.complete) for turn in captured.turns] == [(QUESTION, ANSWER, True)] * 2
    assert is_kind(function)
    assert list(inspect.signature(function).parameters) == ["question"]


@pytest.mark.parametrize(("function", "read", "is_kind"), KINDS.values(), ids=KINDS)
def test_without_instrument(function: Any, read: Any, is_kind: Any) -> None:
    assert read(function(QUESTION)) == ANSWER


@dataclasses.dataclass
class Reply:
    answer: str
    documents: list[str]


@pytest.mark.parametrize(
    ("result", "passages"),
    [
        (AIMessage(ANSWER), []),
        ({"answer": ANSWER, "language": "en"}, []),
        ({"answer": ANSWER, "documents": [{"text": PIER}]}, [PIER]),
        ({"response": ANSWER, "retrieved_chunks": [PIER]}, [PIER]),
        ((ANSWER, [fakes.FACTS[0]]), [fakes.FACTS[0].page_content]),
        (Reply(ANSWER, [PIER]), [PIER]),
    ],
    ids=["message", "mapping", "with documents", "with chunks", "tuple", "object"],
)
def test_forms_of_results(captured: Captured, result: Any, passages: list[str]) -> None:
    assert rag_turn(lambda question: result)(QUESTION) is result

    assert (captured.turn.query, captured.turn.response) == (QUESTION, ANSWER)
    assert [passage.text for passage in captured.turn.passages] == passages


class Application:
    @rag_turn
    def ask(self, request_id: str, query: str = QUESTION) -> str:
        return ANSWER


@rag_turn(question="wish")
def of_another_name(question: str, wish: str) -> str:
    return ANSWER


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Application().ask("r-1"),
        lambda: Application().ask("r-1", query=QUESTION),
        lambda: of_another_name("no", QUESTION),
        lambda: rag_turn(lambda number, words: ANSWER)(3, QUESTION),
        lambda: rag_turn(lambda message: ANSWER)(HumanMessage(QUESTION)),
    ],
    ids=["a default", "by name", "named in the decorator", "the first text", "a message"],
)
def test_which_argument_is_the_question(captured: Captured, ask: Callable[[], Any]) -> None:
    assert ask() == ANSWER

    assert captured.turn.query == QUESTION


def test_a_parameter_that_does_not_exist() -> None:
    with pytest.raises(ConfigurationError, match="ask\\(\\) has no such parameter"):

        @rag_turn(question="wish")
        def ask(question: str) -> str:
            return ANSWER


def test_a_wrong_call_raises_as_without_it(captured: Captured) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        plain()


def test_what_is_called_inside_belongs_to_the_turn(captured: Captured) -> None:
    """A search in plain Python, then a model."""

    @rag_turn
    def ask(question: str) -> Any:
        documents = fakes.retriever().invoke(question)
        return fakes.model(ANSWER).invoke(f"{fakes.join(documents)}\n{question}")

    ask(QUESTION)

    turn = captured.turn
    assert (turn.query, turn.response, turn.is_rag) == (QUESTION, ANSWER, True)
    assert {passage.id for passage in turn.prompt_passages} == {"d1", "d2"}


def test_a_stream_that_its_reader_leaves(captured: Captured) -> None:
    """The answer is what was read, and not whole."""
    pieces = stream(QUESTION)
    next(pieces)
    pieces.close()

    turn = captured.turn
    assert (turn.status, turn.response, turn.complete) == ("cancelled", "It was opened ", False)


def test_an_exception_of_the_function(captured: Captured) -> None:
    class OutOfOrderError(Exception):
        pass

    @rag_turn
    def ask(question: str) -> Iterator[str]:
        yield "It was "
        raise OutOfOrderError

    with pytest.raises(OutOfOrderError):
        list(ask(QUESTION))

    turn = captured.turn
    assert (turn.status, turn.response, turn.complete) == ("error", "It was ", False)


def test_a_generator_that_is_talked_to() -> None:
    """Values and exceptions reach it, and so does its own end."""

    @rag_turn
    def talk(question: str) -> Generator[str, str, str]:
        said = yield "first"
        try:
            yield said
        except KeyError:
            yield "caught"
        return "the end"

    talking = talk(QUESTION)
    assert [next(talking), talking.send("second"), talking.throw(KeyError())] == ["first", "second", "caught"]
    with pytest.raises(StopIteration) as stop:
        next(talking)
    assert stop.value.value == "the end"


async def _talk() -> list[Any]:
    @rag_turn
    async def talk(question: str) -> Any:
        said = yield "first"
        try:
            yield said
        except KeyError:
            yield "caught"

    talking: Any = talk(QUESTION)
    said = [await talking.asend(None), await talking.asend("second"), await talking.athrow(KeyError())]
    return [*said, *await collect(talking)]


def test_an_async_generator_that_is_talked_to() -> None:
    assert asyncio.run(_talk()) == ["first", "second", "caught"]


def test_an_async_stream_that_its_reader_leaves(captured: Captured) -> None:
    """The generator is closed with it, and may end quietly: the answer is not whole all the same."""
    closed: list[str] = []

    @rag_turn
    async def talk(question: str) -> Any:
        try:
            yield "It was "
            yield "in 2019."
        except GeneratorExit:
            closed.append(question)

    async def leave() -> None:
        talking: Any = talk(QUESTION)
        await anext(talking)
        await talking.aclose()

    asyncio.run(leave())

    turn = captured.turn
    assert closed == [QUESTION]
    assert (turn.status, turn.response, turn.complete) == ("cancelled", "It was ", False)


def test_two_streams_that_are_read_side_by_side(captured: Captured) -> None:
    for _ in zip(stream("A?"), stream("B?"), strict=True):
        pass

    turns: list[Turn] = captured.turns
    assert sorted((turn.query, turn.response) for turn in turns) == [("A?", ANSWER), ("B?", ANSWER)]


def test_inside_another_turn(captured: Captured) -> None:
    """The outer block is the turn."""
    with rageval_hooks.start_turn("Outer?"):
        "".join(stream(QUESTION))

    assert (captured.turn.query, captured.turn.response) == ("Outer?", ANSWER)
