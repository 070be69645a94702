"""Time limits for calls that nothing can interrupt: such a call runs on a daemon thread, which may be left behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from rageval_hooks.runtime.pool import local_pool
from rageval_hooks.runtime.threads import Signal, start_daemon_thread

T = TypeVar("T")


def remaining(deadline: float) -> float:
    """Return the seconds until a deadline on the monotonic clock, 0 if it has passed."""
    return max(0.0, deadline - time.monotonic())


def within(call: Callable[[], T], timeout: float) -> T:
    """Run a function on a new daemon thread and return its result.

    Raises:
        TimeoutError: it took longer than ``timeout`` seconds. It continues on its thread.
    """
    outcome: Future[T] = Future()
    done = Signal()  # a greenlet cannot wait for the future

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            done.set()

    try:
        start_daemon_thread(run, "rageval-limited")
    except RuntimeError:  # the interpreter is exiting, and Python 3.12 and later start no threads then
        local_pool().submit(run)
    if not done.wait(timeout):
        raise TimeoutError(f"no result within {timeout:.1f} seconds")
    return outcome.result()
