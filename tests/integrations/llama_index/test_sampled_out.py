"""What runs inside a sampled-out turn is not a turn, even while its answer is streamed. Each turn is counted once."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from llama_index.core.base.response.schema import Response, StreamingResponse
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain import fakes as langchain
from tests.integrations.llama_index.fakes import ScriptedRetriever, index, llm

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


@pytest.fixture
def sampled_out_process() -> Iterator[rageval_hooks.Instrumentation]:
    """An instrumented process whose turns are all sampled out."""
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


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_calls_while_the_answer_is_read_in_another_context_are_not_turns(
    sampled_out_process: rageval_hooks.Instrumentation, asynchronous: bool
) -> None:
    """The model calls another engine while its stream is read."""
    answering = engine(ask_llama_index)
    before = turns(sampled_out_process)
    if asynchronous:

        async def ask_and_read() -> str:
            response = await asyncio.create_task(answering.aquery(QUESTION))
            return await contextvars.Context().run(asyncio.ensure_future, read(response))

        text = asyncio.run(ask_and_read())
    else:
        response = contextvars.copy_context().run(answering.query, QUESTION)
        text = contextvars.Context().run("".join, response.response_gen)

    assert text == ANSWER
    assert turns(sampled_out_process) == before + 1


def test_what_the_reader_asks_between_two_pieces_is_a_turn(sampled_out_process: rageval_hooks.Instrumentation) -> None:
    """Only what the generator calls belongs to the sampled-out turn."""
    answering = engine(lambda messages: ANSWER)
    before = turns(sampled_out_process)
    for number, _ in enumerate(answering.query(QUESTION).response_gen):
        if number < 2:
            ask_llama_index([])
            ask_langchain([])

    assert turns(sampled_out_process) == before + 5


def test_a_streamed_answer_inside_another_value(
    sampled_out_process: rageval_hooks.Instrumentation,
) -> None:
    """A function of the application returns the response in a dictionary."""
    answering = engine(ask_llama_index)
    before = turns(sampled_out_process)

    @get_dispatcher().span
    def answered(question: str) -> dict[str, Any]:
        return {"answer": answering.query(question), "for": question}

    assert "".join(answered(QUESTION)["answer"].response_gen) == ANSWER
    assert turns(sampled_out_process) == before + 1


class Pieces:
    """A stream that is not a generator."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = iter(pieces)

    def __iter__(self) -> Pieces:
        return self

    def __next__(self) -> str:
        piece = next(self._pieces)
        ask_llama_index([])
        return piece


class OwnEngine(CustomQueryEngine):
    """A query engine of the application whose stream is not a generator."""

    def custom_query(self, query_str: str) -> Any:
        return StreamingResponse(response_gen=Pieces(ANSWER.split(" ")))  # type: ignore[arg-type]


def test_a_stream_that_is_not_a_generator(sampled_out_process: rageval_hooks.Instrumentation) -> None:
    """What is called while it is read belongs to the sampled-out turn."""
    before = turns(sampled_out_process)
    response = OwnEngine().query(QUESTION)
    assert not isinstance(response, Response)

    assert " ".join(contextvars.Context().run(list, response.response_gen)) == ANSWER
    assert turns(sampled_out_process) == before + 1
