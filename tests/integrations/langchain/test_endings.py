"""However a run ends, there is one turn with the right status, and the table is empty afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from typing import Any

import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from rageval_hooks.integrations.capture.recorder import shared_recorder
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import FACTS, PROMPT, ScriptedRetriever, join, lcel, model, retriever

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


class OutOfOrderError(Exception):
    """What a broken component raises."""


def test_a_stream_that_its_reader_closes_is_cancelled_with_what_was_read(captured: Captured) -> None:
    """The turn has the text that was streamed so far, and no error."""
    stream = lcel("It was opened in 2019.").stream(QUESTION)
    assert next(stream) == "It "
    stream.close()

    turn = captured.turn
    assert turn.status == "cancelled"
    assert turn.error is None
    assert turn.query == QUESTION
    assert turn.response == "It "
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]


def test_an_async_stream_that_its_reader_closes_is_cancelled(captured: Captured) -> None:
    """The same holds for an asynchronous stream."""

    async def main() -> None:
        stream = lcel("It was opened in 2019.").astream(QUESTION)
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(main())

    turn = captured.turn
    assert turn.status == "cancelled"
    assert turn.error is None
    assert turn.query == QUESTION
    assert turn.response.startswith("It ")


def test_a_stream_that_is_only_dropped_ends_too(captured: Captured) -> None:
    """A generator that is garbage collected ends its turn."""
    stream = lcel("It was opened in 2019.").stream(QUESTION)
    next(stream)
    del stream

    assert captured.turn.status == "cancelled"


class LateParser(StrOutputParser):
    """A parser whose stream is in a younger generation of the garbage collector than the stream of its chain."""

    def transform(self, *args: Any, **kwargs: Any) -> Any:
        gc.collect(0)
        yield from super().transform(*args, **kwargs)


def test_a_stream_in_a_cycle_that_is_garbage_collected_is_incomplete(captured: Captured) -> None:
    """An abandoned ``StreamingResponse``: the collector closes the parser's stream before that of the chain.

    The parser then reads the rest of the model's text, so that the chain ends after the model, with one piece of it.
    """
    gc.collect()
    stream = (PROMPT | model(ANSWER) | LateParser()).stream({"context": "", "question": QUESTION})
    assert (next(stream), next(stream)) == ("It ", "was ")
    cycle: list[Any] = [stream]
    cycle.append(cycle)
    del stream, cycle
    gc.collect()

    turn = captured.turn
    assert (turn.status, turn.response, turn.complete) == ("cancelled", "It ", False)


def test_an_answer_that_a_function_cuts_is_complete(captured: Captured) -> None:
    """The streamed answer is the first line of what the model wrote."""
    chain = PROMPT | model("It was opened in 2019.\nSources: harbour.md") | StrOutputParser()
    first_line: Any = RunnableLambda(lambda text: text.split("\n")[0])
    list((chain | first_line).stream({"context": "", "question": QUESTION}))

    turn = captured.turn
    assert (turn.status, turn.response, turn.complete) == ("ok", ANSWER, True)


def test_a_clock_that_jumps_does_not_change_how_long_things_took(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock is set forward by an hour while the retriever runs."""
    recorder = shared_recorder()
    wall_clock = recorder.wall_clock

    def search(query: str) -> Any:
        monkeypatch.setattr(recorder, "wall_clock", lambda: wall_clock() + 3600 * 10**9)
        return FACTS

    before = time.time_ns()
    ({"context": ScriptedRetriever(find=search) | join, "question": RunnablePassthrough()} | PROMPT | model()).invoke(
        QUESTION
    )
    after = time.time_ns()

    turn = captured.turn
    assert turn.timing is not None
    assert before <= turn.timing.started_at <= turn.timing.ended_at <= after
    for step in turn.steps:
        assert turn.timing.started_at <= step.started_at <= step.ended_at <= turn.timing.ended_at


def test_a_cancelled_task_is_cancelled(captured: Captured) -> None:
    """The model's end is never reported, but the turn ends, without an error."""

    async def main() -> None:
        reached = asyncio.Event()
        task = asyncio.create_task(lcel(reached=reached).ainvoke(QUESTION))
        await reached.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())

    turn = captured.turn
    assert turn.status == "cancelled"
    assert turn.error is None
    assert turn.response == ""
    assert [step.complete for step in turn.steps if step.kind == "llm"] == [False]


@pytest.mark.parametrize("streamed", [False, True], ids=["invoke", "stream"])
def test_an_error_of_the_retriever_is_the_turns_error(captured: Captured, streamed: bool) -> None:
    """The step and the turn have the exception, and the application gets the same object."""
    chain = lcel(documents=OutOfOrderError("index is gone"))
    with pytest.raises(OutOfOrderError):
        "".join(chain.stream(QUESTION)) if streamed else chain.invoke(QUESTION)

    turn = captured.turn
    assert turn.status == "error"
    assert turn.error is not None
    assert (turn.error.type, turn.error.message) == ("OutOfOrderError", "index is gone")
    assert [step.error.type for step in turn.steps if step.kind == "retriever" and step.error] == ["OutOfOrderError"]
    assert turn.has_retrieval


@pytest.mark.parametrize("asynchronous", [False, True], ids=["invoke", "ainvoke"])
def test_an_error_of_the_model_is_the_turns_error(captured: Captured, asynchronous: bool) -> None:
    """The turn keeps what was retrieved before."""
    chain = lcel(OutOfOrderError("overloaded"))
    with pytest.raises(OutOfOrderError):
        asyncio.run(chain.ainvoke(QUESTION)) if asynchronous else chain.invoke(QUESTION)

    turn = captured.turn
    assert turn.status == "error"
    assert turn.error is not None
    assert turn.error.type == "OutOfOrderError"
    assert turn.query == QUESTION
    assert turn.response == ""
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]
    assert [step.error.type for step in turn.steps if step.kind == "llm" and step.error] == ["OutOfOrderError"]


def test_a_fallback_that_answers_is_no_error(captured: Captured) -> None:
    """The step of the failed model has its error, the turn has none."""
    chain = {"context": retriever() | str, "question": lambda x: x} | PROMPT
    answering = model(OutOfOrderError("overloaded")).with_fallbacks([model("In 2019.")])
    (chain | answering).invoke(QUESTION)

    turn = captured.turn
    assert turn.status == "ok"
    assert turn.response == "In 2019."
    assert [step.error is not None for step in turn.steps if step.kind == "llm"] == [True, False]


def test_a_handler_that_fails_does_not_reach_the_application(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception in our own code is logged once and counted once."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("our own mistake")

    monkeypatch.setattr("rageval_hooks.integrations.capture.deferred.turn_of", broken)
    for _ in range(3):
        assert lcel("fine").invoke(QUESTION) == "fine"

    assert not captured.handle.flush(10)
    assert captured.handle.stats()["internal_errors"] == 3
    [line] = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("rageval-hooks: a turn could not be built from what was recorded: RuntimeError")
    captured.handle.pipeline._counters.reset_after_fork()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["invoke", "ainvoke"])
def test_an_event_that_cannot_be_recorded_does_not_reach_the_application(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    """The chain answers, and each run that starts counts: the steps of the chain, and those inside them."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("our own mistake")

    monkeypatch.setattr(shared_recorder(), "start", broken)
    chain = lcel("fine")

    assert (asyncio.run(chain.ainvoke(QUESTION)) if asynchronous else chain.invoke(QUESTION)) == "fine"
    assert captured.handle.stats()["internal_errors"] >= 7
    captured.handle.pipeline._counters.reset_after_fork()
