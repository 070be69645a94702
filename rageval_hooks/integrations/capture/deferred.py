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

from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import Selection
from rageval_hooks.runtime.executors import inline_executor
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
    future = inline_executor().submit(_call, copy_context(), function, *args)
    _pending.add(future)
    future.add_done_callback(_pending.discard)
    return future


def _call(context: Context, function: Callable[..., Any], *args: Any) -> Any:
    _here.handed_over = True
    try:
        return context.run(function, *args)
    finally:
        _here.handed_over = False


_here = threading.local()


def settle(timeout: float) -> bool:
    """Wait until everything that was handed over is done; returns False if that took longer than ``timeout`` s.

    Called by something that was handed over itself, it does not wait: two of these would wait for each other.
    """
    return getattr(_here, "handed_over", False) or not wait(list(_pending), timeout).not_done


def flush(pipeline: Pipeline, timeout: float) -> bool:
    """Wait until every turn so far has come to a pipeline and is delivered; False if that took longer."""
    end = time.monotonic() + timeout
    settled = settle(timeout)
    return pipeline.flush(max(0.0, end - time.monotonic())) and settled


def _at_exit() -> None:
    settle(_EXIT_TIMEOUT)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pending.clear)
