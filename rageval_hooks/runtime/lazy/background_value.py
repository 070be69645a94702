"""A value that is loaded once, in the background, with a deadline."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from rageval_hooks.errors import ModelNotReadyError, ModelUnavailableError
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import delay_forks, reset_in_child
from rageval_hooks.runtime.loading import is_abandoned, loading
from rageval_hooks.runtime.threads import Signal, new_lock, start_daemon_thread

__all__ = ["BackgroundValue", "LoadState"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")

LoadState = Literal["idle", "loading", "ready", "failed"]


class BackgroundValue(Generic[T]):
    """Loads a value on a separate daemon thread, at most once. Callers wait only if they ask to.

    Args:
        role: the value's name in messages, such as ``"embedder"``.
        load: returns the value, or raises ModelUnavailableError with a reason, or any other exception.
        timeout: seconds after which an unfinished load counts as failed. If it finishes later, its value is used from
            then on.
        otherwise: what happens without the value, for the log line.
    """

    def __init__(
        self, role: str, load: Callable[[], T], timeout: float, otherwise: str = "Metrics that need it are skipped."
    ) -> None:
        self.role = role
        self._load = load
        self._timeout = timeout
        self._otherwise = otherwise
        self._value: T | None = None
        self._reset()
        reset_in_child(self)

    def _reset(self) -> None:
        self._lock = new_lock()
        self._done = Signal()
        self._started_at: float | None = None
        self._reason: str | None = None
        self._retry_at = math.inf
        self._logged = False

    def start(self) -> None:
        """Start to load, unless the load has started. A failed load starts again when it is time for another try."""
        with self._lock:
            if time.monotonic() >= self._retry_at:
                self._reason, self._retry_at, self._done = None, math.inf, Signal()
            elif self._started_at is not None:
                return
            self._started_at = time.monotonic()
        EXIT_DRAIN.expect_load()
        try:
            start_daemon_thread(self._run, f"rageval-load-{self.role}")
        except RuntimeError as error:  # no more threads, or the interpreter is exiting
            self._logged = not threading.main_thread().is_alive()  # at exit a warning helps no one
            self._fail(f"loading failed: {error}")

    @property
    def state(self) -> LoadState:
        """The state of the load. A load past its deadline counts as failed."""
        if self._value is not None:
            return "ready"
        if self._started_at is None:
            return "idle"
        if self._reason is not None or time.monotonic() - self._started_at > self._timeout:
            return "failed"
        return "loading"

    def get(self, *, wait: bool = False) -> T:
        """Return the value.

        Args:
            wait: wait for the load until its deadline. Never do this on a request's thread.

        Raises:
            ModelNotReadyError: the value is still loading (only without ``wait``).
            ModelUnavailableError: the value cannot be loaded.
        """
        if self._value is not None:
            return self._value
        self.start()
        if wait:
            left = (self._started_at or 0.0) + self._timeout - time.monotonic()
            self._done.wait(min(max(0.0, left), threading.TIMEOUT_MAX))
        value: T | None = self._value  # another thread may have set it meanwhile
        if value is not None:
            return value
        if self.state == "loading" and not wait:
            raise ModelNotReadyError(self.role)
        # A new exception each time: raising the same one again and again keeps the frames of all callers alive.
        raise ModelUnavailableError(self.role, self._why_not())

    def _why_not(self) -> str:
        if self._reason is not None:
            return self._reason
        reason = f"loading took longer than {self._timeout:g} seconds"
        self._log(reason)
        return reason

    def _run(self) -> None:
        try:
            with delay_forks(), loading():
                self._value = self._load()
        except BaseException as error:
            self._logged |= is_abandoned()  # at exit a warning helps no one
            if isinstance(error, ModelUnavailableError) and error.retry_after is not None:
                self._retry_at = time.monotonic() + error.retry_after
            self._fail(_why_failed(error))
        else:
            self._done.set()

    def _fail(self, reason: str) -> None:
        self._reason = reason
        self._log(reason)
        self._done.set()

    def _log(self, reason: str) -> None:
        with self._lock:
            if self._logged:
                return
            self._logged = True
        _logger.warning("rageval-hooks: %s: %s. %s [RAGEVAL-203]", self.role, reason.rstrip("."), self._otherwise)

    def reset_after_fork(self) -> None:
        """Load again in the child if the load has not finished: its thread exists only in the parent."""
        if self._value is None:
            self._reset()
        else:
            self._lock = new_lock()


def _why_failed(error: BaseException) -> str:
    # Whatever the error is: it may be one of a thread pool that takes no more work. Python 3.12.0 to 3.12.2 start no
    # thread once the main thread has ended (python/cpython#113964).
    if is_abandoned() or "at interpreter shutdown" in str(error):
        return "the process ended before it was loaded: call flush(), or raise drain_timeout"
    if isinstance(error, ModelUnavailableError):
        return error.reason
    return f"loading failed: {type(error).__name__}: {error}"
