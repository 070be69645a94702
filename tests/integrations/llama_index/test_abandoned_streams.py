"""Streams that are not read to their end are closed by the garbage collector, at any time and in any context."""

from __future__ import annotations

import asyncio
import contextvars
import gc

import pytest

from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import ScriptedRetriever, llm
from tests.interpreter import run_script

pytest.importorskip("llama_index.core")

from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode

QUESTION = "When was the pier opened?"
NODES = [NodeWithScore(node=TextNode(id_="d1", text="The pier was opened in 2019."), score=0.5)]

IN_CYCLES = """
import contextvars, gc
import rageval_hooks
from llama_index.core.query_engine import RetrieverQueryEngine
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.llama_index.fakes import ScriptedRetriever, llm
from tests.integrations.llama_index.test_abandoned_streams import NODES, QUESTION

COUNT = 40
exporter = InMemoryExporter()
variables = [contextvars.ContextVar(f"v{n}") for n in range(200)]
engine = RetrieverQueryEngine.from_args(ScriptedRetriever(lambda query: NODES), llm=llm(), streaming=True)

with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
    engine.query(QUESTION).get_response()
    gc.disable()
    for _ in range(COUNT):
        response = engine.query(QUESTION)
        next(response.response_gen)
        response.metadata = {"cycle": response}
        del response
    gc.enable()
    gc.set_threshold(1, 1, 1)  # the collector now runs inside of nearly every allocation, those of set() included
    for round_ in range(20):
        for variable in variables:
            variable.set(object())
    gc.set_threshold(700, 10, 10)
    gc.collect()
    assert handle.flush(30)
    statuses = [evaluation.turn.status for evaluation in exporter.evaluations]
    assert statuses == ["ok"] + ["cancelled"] * COUNT, statuses
    assert handle.stats()["internal_errors"] == 0
    assert handle.stats()["open_runs"] == 0
print("alive")
"""


def test_streams_in_reference_cycles_do_not_crash_the_interpreter() -> None:
    """CPython 3.11 crashes when a variable is set by a finalizer that runs inside ``ContextVar.set``."""
    assert run_script(IN_CYCLES) == "alive\n"


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
