"""However a span ends, there is one turn with the right status. Our own errors do not reach the application."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import weakref
from typing import Any

import pytest
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import instrument_tags
from openinference.instrumentation import using_attributes
from opentelemetry.instrumentation.utils import suppress_instrumentation

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.runtime import suppression as suppressed
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import OutOfOrderError, ScriptedRetriever, llm

QUESTION = "When was the pier opened?"


def engine(found: Any = None, answer: Any = "It was opened in 2019.", **options: Any) -> Any:
    nodes = [NodeWithScore(node=TextNode(id_="d1", text="The pier was opened in 2019."), score=0.5)]
    retriever = ScriptedRetriever(lambda query: nodes if found is None else found)
    return RetrieverQueryEngine.from_args(retriever, llm=llm(answer), **options)


def ask(asked: Any, asynchronous: bool) -> None:
    asyncio.run(asked.aquery(QUESTION)) if asynchronous else asked.query(QUESTION)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
def test_an_error_of_the_retriever(captured: Captured, asynchronous: bool, streaming: bool) -> None:
    """The step and the turn have the exception, and the application gets the same object."""
    with pytest.raises(OutOfOrderError, match="index is gone"):
        ask(engine(OutOfOrderError("index is gone"), streaming=streaming), asynchronous)

    turn = captured.turn
    assert turn.status == "error"
    assert turn.error is not None
    assert (turn.error.type, turn.error.message) == ("OutOfOrderError", "index is gone")
    assert [(step.kind, step.error.type) for step in turn.steps if step.error] == [("retriever", "OutOfOrderError")]
    assert turn.has_retrieval
    assert turn.query == QUESTION


@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
def test_an_error_of_the_model(captured: Captured, asynchronous: bool) -> None:
    """The turn keeps what was retrieved before."""
    with pytest.raises(OutOfOrderError):
        ask(engine(answer=OutOfOrderError("overloaded")), asynchronous)

    turn = captured.turn
    assert turn.status == "error"
    assert turn.response == ""
    assert [passage.id for passage in turn.passages] == ["d1"]
    assert [(step.kind, step.error.type) for step in turn.steps if step.error] == [("llm", "OutOfOrderError")]


def test_a_cancelled_task(captured: Captured) -> None:
    """A cancellation is not an error."""

    async def main() -> None:
        reached = asyncio.Event()
        asked = engine()
        asked._response_synthesizer._llm.reached = reached
        task = asyncio.create_task(asked.aquery(QUESTION))
        await reached.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())

    turn = captured.turn
    assert (turn.status, turn.error, turn.response) == ("cancelled", None, "")
    assert [step.complete for step in turn.steps if step.kind == "llm"] == [False]


PLACES = {
    "the start of a span": "rageval_hooks.integrations.llama_index.values.kind_of",
    "the end of a span": "rageval_hooks.integrations.llama_index.values.streamed_in",
    "an event": "rageval_hooks.integrations.llama_index.handler.hasattr",
    "the turn": "rageval_hooks.integrations.capture.deferred.turn_of",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_fault_of_ours(place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The application does not notice. The error is counted and logged once, and the table is empty afterwards."""

    def broken(*args: Any) -> Any:
        raise RuntimeError("our own mistake")

    monkeypatch.setattr(PLACES[place], broken, raising=False)
    with (
        caplog.at_level(logging.WARNING),
        rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()]) as handle,
    ):
        assert str(engine().query(QUESTION)) == "It was opened in 2019."
        assert handle.flush(10) == (place != "the turn")  # without a turn there is something missing
        assert handle.stats()["internal_errors"] > 0
        assert len(shared_recorder()) == 0

    [line] = [record for record in caplog.records if record.name.startswith("rageval_hooks") and record.exc_info]
    assert line.exc_info is not None
    assert "our own mistake" in str(line.exc_info[1])


def test_a_function_that_asks_nobody_is_no_turn(captured: Captured) -> None:
    """For example one that prepares a text, with a span of LlamaIndex."""

    @get_dispatcher("application").span
    def clean(text: str) -> str:
        return text.strip()

    assert clean(" a ") == "a"
    assert captured.turns == []


def test_our_own_judges_calls_are_not_seen(captured: Captured) -> None:
    """Calls in a suppressed context are not recorded."""
    context = contextvars.copy_context()
    context.run(suppressed.suppress)
    context.run(engine().query, QUESTION)

    assert captured.turns == []


