"""Blocking calls that nothing can interrupt, with a deadline: they run on a daemon thread that may be left behind."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError

from rageval_hooks.runtime.executors import DaemonExecutor

__all__ = ["DeadlineThread", "remaining"]


class DeadlineThread:
    """One daemon thread for calls that may hang.

    Python 3.12 and later start no thread while the interpreter exits. :meth:`start` is therefore called early; without
    it, a first call during the exit runs on the caller's thread and cannot be bounded.

    Args:
        name: the thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._executor: DaemonExecutor | None = None
        _threads.add(self)

    def start(self) -> None:
        """Start the thread unless it runs."""
        if self._executor is None:
            self._executor = DaemonExecutor(1, self._name)

    def finish(self, function: Callable[[], object], timeout: float) -> bool:
        """Run a function and wait for it.

        Args:
            function: what to run. After the deadline it goes on in the background; if an earlier call still blocks the
                thread, it starts when that call returns.
            timeout: seconds.

        Returns:
            True if the function returned in time and did not return False.

        Raises:
            Exception: what the function raised before the deadline.
        """
        self.start()
        assert self._executor is not None  # noqa: S101 - for the type checker
        future = self._executor.submit(function)
        try:
            return future.result(max(0.0, timeout)) is not False
        except FutureTimeoutError:
            if future.done():  # the function itself raised a TimeoutError
                raise
            return False

    def _forget(self) -> None:
        self._executor = None


def remaining(deadline: float) -> float:
    """Return the seconds until a deadline on the monotonic clock, 0 if it has passed."""
    return max(0.0, deadline - time.monotonic())


_threads: weakref.WeakSet[DeadlineThread] = weakref.WeakSet()


def _forget_threads_of_the_parent() -> None:
    for thread in list(_threads):
        thread._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads_of_the_parent)
