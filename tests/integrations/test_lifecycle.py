"""Turns whose caller leaves, whose work continues after them, or that end during the shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnableParallel

import rageval_hooks
from rageval_hooks import Evaluation, metric
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.fakes import lcel, model
from tests.integrations.llama_index.fakes import index, llm

QUESTION = "When was the pier opened?"


def instrumented(exporter: Any, **settings: Any) -> rageval_hooks.Instrumentation:
    return rageval_hooks.instrument(exporters=[exporter], **{"metrics": [], **settings})


@metric(requires=["response"], high=None, unit="s")
def slow(turn: Any) -> float:
    """Take a while."""
    time.sleep(0.05)
    return 1.0


# --------------------------------------------------------------------------- callers that go away


def test_a_turn_whose_caller_gives_up_while_it_is_scored() -> None:
    """The turn is scored and exported although no caller waits for it."""
    exporter = InMemoryExporter()
    scoring, given_up = threading.Event(), threading.Event()

    @metric(requires=["response"], high=None)
    def patient(turn: Any) -> float:
        """Take until the caller has given up."""
        scoring.set()
        assert given_up.wait(60)
        return 1.0

    async def main() -> None:
        call = asyncio.create_task(lcel().ainvoke(QUESTION))
        assert await asyncio.to_thread(scoring.wait, 60)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        given_up.set()

    # With a callback the caller waits for the scores.
    callback = {"on_evaluation": lambda _: None, "inline_budget_ms": 60_000}
    with instrumented(exporter, metrics=[patient], **callback) as handle:
        asyncio.run(main())
        assert handle.flush(60)
        assert handle.stats()["turns"] == 1

    assert [evaluation["patient"] for evaluation in exporter.evaluations] == [1.0]


def test_the_wait_for_a_thread_is_part_of_the_budget() -> None:
    """With many concurrent calls, scores that do not fit into the budget are computed in the background."""
    exporter = InMemoryExporter()
    with instrumented(exporter, metrics=[slow], inline_budget_ms=60) as handle:

        async def main() -> None:
            await asyncio.gather(*(lcel().ainvoke(QUESTION) for _ in range(40)))

        asyncio.run(main())
        assert handle.flush(20)
        stats = handle.stats()

    assert stats["turns"] == stats["scored"] == 40
    assert stats["deferred_metrics"] > 0


def test_a_shutdown_waits_for_turns_that_are_being_scored() -> None:
    """They are exported before the shutdown returns."""
    exporter = InMemoryExporter()
    begun, go_on = threading.Event(), threading.Event()

    @metric(requires=["response"])
    def waiting(turn: Any) -> float:
        """Wait."""
        begun.set()
        assert go_on.wait(10)
        return 1.0

    handle = instrumented(exporter, metrics=[waiting])
    asking = threading.Thread(target=lcel().invoke, args=(QUESTION,))
    asking.start()
    assert begun.wait(10)
    assert not handle.flush(0.05)
    threading.Timer(0.1, go_on.set).start()
    assert handle.shutdown(10)

    assert len(exporter.evaluations) == 1
    asking.join()


def test_a_flush_from_within_does_not_wait_for_itself() -> None:
    """``on_evaluation`` calls ``flush`` on the thread of its turn."""
    waited = []

    def flush(evaluation: Evaluation) -> None:
        started = time.monotonic()
        handle.flush(60)
        waited.append(time.monotonic() - started)

    handle = instrumented(InMemoryExporter(), on_evaluation=flush)
    with handle:
        asyncio.run(index().as_query_engine(llm=llm()).aquery(QUESTION))
        lcel().invoke(QUESTION)
        assert handle.flush(10)

    assert len(waited) == 2
    assert max(waited) < 30


def test_flushes_from_within_do_not_wait_for_each_other() -> None:
    """Several concurrent turns call ``flush`` in ``on_evaluation``."""
    waited = []

    def flush(evaluation: Evaluation) -> None:
        started = time.monotonic()
        handle.flush(60)
        waited.append(time.monotonic() - started)

    async def main() -> None:
        await asyncio.gather(*(lcel().ainvoke(QUESTION) for _ in range(3)))

    handle = instrumented(InMemoryExporter(), on_evaluation=flush)
    with handle:
        asyncio.run(main())

    assert len(waited) == 3
    assert max(waited) < 30


# --------------------------------------------------------------------------- work that outlives its turn


def ask_langchain(question: str) -> Any:
    return lcel().ainvoke(question)


def ask_llama_index(question: str) -> Any:
    return index().as_query_engine(llm=llm()).aquery(question)


@pytest.mark.parametrize("ask", [ask_langchain, ask_llama_index])
def test_a_worker_that_was_started_within_a_turn(ask: Any) -> None:
    """It keeps the turn's context, but its later questions are new turns."""
    exporter = InMemoryExporter()

    async def main() -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()

        async def work() -> None:
            while True:
                await ask(await queue.get())
                queue.task_done()

        async def first(question: str) -> None:
            nonlocal worker
            worker = asyncio.create_task(work())
            await ask(question)

        worker: Any = None
        await RunnableLambda(first).ainvoke("first")
        for number in range(5):
            queue.put_nowait(f"later {number}")
        await queue.join()
        worker.cancel()

    ask_llama_index("warm up").close()
    with instrumented(exporter) as handle:
        asyncio.run(main())
        assert handle.flush(10)

    assert [evaluation.turn.query for evaluation in exporter.evaluations] == [
        "first",
        *(f"later {number}" for number in range(5)),
    ]