def test_what_opentelemetry_suppresses_is_evaluated_all_the_same(captured: Captured) -> None:
    """Only our own suppression keeps turns from being recorded, as for LangChain."""
    with suppress_instrumentation():
        engine().query(QUESTION)

    assert len(captured.turns) == 1


def test_session_and_user_from_openinference(captured: Captured) -> None:
    """``using_attributes`` is in effect around the call."""
    with using_attributes(session_id="s1", user_id="u1", metadata={"tier": "gold"}):
        engine().query(QUESTION)

    turn = captured.turn
    assert (turn.session_id, turn.user_id, turn.metadata) == ("s1", "u1", {"tier": "gold"})


def test_session_and_user_from_instrument_tags(captured: Captured) -> None:
    """LlamaIndex's own tags take precedence over OpenTelemetry's context."""
    with using_attributes(session_id="other"), instrument_tags({"session_id": "s2", "user_id": 7, "tier": "gold"}):
        engine().query(QUESTION)

    turn = captured.turn
    assert (turn.session_id, turn.user_id) == ("s2", "7")
    assert turn.metadata["tier"] == "gold"


def test_a_turn_that_is_not_selected() -> None:
    """With a rate of 0 nothing is recorded, streams included, and the table is empty afterwards."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], sample_rate=0.0) as handle:
        assert str(engine().query(QUESTION)) == "It was opened in 2019."
        assert "".join(engine(streaming=True).query(QUESTION).response_gen) == "It was opened in 2019."
        assert handle.flush(10)
        assert handle.stats()["sampled_out"] == 2
        assert len(shared_recorder()) == 0
    assert exporter.evaluations == []


def test_a_worker_that_was_started_within_a_sampled_out_turn() -> None:
    """It has the context of that turn, but its later questions are new turns."""
    contexts = []

    def remembering(messages: Any) -> str:
        contexts.append(contextvars.copy_context())
        return "It was opened in 2019."

    with rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()], sample_rate=0.0):
        contextvars.copy_context().run(engine(answer=remembering).query, QUESTION)
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
        contexts[0].run(engine().query, QUESTION)
        assert handle.flush(10)

    assert len(exporter.evaluations) == 1


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
def test_in_an_event_loop_the_turn_is_evaluated_beside_it(streaming: bool) -> None:
    """Scores are computed on another thread, and ``flush`` waits for them."""
    import threading

    threads: list[int] = []

    async def main() -> None:
        response = await engine(streaming=streaming).aquery(QUESTION)
        if streaming:
            async for _ in response.async_response_gen():
                pass
            assert threads, "the end of a stream waits for the scores"

    exporter = InMemoryExporter()
    with rageval_hooks.instrument(
        metrics=[], exporters=[exporter], on_evaluation=lambda evaluation: threads.append(threading.get_ident())
    ) as handle:
        asyncio.run(main())
        assert handle.flush(10)

    assert len(exporter.evaluations) == 1
    assert threads
    assert threading.get_ident() not in threads


def test_outside_of_a_loop_the_scores_are_there_when_the_call_returns() -> None:
    """The application can use them as a guard."""
    seen: list[str] = []
    with rageval_hooks.instrument(
        metrics=[], exporters=[InMemoryExporter()], on_evaluation=lambda evaluation: seen.append(evaluation.turn.query)
    ):
        engine().query(QUESTION)
        assert seen == [QUESTION]


def test_the_applications_nodes_are_free_once_the_turn_is_evaluated(captured: Captured) -> None:
    """No reference cycle of ours keeps them until the garbage collector runs."""
    found: list[weakref.ref[NodeWithScore]] = []

    def find(_: str) -> list[NodeWithScore]:
        node = NodeWithScore(node=TextNode(id_="d1", text="The pier was opened in 2019."), score=0.5)
        found.append(weakref.ref(node))
        return [node]

    asked = RetrieverQueryEngine.from_args(ScriptedRetriever(find), llm=llm())
    asked.query(QUESTION)
    assert captured.handle.flush(10)
    gc.collect()
    gc.disable()
    try:
        asked.query(QUESTION)
        assert captured.handle.flush(10)
        assert found[-1]() is None
    finally:
        gc.enable()
