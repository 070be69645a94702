"""Turns that end where nobody may wait."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from rageval_hooks.integrations.capture import deferred as handover
from rageval_hooks.turn import Turn

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")


class FakePipeline:
    """Notes on which thread turns come, and lets them wait."""

    def __init__(self, computes: bool) -> None:
        self.computes = computes
        self.go_on = threading.Event()
        self.go_on.set()
        self.seen: list[tuple[Turn, int, str]] = []

    def needs_thread(self, turn: Turn) -> bool:
        return self.computes

    def clock(self) -> float:
        return 0.0

    def submit(self, turn: Turn, selection: Any, ended: float | None = None) -> None:
        assert self.go_on.wait(10)
        self.seen.append((turn, threading.get_ident(), variable.get()))

    def flush(self, timeout: float) -> bool:
        return True


def submit(pipeline: Any) -> None:
    variable.set("the caller's")
    handover.submit(pipeline, Turn(query="When?"), None)  # type: ignore[arg-type]


async def submit_in_a_loop(pipeline: Any) -> None:
    submit(pipeline)


@pytest.mark.parametrize("computes", [False, True])
def test_on_a_plain_thread_it_is_done_here_and_now(computes: bool) -> None:
    """Whether or not there is something to compute."""
    pipeline = FakePipeline(computes)
    submit(pipeline)

    assert [thread for _, thread, _ in pipeline.seen] == [threading.get_ident()]


def test_in_a_loop_what_computes_is_done_beside_it() -> None:
    """On another thread, with the caller's context variables; what computes nothing stays."""
    beside, here = FakePipeline(True), FakePipeline(False)
    asyncio.run(submit_in_a_loop(beside))
    asyncio.run(submit_in_a_loop(here))
    assert handover.settle(10)

    [(_, thread, value)] = beside.seen
    assert thread != threading.get_ident()
    assert value == "the caller's"
    assert [thread for _, thread, _ in here.seen] == [threading.get_ident()]


def test_waiting_for_what_was_handed_over() -> None:
    """As long as is asked for, and no longer."""
    pipeline: Any = FakePipeline(True)
    pipeline.go_on.clear()
    asyncio.run(submit_in_a_loop(pipeline))
    assert not handover.settle(0.01)
    assert not handover.flush(pipeline, 0.01)
    pipeline.go_on.set()
    assert handover.flush(pipeline, 10)

    assert len(pipeline.seen) == 1
