"""Work that the calling thread must not do itself, because it runs an event loop or a finalizer."""

from __future__ import annotations

import sys
import threading
import time
from asyncio.events import _get_running_loop
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from rageval_hooks.integrations.capture.held_turns import held_turns
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import run_in_child
from rageval_hooks.runtime.pool import local_pool, on_pool_thread
from rageval_hooks.turn import Turn

_MOST_PENDING = 2048
_MOST_PENDING_BYTES = 128 * 2**20

_pending: dict[Future[Any], int] = {}
"""Futures of work that has not finished, with its size in bytes. Only added to and removed from, which is atomic:
:func:`hand_over` may be called by the garbage collector, when this very thread could hold a lock."""


def in_event_loop() -> bool:
    """Return True if the calling thread runs an event loop, of asyncio or trio, which must not be blocked."""
    # Not ``asyncio.get_running_loop``: it raises without a running loop, which takes ten times as long.
    if _get_running_loop() is not None:
        return True
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_trio_token()
    except RuntimeError:
        return False
    return True


def closes_generator() -> bool:
    """Return True if the caller runs because a generator is being closed.

    The garbage collector may be closing it, in the middle of any other code. So nothing that runs then may take a lock
    or set a context variable. In CPython 3.11, a context variable that is set during ``ContextVar.set`` crashes the
    process.
    """
    return isinstance(sys.exception(), GeneratorExit)


def prepare() -> None:
    """Register the exit drain, so that :func:`hand_over` has nothing left to set up."""
    EXIT_DRAIN.add(_submit_held, "capture")
    EXIT_DRAIN.add(settle, "capture", _has_pending)
    EXIT_DRAIN.register()


def submit(
    pipeline: Pipeline, turn: Turn | Callable[[], Turn], context: TurnContext, *, computes_inline: bool = True
) -> PendingTurn:
    """Submit a turn, and wait for its inline scores within the budget unless this thread runs an event loop.

    Args:
        pipeline: receives the turn.
        turn: the turn, or a function that builds it on another thread.
        context: its sampling decision and its position in the trace.
        computes_inline: False if the turn certainly has no local scores.

    Returns:
        What a coroutine may await, for the rest of the budget.
    """
    pending = pipeline.submit(turn, context, computes_inline=computes_inline)
    if on_pool_thread():  # it must not wait for the pool; who has handed over the work may
        _this_thread.pending = pending
    elif computes_inline and not in_event_loop():
        pending.wait()
    return pending


def hand_over(
    function: Callable[..., Any], *args: Any, size: int = 0, on_full: Callable[[], object] = lambda: None
) -> Future[PendingTurn]:
    """Call a function soon, on another thread but in a copy of this context; :func:`settle` waits for it.

    Safe to call from a finalizer after :func:`prepare`: it takes no locks and sets no context variables. If too much
    waits already, the function is not called.

    Args:
        function: the work.
        args: its arguments.
        size: about how many bytes they take in memory.
        on_full: called instead, on this thread. It must be safe in a finalizer, too.

    Returns:
        Once the function has returned, what a caller may wait for: the turn that it has submitted.
    """
    future: Future[PendingTurn] = Future()
    if sys.is_finalizing():  # the threads are gone
        future.set_result(DONE)
        return future
    prepare()
    # A copy: another thread, or a finalizer on this one, may change the dictionary.
    sizes = list(_pending.values())
    if sizes and (len(sizes) >= _MOST_PENDING or sum(sizes) + size > _MOST_PENDING_BYTES):
        on_full()
        future.set_result(DONE)
        return future
    _pending[future] = size
    local_pool().submit(_call, future, function, args)
    return future


def _call(future: Future[PendingTurn], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    _this_thread.handed_over, _this_thread.pending = True, DONE
    try:
        function(*args)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(_this_thread.pending)
    finally:
        _this_thread.handed_over = False
        _pending.pop(future, None)


_this_thread = threading.local()


def _submit_held(_: float) -> None:
    held_turns().submit_all()


def _has_pending() -> bool:
    return bool(_pending)


def settle(timeout: float) -> bool:
    """Wait until everything that was handed over is done; returns False if that took longer than ``timeout`` s.

    It returns True at once if the caller was itself handed over, because it would wait for itself.
    """
    return getattr(_this_thread, "handed_over", False) or not wait(list(_pending), timeout).not_done


def flush(pipeline: Pipeline, timeout: float) -> bool:
    """Wait until every turn so far is evaluated and delivered; False if that took longer than ``timeout`` s."""
    end = time.monotonic() + timeout
    settled = settle(timeout)
    held_turns().submit_all(pipeline)
    return pipeline.flush(max(0.0, end - time.monotonic())) and settled


run_in_child(_pending.clear)
