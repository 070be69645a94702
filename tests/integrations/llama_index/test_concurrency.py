"""Concurrent turns never mix."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from openinference.instrumentation import using_session

from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import ScriptedRetriever, llm

TURNS = 64


def echo_engine(**options: Any) -> Any:
    """Return an engine whose nodes and answer contain its question."""

    def find(query: str) -> list[NodeWithScore]:
        return [
            NodeWithScore(node=TextNode(id_=f"{query}/{rank}", text=f"passage {rank} for {query};"), score=1 - rank / 9)
            for rank in range(3)
        ]

    def answer(messages: Any) -> str:
        question = messages[-1].content.split("Query: ")[1].split("\n")[0]
        return f"answer to {question}"

    return RetrieverQueryEngine.from_args(ScriptedRetriever(find), llm=llm(answer), **options)


def questions() -> Iterator[str]:
    return (f"question {number}." for number in range(TURNS))


def check(turns: list[Turn]) -> None:
    assert len(turns) == TURNS
    assert {turn.query for turn in turns} == set(questions())
    for turn in turns:
        assert turn.status == "ok"
        assert turn.response == f"answer to {turn.query}"
        assert [passage.id for passage in turn.passages] == [f"{turn.query}/{rank}" for rank in range(3)]
        assert all(passage.in_prompt for passage in turn.passages)
        assert [step.kind for step in turn.steps] == ["retriever", "llm"]
        assert f"Query: {turn.query}" in turn.prompt[-1].content
        assert turn.session_id == f"session of {turn.query}"
    assert len({turn.span.trace_id for turn in turns if turn.span}) == TURNS


def test_threads(captured: Captured) -> None:
    """64 turns of one engine run on 16 threads."""
    engine = echo_engine()

    def ask(question: str) -> None:
        with using_session(f"session of {question}"):
            engine.query(question)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, questions()))

    check(captured.turns)


def test_streams_in_threads(captured: Captured) -> None:
    """64 streams on 16 threads are each read to their end."""
    engine = echo_engine(streaming=True)

    def ask(question: str) -> None:
        with using_session(f"session of {question}"):
            response = engine.query(question)
        list(response.response_gen)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, questions()))

    check(captured.turns)


def test_tasks(captured: Captured) -> None:
    """64 turns run concurrently in one event loop."""
    engine = echo_engine()

    async def ask(question: str) -> None:
        with using_session(f"session of {question}"):
            await engine.aquery(question)

    async def main() -> None:
        await asyncio.gather(*map(ask, questions()))

    asyncio.run(main())

    check(captured.turns)


def test_streams_in_tasks(captured: Captured) -> None:
    """64 streams are read alternately in one event loop."""
    engine = echo_engine(streaming=True)

    async def ask(question: str) -> None:
        with using_session(f"session of {question}"):
            response = await engine.aquery(question)
        async for _ in response.async_response_gen():
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*map(ask, questions()))

    asyncio.run(main())

    check(captured.turns)
