"""What runs inside a sampled-out turn is not a turn, even while its answer is streamed. Each turn is counted once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from llama_index.core.query_engine import RetrieverQueryEngine

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


def test_what_the_reader_asks_between_two_pieces_is_a_turn(sampled_out_process: rageval_hooks.Instrumentation) -> None:
    """Only what the generator calls belongs to the sampled-out turn."""
    answering = engine(lambda messages: ANSWER)
    before = turns(sampled_out_process)
    for number, _ in enumerate(answering.query(QUESTION).response_gen):
        if number < 2:
            ask_llama_index([])
            ask_langchain([])

    assert turns(sampled_out_process) == before + 5
