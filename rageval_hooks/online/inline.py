"""The inline stage: evaluation starts when a turn ends, and its results are on the turn's span if they are in time.

A caller waits for them only if another tracer's span is to have them, since that span ends when the call returns, or
if ``on_evaluation`` is to be called first.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import Any

from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.executors import (
    LowPriority,
    inline_executor,
    inline_threads,
    low_priority,
    turn_begins,
    turn_ends,
)
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.threads import Signal, giving_way, new_lock
from rageval_hooks.turn import Turn

__all__ = ["DONE", "Arrival", "InlineStage", "TurnSizes"]

_MAX_WAITERS_PER_THREAD = 2
"""With more evaluations in progress, callers do not wait."""

_WEIGHT = 1 / 16
"""Weight of the newest turn in the running mean of sizes."""

Steps = Generator[LowPriority, None, None]
"""An evaluation. It yields the priority of what is left, where other turns may come first."""

_here = threading.local()

_all_open: set[Arrival] = set()
"""The evaluations of this process that are in progress."""


class Arrival:
    """A turn on its way through the inline stage. Callers wait for it, or await it, until the budget is used up.

    Args:
        deadline: value of ``time.perf_counter()`` at which callers stop waiting.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._signal = Signal()
        self._lock = new_lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """True once the inline results were handed to the exporters."""
        return self._signal.is_set()

    def finish(self) -> None:
        """Wake all who wait."""
        # Under the lock, so that no callback is added after the list was taken.
        with self._lock:
            self._signal.set()
            callbacks, self._callbacks = self._callbacks, []
        for call in callbacks:
            call()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the stage, by default until the deadline. Returns False if that came first."""
        if timeout is None:
            timeout = self.deadline - time.perf_counter()
        return self._signal.wait(timeout)

    def __await__(self) -> Generator[Any, None, bool]:
        """Wait in an event loop until the deadline. Cancelling the wait does not cancel the evaluation."""
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self) -> bool:
        if self.done:
            return True
        loop = asyncio.get_running_loop()
        finished = loop.create_future()

        def finish() -> None:
            if not finished.done():
                finished.set_result(None)

        def finish_from_thread() -> None:
            # The loop may be closed by now: the waiting task may have been cancelled.
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish)

        if not self._call_when_done(finish_from_thread):
            return True
        timer = loop.call_later(max(0.0, self.deadline - time.perf_counter()), finish)
        try:
            await finished
        finally:
            timer.cancel()
        return self.done

    def _call_when_done(self, call: Callable[[], None]) -> bool:
        """Have a function called at the end of the stage. Returns False if that has passed."""
        with self._lock:
            if self.done:
                return False
            self._callbacks.append(call)
            return True


DONE = Arrival(0.0)
"""The arrival of a turn that needs no waiting."""
DONE.finish()


class TurnSizes:
    """Estimates the size of turns that are not built yet, by those that were."""

    def __init__(self) -> None:
        self._mean = 0.0

    @property
    def typical(self) -> int:
        """The mean so far, in bytes."""
        return int(self._mean)

    def of(self, turn: Turn | Callable[[], Turn]) -> int:
        """Return the bytes of a turn; the mean so far for a function that builds one."""
        return turn.size if isinstance(turn, Turn) else self.typical

    def note(self, size: int) -> None:
        """Learn from a turn that was built."""
        self._mean = size if not self._mean else self._mean + _WEIGHT * (size - self._mean)


class InlineStage:
    """Runs evaluations on the process's inline threads.

    Args:
        budget: seconds that callers wait at most.
        capacity: evaluations that may wait for a thread.
        max_bytes: size of their turns.
    """

    def __init__(self, budget: float, capacity: int, max_bytes: float) -> None:
        self.budget = budget
        self._capacity = capacity
        self._max_bytes = max_bytes
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget the parent's evaluations: their threads do not exist in the child."""
        self._open: set[Arrival] = set()
        self._sizes: dict[Arrival, int] = {}
        _all_open.clear()

    def start(self, evaluate: Callable[[float], Steps], size: int, *, caller_waits: bool) -> Arrival | None:
        """Start an evaluation, in the caller's context but on another thread.

        Args:
            evaluate: evaluates a turn; gets the deadline, as a value of ``time.perf_counter()``. Must not raise.
            size: bytes of the turn.
            caller_waits: True if the caller waits for the results, within the budget.

        Returns:
            None if too many evaluations wait already: a metric that ignores the deadline holds the threads.
        """
        waiting = len(self._open)
        # One turn is always taken, whatever its size.
        if waiting >= self._capacity or (waiting and self._open_bytes() + size > self._max_bytes):
            return None
        now = time.perf_counter()
        # Behind a queue a caller would wait in vain.
        is_queued = len(_all_open) >= _MAX_WAITERS_PER_THREAD * inline_threads()
        arrival = Arrival(now + self.budget if caller_waits and not is_queued else now)
        # Sets of arrivals change by single, atomic operations: a finalizer may end a turn at any moment.
        self._open.add(arrival)
        self._sizes[arrival] = size
        _all_open.add(arrival)
        turn_begins(arrival, has_ended=True)
        EXIT_DRAIN.add(_drain, "capture", _has_open)
        EXIT_DRAIN.register()
        steps = evaluate(now + self.budget)
        inline_executor().submit(self._run, copy_context(), steps, arrival)
        return arrival

    def flush(self, timeout: float) -> bool:
        """Wait for the evaluations that have started. Returns False if ``timeout`` seconds pass first.

        On a thread of the stage it returns at once: two callbacks that flush would wait for each other.
        """
        return _wait_for(list(self._open), timeout)

    def _open_bytes(self) -> int:
        # A copy: a finalizer may add a turn at any moment.
        return sum(list(self._sizes.values()))

    def _run(self, context: Context, steps: Steps, arrival: Arrival) -> None:
        """Run an evaluation as far as it goes before turns that wait for this thread come first."""
        # A callback that flushes on this thread must not wait for the evaluation that it is part of.
        _here.evaluates = True
        priority = None
        try:
            with giving_way():
                priority = context.run(_advance, steps)
        finally:
            _here.evaluates = False
            if priority is None:
                self._finish(arrival)
        if priority is not None:
            with low_priority(priority):
                inline_executor().submit(self._run, context, steps, arrival)

    def _finish(self, arrival: Arrival) -> None:
        self._open.discard(arrival)
        self._sizes.pop(arrival, None)
        _all_open.discard(arrival)
        turn_ends(arrival)
        arrival.finish()


def _advance(steps: Steps) -> LowPriority | None:
    """Run an evaluation until others wait for this thread. Returns the priority of what is left; None at the end."""
    for priority in steps:
        if inline_executor().has_queue:
            return priority
    return None


def _has_open() -> bool:
    return bool(_all_open)


def _drain(timeout: float) -> bool:
    return _wait_for(list(_all_open), timeout)


def _wait_for(arrivals: list[Arrival], timeout: float) -> bool:
    if getattr(_here, "evaluates", False):
        return True
    end = time.monotonic() + timeout
    return all(arrival.wait(end - time.monotonic()) for arrival in arrivals)
