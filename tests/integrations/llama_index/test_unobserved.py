"""Turns that are not looked at: whatever is done for them, and wherever their answers are read, is no turn of its own.

With a rate of 0 each turn counts once as ``sampled_out``, so the count tells how many turns were seen.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from llama_index.core.base.response.schema import Response, StreamingResponse
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine

import rageval_hooks
from rageval_hooks.integrations.llama_index import unsampled as unobserved
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain import fakes as langchain
from tests.integrations.llama_index.fakes import ScriptedRetriever, index, llm

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


@pytest.fixture
def unobserved_process() -> Iterator[rageval_hooks.Instrumentation]:
    """An instrumented process whose turns are all left out."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], sample_rate=0.0) as handle:
        yield handle
        assert handle.flush(10)
        assert handle.stats()["internal_errors"] == 0
    assert exporter.evaluations == []


def ask_llama_index(messages: Sequence[Any]) -> str:
    index().as_query_engine(llm=llm(), similarity_top_k=1).query("Which year?")
    return ANSWER


def ask_langchain(messages: Sequence[Any]) -> str:
    langchain.lcel().invoke("Which year?")
    return ANSWER


def engine(script: Any) -> Any:
    nodes = index().as_retriever(similarity_top_k=2).retrieve(QUESTION)
    return RetrieverQueryEngine.from_args(ScriptedRetriever(lambda query: nodes), llm=llm(script), streaming=True)


async def read(response: Any) -> str:
    return "".join([piece async for piece in response.async_response_gen()])


def turns(handle: rageval_hooks.Instrumentation) -> int:
    return int(handle.stats()["sampled_out"])


@pytest.mark.parametrize("inner", [ask_llama_index, ask_langchain])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_what_is_called_while_the_answer_is_read_in_another_context(
    unobserved_process: rageval_hooks.Instrumentation, inner: Any, asynchronous: bool
) -> None:
    """The model asks another engine, or a chain, when its words are drawn: part of the turn that was left out."""
    answering = engine(inner)
    before = turns(unobserved_process)
    if asynchronous:

        async def ask_and_read() -> str:
            response = await asyncio.create_task(answering.aquery(QUESTION))
            return await contextvars.Context().run(asyncio.ensure_future, read(response))

        text = asyncio.run(ask_and_read())
    else:
        response = contextvars.copy_context().run(answering.query, QUESTION)
        text = contextvars.Context().run("".join, response.response_gen)

    assert text == ANSWER
    assert turns(unobserved_process) == before + 1


def test_what_the_reader_does_between_two_words_is_his_own(unobserved_process: rageval_hooks.Instrumentation) -> None:
    """Only what the generator calls is part of the turn, not what its reader asks meanwhile."""
    answering = engine(lambda messages: ANSWER)
    before = turns(unobserved_process)
    for number, _ in enumerate(answering.query(QUESTION).response_gen):
        if number < 2:
            ask_llama_index([])
            ask_langchain([])

    assert turns(unobserved_process) == before + 5


def test_a_streamed_answer_that_is_returned_inside_of_something_else(
    unobserved_process: rageval_hooks.Instrumentation,
) -> None:
    """A function of the application's own that returns the response in a dictionary."""
    answering = engine(ask_llama_index)
    before = turns(unobserved_process)

    @get_dispatcher().span
    def answered(question: str) -> dict[str, Any]:
        return {"answer": answering.query(question), "for": question}

    assert "".join(answered(QUESTION)["answer"].response_gen) == ANSWER
    assert turns(unobserved_process) == before + 1


class Pieces:
    """An answer in pieces that is no generator."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = iter(pieces)

    def __iter__(self) -> Pieces:
        return self

    def __next__(self) -> str:
        piece = next(self._pieces)
        ask_llama_index([])
        return piece


class OwnEngine(CustomQueryEngine):
    """Answers in pieces of the application's own."""

    def custom_query(self, query_str: str) -> Any:
        return StreamingResponse(response_gen=Pieces(ANSWER.split(" ")))  # type: ignore[arg-type]


def test_an_answer_in_pieces_that_is_no_generator(unobserved_process: rageval_hooks.Instrumentation) -> None:
    """It does not stand on the stack, and is followed instead."""
    before = turns(unobserved_process)
    response = OwnEngine().query(QUESTION)
    assert not isinstance(response, Response)

    assert " ".join(contextvars.Context().run(list, response.response_gen)) == ANSWER
    assert turns(unobserved_process) == before + 1


def test_answers_are_forgotten_with_their_last_reader(unobserved_process: rageval_hooks.Instrumentation) -> None:
    """Read to the end, given up half-way, or never begun: nothing is kept, and a later turn is not mistaken."""
    answering = engine(lambda messages: ANSWER)
    gc.collect()
    kept = len(unobserved._streams)
    for words in range(4):
        pieces = answering.query(QUESTION).response_gen
        for _ in range(words * 2):
            next(pieces, None)
        before = turns(unobserved_process)
        ask_langchain([])
        assert turns(unobserved_process) == before + 1
        del pieces
    gc.collect()

    assert len(unobserved._streams) == kept


def test_a_generator_in_the_place_of_another(unobserved_process: rageval_hooks.Instrumentation) -> None:
    """An answer that was read to its end leaves its frame's place to others: they are not taken for it."""
    answering = engine(lambda messages: ANSWER)
    responses = [answering.query(QUESTION) for _ in range(200)]
    for response in responses:
        assert "".join(response.response_gen) == ANSWER
    before = turns(unobserved_process)

    def asking(number: int) -> Iterator[None]:
        ask_langchain([])
        yield

    others = [asking(number) for number in range(200)]
    for other in others:
        next(other)

    assert turns(unobserved_process) == before + 200
