"""Work that a finalizer or an event loop hands over to another thread."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rageval_hooks.integrations.capture import deferred
from rageval_hooks.online.pending import DONE, PendingTurn

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")


class WaitNotingPipeline:
    """A pipeline whose turns record whether they were awaited."""

    def __init__(self) -> None:
        self.waited = False

    def submit(self, turn: Any, context: Any, **_: Any) -> Any:
        return self

    def wait(self) -> bool:
        self.waited = True
        return True


def submit(pipeline: Any) -> None:
    recording: Any = SimpleNamespace(owner=pipeline, selection=None)
    deferred.submit(recording, builds=False)


async def submit_in_a_loop(pipeline: Any) -> None:
    submit(pipeline)


@pytest.mark.parametrize(("call", "waits"), [(submit, True), (lambda p: asyncio.run(submit_in_a_loop(p)), False)])
def test_only_a_thread_without_an_event_loop_waits_for_scores(call: Callable[[Any], None], waits: bool) -> None:
    """A plain thread waits within the budget; an event loop must not be blocked."""
    pipeline = WaitNotingPipeline()
    call(pipeline)

    assert pipeline.waited is waits


def test_handed_over_work_runs_on_another_thread_in_the_callers_context() -> None:
    """Callbacks of the application see the context variables of the request."""
    variable.set("the caller's")
    seen: list[tuple[int, str]] = []
    deferred.hand_over(lambda: seen.append((threading.get_ident(), variable.get()))).result(10)

    [(thread, value)] = seen
    assert thread != threading.get_ident()
    assert value == "the caller's"


def test_the_result_of_handed_over_work_is_the_turn_that_it_returns() -> None:
    """The reader of a stream waits for its scores; there is nothing to wait for if the work has submitted no turn."""
    pending = PendingTurn(float("inf"))

    assert deferred.hand_over(lambda: pending).result(10) is pending
    assert deferred.hand_over(lambda: None).result(10) is DONE


def test_settle_waits_for_handed_over_work_within_its_timeout() -> None:
    """It returns False while work is pending, and True once it is done."""
    go_on = threading.Event()

    def work() -> None:
        go_on.wait(10)

    deferred.hand_over(work)
    assert not deferred.settle(0.01)
    go_on.set()

    assert deferred.settle(10)


def test_an_arrival_is_finished_once_and_wakes_all_waiters() -> None:
    """Threads and event loops may wait for the same turn."""
    pending = PendingTurn(float("inf"))

    async def main() -> bool:
        waiting = asyncio.ensure_future(pending)
        await asyncio.sleep(0)
        threading.Thread(target=pending.finish).start()
        return await waiting

    assert asyncio.run(main())
    assert pending.wait(0)


def test_an_exception_in_handed_over_work_ends_it() -> None:
    """Nobody waits for it any longer, and the exception is that of the future."""

    def fail() -> None:
        raise RuntimeError("our own mistake")

    future = deferred.hand_over(fail)

    assert deferred.settle(10)
    with pytest.raises(RuntimeError, match="our own mistake"):
        future.result(0)


def test_sampling_decisions_of_the_latest_conversations_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is bounded: the oldest decision is forgotten, and that conversation decides anew."""
    monkeypatch.setattr(deferred, "_MAX_SAMPLED_OUT", 2)
    turns = deferred.HeldTurns()
    for thread in "123":
        turns.note_sampling(thread, sampled_out=True)

    assert [turns.earlier_sampling(thread) for thread in "123"] == [None, False, False]
