"""Calls inside a running event loop: our code never blocks the loop, not even in a synchronous call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.llama_index.fakes import ScriptedRetriever, llm

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."
NODES = [NodeWithScore(node=TextNode(id_="d1", text="The pier was opened in 2019."), score=0.5)]


def query_engine(streaming: bool = False) -> RetrieverQueryEngine:
    return RetrieverQueryEngine.from_args(ScriptedRetriever(lambda query: NODES), llm=llm(), streaming=streaming)


def chat_engine() -> ContextChatEngine:
    return ContextChatEngine.from_defaults(
        retriever=ScriptedRetriever(lambda query: NODES),
        llm=llm(),
        memory=ChatMemoryBuffer.from_defaults(token_limit=3000, tokenizer_fn=str.split),
    )


CALLS: dict[str, tuple[Callable[[], Any], Callable[[Any], str]]] = {
    "query": (query_engine, lambda engine: str(engine.query(QUESTION))),
    "stream": (lambda: query_engine(True), lambda engine: "".join(engine.query(QUESTION).response_gen)),
    "chat": (chat_engine, lambda engine: str(engine.chat(QUESTION))),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_synchronous_call_does_not_block_the_loop(call: str) -> None:
    """Blockbuster raises if our code blocks. The answer, the scores and the counts are the usual ones."""
    make, ask = CALLS[call]
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(models="lexical", exporters=[exporter]) as handle:
        engine = make()
        handle.flush(10)
        exporter.clear()

        async def main() -> str:
            with blockbuster_ctx("rageval_hooks"):  # LlamaIndex itself blocks, to count tokens
                return ask(engine)

        assert asyncio.run(main()) == ANSWER
        assert handle.flush(30)
        stats = handle.stats()

    [evaluation] = exporter.evaluations
    assert evaluation.turn.response == ANSWER
    assert evaluation.results
    assert stats["internal_errors"] == 0
