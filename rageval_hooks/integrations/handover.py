"""Turns that end where nobody may wait: in an event loop without an awaitable hook, or in the garbage collector."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from asyncio import AbstractEventLoop
from asyncio.events import _get_running_loop
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import Context, copy_context
from typing import Any

from rageval_hooks.pipeline import Pipeline
from rageval_hooks.selection import Selection
from rageval_hooks.threads import inline_executor
from rageval_hooks.turn import Turn

__all__ = ["flush", "hand_over", "running_loop", "settle", "submit"]

_EXIT_TIMEOUT = 5.0

_pending: set[Future[Any]] = set()
"""Only ever added to and discarded from, which is atomic: a lock could be held when the garbage collector calls."""


running_loop: Callable[[], AbstractEventLoop | None] = _get_running_loop
"""Return the event loop that the calling thread runs right now, if it runs one. Asked at every end of a run:
``asyncio.get_running_loop`` would take ten times as long to say that there is none."""


def submit(pipeline: Pipeline, turn: Turn, selection: Selection) -> None:
    """Submit a turn: here and now, or, where an event loop would have to wait for it, beside that."""
    if pipeline.needs_thread(turn) and running_loop() is not None:
        hand_over(pipeline.submit, turn, selection, pipeline.clock())
    else:
        pipeline.submit(turn, selection)


def hand_over(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Have a function called soon, in this context but on another thread; :func:`settle` waits for it.

    Not once the interpreter goes down: a thread that were started then would never begin, and be waited for.
    """
    if sys.is_finalizing():
        nothing: Future[Any] = Future()
        nothing.set_result(None)
        return nothing
    if not _pending:
        # Anew each time: exit handlers run last-in first-out, and this one must come before the worker's drain.
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
    job = _Job(copy_context(), function, args)
    future = job.future = inline_executor().submit(job)
    _pending.add(future)
    future.add_done_callback(_pending.discard)
    return future


class _Job:
    """A function to be called on another thread, which may wait for all others that were handed over."""

    __slots__ = ("_args", "_context", "_function", "future")

    def __init__(self, context: Context, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._context = context
        self._function = function
        self._args = args
        self.future: Future[Any] | None = None

    def __call__(self) -> Any:
        _here.job = self
        try:
            return self._context.run(self._function, *self._args)
        finally:
            _here.job = None


_here = threading.local()


def settle(timeout: float) -> bool:
    """Wait until everything that was handed over is done; returns False if that took longer than ``timeout`` s.

    Called by something that was handed over itself, it does not wait for that.
    """
    job: _Job | None = getattr(_here, "job", None)
    return not wait([future for future in list(_pending) if job is None or future is not job.future], timeout).not_done


def flush(pipeline: Pipeline, timeout: float) -> bool:
    """Wait until every turn so far has come to a pipeline and is delivered; False if that took longer."""
    end = time.monotonic() + timeout
    settled = settle(timeout)
    return pipeline.flush(max(0.0, end - time.monotonic())) and settled


def _at_exit() -> None:
    settle(_EXIT_TIMEOUT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pending.clear)
