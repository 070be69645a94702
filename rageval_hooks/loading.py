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
    """

    def __init__(self, role: str, load: Callable[[], T], timeout: float) -> None:
        self.role = role
        self._load = load
        self._timeout = timeout
        self._value: T | None = None
        self._reset()
        _instances.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._started_at: float | None = None
        self._error: ModelUnavailableError | None = None
        self._logged = False

    def start(self) -> None:
        """Begin to load, unless that has begun."""
        with self._lock:
            if self._started_at is not None:
                return
            self._started_at = time.monotonic()
        threading.Thread(target=self._run, name=f"rageval-load-{self.role}", daemon=True).start()

    @property
    def state(self) -> LoadState:
        """How far it is. A load past its deadline counts as failed."""
        if self._value is not None:
            return "ready"
        if self._started_at is None:
            return "idle"
        if self._error is not None or time.monotonic() - self._started_at > self._timeout:
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
            self._done.wait(max(0.0, (self._started_at or 0.0) + self._timeout - time.monotonic()))
        value: T | None = self._value  # another thread may have set it meanwhile
        if value is not None:
            return value
        if self.state == "loading":
            raise ModelNotReadyError(self.role)
        raise self._failure()

    def _failure(self) -> ModelUnavailableError:
        error = self._error
        if error is None:
            error = ModelUnavailableError(self.role, f"loading took longer than {self._timeout:g} seconds")
            self._log(error)
        return error

    def _run(self) -> None:
        try:
            self._value = self._load()
        except ModelUnavailableError as error:
            self._error = error
        except BaseException as error:
            self._error = ModelUnavailableError(self.role, f"loading failed: {type(error).__name__}: {error}")
        finally:
            self._done.set()
        if self._error is not None:
            self._log(self._error)

    def _log(self, error: ModelUnavailableError) -> None:
        with self._lock:
            if self._logged:
                return
            self._logged = True
        _logger.warning("rageval-hooks: %s. Metrics that need it are skipped.", error)

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
