"""Concurrent turns never mix, although they share one handler."""

from __future__ import annotations

import asyncio
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import PROMPT, ScriptedRetriever, join, model

TURNS = 64


def echo_chain() -> Any:
    """Return a chain whose documents and answer contain its question."""
    documents = ScriptedRetriever(
        find=lambda query: [
            Document(id=f"{query}/{rank}", page_content=f"passage {rank} for {query}") for rank in range(3)
        ]
    )
    return (
        {"context": documents | join, "question": RunnablePassthrough()}
        | PROMPT
        | model(lambda messages: f"answer to {messages[-1].content}")
        | StrOutputParser()
    )


def check(turns: list[Turn]) -> None:
    assert len(turns) == TURNS
    assert {turn.query for turn in turns} == {f"question {number}" for number in range(TURNS)}
    for turn in turns:
        assert turn.response == f"answer to {turn.query}"
        assert [passage.id for passage in turn.passages] == [f"{turn.query}/{rank}" for rank in range(3)]
        assert [message.content for message in turn.prompt][-1] == turn.query
        assert turn.session_id == f"session of {turn.query}"
        assert all(passage.in_prompt for passage in turn.passages)
    assert len({turn.span.trace_id for turn in turns if turn.span}) == TURNS


def config(number: int) -> Any:
    return {"metadata": {"session_id": f"session of question {number}"}}


def test_threads(captured: Captured) -> None:
    """64 turns of one chain run on 16 threads."""
    chain = echo_chain()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: chain.invoke(f"question {number}", config(number)), range(TURNS)))

    check(captured.turns)


def test_tasks(captured: Captured) -> None:
    """64 turns run concurrently in one event loop."""
    chain = echo_chain()

    async def main() -> None:
        await asyncio.gather(*(chain.ainvoke(f"question {number}", config(number)) for number in range(TURNS)))

    asyncio.run(main())

    check(captured.turns)


def test_streams_in_tasks(captured: Captured) -> None:
    """64 streams are read alternately in one event loop."""
    chain = echo_chain()

    async def read(number: int) -> None:
        async for _ in chain.astream(f"question {number}", config(number)):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*map(read, range(TURNS)))

    asyncio.run(main())

    check(captured.turns)


def test_calls_at_the_same_time_with_one_run_id(captured: Captured, caplog: pytest.LogCaptureFixture) -> None:
    """Their runs cannot be told apart. They are counted and said once, and no turn mixes them."""
    together = asyncio.Barrier(4)

    async def meet(question: str) -> str:
        await together.wait()
        return question

    chain = RunnableLambda(meet) | echo_chain()
    run_id = uuid.uuid4()

    async def main() -> None:
        calls = [chain.ainvoke(f"question {number}", {"run_id": run_id}) for number in range(4)]
        answers = await asyncio.gather(*calls)
        assert answers == [f"answer to question {number}" for number in range(4)]

    asyncio.run(main())

    assert captured.turns == []
    stats = captured.handle.stats()
    assert (stats["turns"], stats["dropped_by_cause"]["same_run_id"]) == (4, 4)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([line for line in warnings if "one run_id" in line]) == 1


def test_calls_with_one_run_id_after_each_other(captured: Captured) -> None:
    """Each is a turn."""
    run_id = uuid.uuid4()
    for number in range(3):
        echo_chain().invoke(f"question {number}", {"run_id": run_id})

    assert {turn.response for turn in captured.turns} == {f"answer to question {number}" for number in range(3)}
