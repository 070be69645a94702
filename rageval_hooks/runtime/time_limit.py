"""Time limits for calls that nothing can interrupt: such a call runs on a daemon thread, which may be left behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

from rageval_hooks.runtime.executors import DaemonExecutor
from rageval_hooks.runtime.fork import reset_in_child, run_in_child
from rageval_hooks.runtime.threads import Signal, start_daemon_thread

__all__ = ["LimitedThread", "prepare_for_exit", "remaining", "within"]

T = TypeVar("T")

_RESERVED_THREADS = 4


def remaining(deadline: float) -> float:
    """Return the seconds until a deadline on the monotonic clock, 0 if it has passed."""
    return max(0.0, deadline - time.monotonic())


def within(call: Callable[[], T], timeout: float) -> T:
    """Run a function on a new daemon thread and return its result.

    Raises:
        TimeoutError: it took longer than ``timeout`` seconds. It continues on its thread.
    """
    outcome = _Outcome(call)
    try:
        start_daemon_thread(outcome.run, "rageval-limited")
    except RuntimeError:  # the interpreter is exiting, and Python 3.12 and later start no threads then
        _reserve().submit(outcome.run)
    return outcome.wait(timeout)


class LimitedThread:
    """One daemon thread for calls that may hang again and again, such as the flush of a provider.

    Unlike :func:`within`, a call that hangs delays the next call and does not add a thread.

    Python 3.12 and later start no thread while the interpreter exits. :meth:`start` is therefore called early; without
    it, a first call during the exit runs on the caller's thread and has no limit.

    Args:
        name: the thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._executor: DaemonExecutor | None = None
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget the parent's thread, which the child does not have."""
        self._executor = None

    def start(self) -> None:
        """Start the thread unless it runs."""
        self._running_executor()

    def within(self, call: Callable[[], T], timeout: float) -> T:
        """Run a function on the thread and return its result.

        Raises:
            TimeoutError: it took longer than ``timeout`` seconds, or an earlier call still blocks the thread. The
                function then runs to its end in the background.
        """
        outcome = _Outcome(call)
        self._running_executor().submit(outcome.run)
        return outcome.wait(timeout)

    def _running_executor(self) -> DaemonExecutor:
        if self._executor is None:
            self._executor = DaemonExecutor(1, self._name)
        return self._executor


class _Outcome(Generic[T]):
    """A call, and what it returned or raised once it has run."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = Signal()
        self._error: BaseException | None = None
        self._results: list[T] = []

    def run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self, timeout: float) -> T:
        if not self._done.wait(timeout):
            raise TimeoutError(f"no result within {timeout:.1f} seconds")
        if self._error is not None:
            raise self._error
        [result] = self._results
        return result


# A step of the exit may hang and may itself call `within`, so one thread would not be enough.
@cache
def _reserve() -> DaemonExecutor:
    return DaemonExecutor(_RESERVED_THREADS, "rageval-exit")


def prepare_for_exit() -> None:
    """Start the threads that :func:`within` uses once the interpreter exits. Call this before the exit."""
    if sys.version_info >= (3, 12):  # earlier versions start threads during the exit
        _reserve()


run_in_child(_reserve.cache_clear)
