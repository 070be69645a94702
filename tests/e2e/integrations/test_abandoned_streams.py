"""Streams that the garbage collector closes at any moment do not crash the interpreter; each in a fresh one."""

from __future__ import annotations

import pytest

from tests.interpreter import run_script

LLAMA_INDEX = """
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
    pytest.importorskip("llama_index.core")
    assert run_script(LLAMA_INDEX) == "alive\n"


LANGCHAIN = """
import gc
import sys
from contextvars import ContextVar, copy_context

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.test_host_untouched import chat_chain

count = int(sys.argv[1])
exporter = InMemoryExporter()
chain = chat_chain()
variables = [ContextVar(f"v{number}") for number in range(64)]
gc.disable()
# The modules are not looked through in each of the collections below: this takes minutes.
gc.freeze()
with rageval_hooks.instrument(exporters=[exporter], metrics=["latency", "tokens"]) as handle:
    for number in range(count):
        stream = chain.stream("When was the pier opened?")
        next(stream)
        cycle = [stream]
        cycle.append(cycle)
        del stream, cycle
        before = {variable: value for variable, value in copy_context().items() if variable not in variables}
        # The collector now runs on the first allocation, which one of these makes.
        gc.set_threshold(1)
        gc.enable()
        for variable in variables:
            variable.set(object())
        gc.disable()
        gc.collect()
        after = {variable: value for variable, value in copy_context().items() if variable not in variables}
        assert after == before, (before, after)
    assert handle.flush(30)
    assert len(shared_recorder()) == 0
    assert handle.stats()["internal_errors"] == 0, handle.stats()
turns = {evaluation.turn.id: evaluation.turn for evaluation in exporter.evaluations}
assert len(turns) == count, len(turns)
assert {turn.status for turn in turns.values()} == {"cancelled"}
assert {turn.response for turn in turns.values()} == {"It "}
assert "v0" in {variable.name for variable in copy_context()}
"""


def test_streams_that_the_garbage_collector_closes() -> None:
    """They end as cancelled turns. Setting a context variable there would crash CPython 3.11."""
    run_script(LANGCHAIN, 100)
