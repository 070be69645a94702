"""A value that is loaded once, in the background, with a deadline."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

from rageval_hooks.errors import ModelNotReadyError, ModelUnavailableError

__all__ = ["BackgroundValue", "LoadState"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")

LoadState = Literal["idle", "loading", "ready", "failed"]


class BackgroundValue(Generic[T]):
    """Loads a value in a daemon thread of its own, at most once, and never makes a caller wait unasked.

    Args:
        role: what it is, for messages: ``"embedder"``.
        load: returns the value, or raises: ModelUnavailableError with a reason, or anything else.
        timeout: seconds after which a load that has not ended counts as failed. If it ends after all, its value is
            used from then on.
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
        _instances.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._started_at: float | None = None
        self._reason: str | None = None
        self._logged = False

    def start(self) -> None:
        """Begin to load, unless that has begun."""
        with self._lock:
            if self._started_at is not None:
                return
            self._started_at = time.monotonic()
        try:
            threading.Thread(target=self._run, name=f"rageval-load-{self.role}", daemon=True).start()
        except RuntimeError as error:  # no more threads, or the interpreter is about to exit
            self._logged = not threading.main_thread().is_alive()  # at exit nobody could do anything about it
            self._fail(f"loading failed: {error}")

    @property
    def state(self) -> LoadState:
        """How far it is. A load past its deadline counts as failed."""
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
            wait: wait for a load that is under way, until its deadline. Never do this on a request's thread.

        Raises:
            ModelNotReadyError: it is still loading (only without ``wait``).
            ModelUnavailableError: it cannot be had.
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
        # A new exception each time: one that is raised again and again keeps the frames of all its raisers alive.
        raise ModelUnavailableError(self.role, self._why_not())

    def _why_not(self) -> str:
        if self._reason is not None:
            return self._reason
        reason = f"loading took longer than {self._timeout:g} seconds"
        self._log(reason)
        return reason

    def _run(self) -> None:
        try:
            self._value = self._load()
        except ModelUnavailableError as error:
            self._fail(error.reason)
        except BaseException as error:
            self._fail(f"loading failed: {type(error).__name__}: {error}")
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
        _logger.warning("rageval-hooks: %s: %s. %s", self.role, reason.rstrip("."), self._otherwise)

    def _after_fork(self) -> None:
        if self._value is None:
            self._reset()  # the loading thread lives in the parent only
        else:
            self._lock = threading.Lock()


_instances: weakref.WeakSet[BackgroundValue[Any]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for instance in list(_instances):
        instance._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