def test_a_late_model_call_is_no_turn() -> None:
    """A task that is not awaited calls the model after its turn has ended. The call is part of that turn."""
    exporter = InMemoryExporter()

    async def main() -> None:
        async def late() -> None:
            await asyncio.sleep(0.1)
            await model().ainvoke("A late thought.")

        async def first(question: str) -> Any:
            nonlocal task
            task = asyncio.create_task(late())
            return await lcel().ainvoke(question)

        task: Any = None
        await RunnableLambda(first).ainvoke(QUESTION)
        await task

    with instrumented(exporter) as handle:
        asyncio.run(main())
        assert handle.flush(10)

    assert [evaluation.turn.query for evaluation in exporter.evaluations] == [QUESTION]


@pytest.mark.parametrize("sample_rate", [0.0, 0.5, 1.0])
def test_branches_that_go_on_after_the_reader_has_left(sample_rate: float) -> None:
    """They start after the root has ended, and are not turns."""

    def busy(question: str) -> str:
        for _ in range(20):
            RunnableLambda(lambda text: text).invoke(question)
        return question

    def characters(questions: Iterator[str]) -> Iterator[str]:
        for _ in questions:
            yield from "hello"

    chain: Any = RunnableParallel(a=RunnableLambda(busy), b=RunnableLambda(busy), c=RunnableGenerator(characters))
    with instrumented(InMemoryExporter(), sample_rate=sample_rate) as handle:
        for _ in range(30):
            stream = chain.stream(QUESTION)
            next(stream)
            stream.close()
        time.sleep(0.3)
        for _ in range(200):  # a busy machine takes longer
            if len(shared_recorder()) == 0:
                break
            time.sleep(0.1)
        assert handle.flush(10)
        stats = handle.stats()
        assert len(shared_recorder()) == 0

    assert stats["turns"] == 30


# --------------------------------------------------------------------------- what we call ourselves


def test_what_metrics_and_callbacks_ask_is_no_turn() -> None:
    """A metric or ``on_evaluation`` calls a chain, at once or in the background."""
    exporter = InMemoryExporter()

    @metric(requires=["response"])
    def asking(turn: Any) -> float:
        """Ask a chain."""
        lcel().invoke("Is it so?")
        return 1.0

    for budget in (2000, 0):
        with instrumented(
            exporter,
            metrics=[asking],
            inline_budget_ms=budget,
            on_evaluation=lambda evaluation: lcel().invoke("And this?"),
        ) as handle:
            lcel().invoke(QUESTION)
            assert handle.flush(10)
            assert handle.stats()["turns"] == 1

    assert {evaluation.turn.query for evaluation in exporter.evaluations} == {QUESTION}


def test_an_exit_in_a_metric_or_an_exporter_is_not_the_applications() -> None:
    """``sys.exit`` in a metric makes it fail; the other exporters get the turn."""

    class Leaving(Exporter):
        name: ClassVar[str] = "leaving"

        def export(self, evaluation: Evaluation) -> None:
            raise SystemExit(3)

    @metric(requires=["response"])
    def leaving(turn: Any) -> float:
        """Leave."""
        raise SystemExit(3)

    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[leaving], exporters=[Leaving(), exporter]) as handle:
        assert lcel().invoke(QUESTION) == "It was opened in 2019."
        assert not handle.flush(10)  # one exporter has lost the turn
        stats = handle.stats()

    assert (stats["failed"], stats["export_errors"]) == (1, 1)
    assert len(exporter.evaluations) == 1


def test_handlers_share_an_exporter_that_is_given_as_a_class() -> None:
    """One handler per request does not create one exporter per request."""
    made = []

    class Noting(Exporter):
        name: ClassVar[str] = "noting"

        def __init__(self) -> None:
            made.append(self)

        def export(self, evaluation: Evaluation) -> None:
            seen.append(evaluation)

    seen: list[Evaluation] = []
    handlers = [CallbackHandler(metrics=[], exporters=[Noting]) for _ in range(5)]
    for handler in handlers:
        lcel().invoke(QUESTION, {"callbacks": [handler]})
        assert handler.flush(10)
        handler.pipeline.shutdown()

    assert (len(made), len(seen)) == (1, 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_does_not_count_its_parents_turns() -> None:
    """This includes turns that are not built yet."""
    with instrumented(InMemoryExporter()) as handle:
        lcel().invoke(QUESTION)
        child = os.fork()
        if not child:
            os._exit(handle.stats()["turns"])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert handle.stats()["turns"] == 1
