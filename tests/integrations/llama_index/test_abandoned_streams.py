"""Streams that are not read to their end are closed by the garbage collector, at any time and in any context.

That no finalizer crashes the interpreter is tested in tests/e2e/integrations.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc

import pytest

from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import ScriptedRetriever, llm

pytest.importorskip("llama_index.core")

from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode

QUESTION = "When was the pier opened?"
NODES = [NodeWithScore(node=TextNode(id_="d1", text="The pier was opened in 2019."), score=0.5)]


def engine() -> RetrieverQueryEngine:
    return RetrieverQueryEngine.from_args(ScriptedRetriever(lambda query: NODES), llm=llm(), streaming=True)


def test_a_collected_stream_leaves_the_callers_context_unchanged(captured: Captured) -> None:
    """The context variables keep their values."""
    response = engine().query(QUESTION)
    next(response.response_gen)
    response.metadata = {"cycle": response}
    del response
    before = dict(contextvars.copy_context().items())

    gc.collect()

    assert dict(contextvars.copy_context().items()) == before
    turn = captured.turn
    assert (turn.status, turn.complete, turn.response) == ("cancelled", False, "It ")


def test_a_task_that_is_destroyed_while_it_reads(captured: Captured) -> None:
    """The event loop is closed without waiting for the task. The turn is cancelled and incomplete."""

    async def read() -> None:
        response = await engine().aquery(QUESTION)
        async for _ in response.async_response_gen():
            await asyncio.Event().wait()

    reading = read()
    loop = asyncio.new_event_loop()
    task = loop.create_task(reading)
    loop.call_later(0.3, loop.stop)
    loop.run_forever()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    reading.close()
    gc.collect()

    turn = captured.turn
    assert (turn.status, turn.complete) == ("cancelled", False)
