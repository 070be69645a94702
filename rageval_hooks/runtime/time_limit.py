"""Time limits for calls that nothing can interrupt: such a call runs on a daemon thread, which may be left behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from rageval_hooks.runtime.pool import local_pool
from rageval_hooks.runtime.threads import Signal, start_daemon_thread

__all__ = ["remaining", "within"]

T = TypeVar("T")


def remaining(deadline: float) -> float:
    """Return the seconds until a deadline on the monotonic clock, 0 if it has passed."""
    return max(0.0, deadline - time.monotonic())


def within(call: Callable[[], T], timeout: float) -> T:
    """Run a function on a new daemon thread and return its result.

    Raises:
        TimeoutError: it took longer than ``timeout`` seconds. It continues on its thread.
    """
    return _Outcome(call).wait(timeout)


class _Outcome(Generic[T]):
    """A call on a thread, and what it returned or raised once it has run."""

    def __init__(self, call: Callable[[], T]) -> None:
        self.done = Signal()
        self._call = call
        self._error: BaseException | None = None
        self._results: list[T] = []
        try:
            start_daemon_thread(self._run, "rageval-limited")
        except RuntimeError:  # the interpreter is exiting, and Python 3.12 and later start no threads then
            local_pool().submit(self._run)

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            self.done.set()

    def wait(self, timeout: float) -> T:
        if not self.done.wait(timeout):
            raise TimeoutError(f"no result within {timeout:.1f} seconds")
        if self._error is not None:
            raise self._error
        [result] = self._results
        return result
