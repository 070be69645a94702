"""Values that are made when they are first needed: models that load in the background, and cached attributes."""

from __future__ import annotations

import _thread
import importlib
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from rageval_hooks.errors import ModelNotReadyError, ModelUnavailableError
from rageval_hooks.runtime.fork import reset_in_child, run_in_child
from rageval_hooks.runtime.threads import Signal, new_lock, start_daemon_thread
from rageval_hooks.runtime.time_limit import remaining

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_POLL = 0.02

LoadState = Literal["idle", "loading", "ready", "failed"]

_FORKED = (
    "this process was forked while its parent imported the model's packages: fork before the first turn, or once "
    "handle.stats()['models'] says that the model is ready"
)

_ENDED = "the process ended before it was loaded: call flush(), or raise drain_timeout"

_loading: dict[int, bool] = {}
"""The loads that are in progress, by the id of their value, and whether they are of models."""

_loads_end = threading.Event()


def is_loading() -> bool:
    """Return True if a model is being loaded."""
    return any(list(_loading.values()))


def stop_loads() -> None:
    """Begin no more loads: the process ends."""
    _loads_end.set()


class BackgroundValue(Generic[T]):
    """Loads a value on a separate daemon thread, at most once. Callers wait only if they ask to.

    Args:
        role: the value's name in messages, such as ``"embedder"``.
        load: returns the value, or raises ModelUnavailableError with a reason, or any other exception.
        timeout: seconds after which an unfinished load counts as failed. If it finishes later, its value is used from
            then on.
        otherwise: what happens without the value, for the log line; None for a model, whose metrics are skipped. The
            exit waits for models: their packages abort a process that ends meanwhile.
    """

    def __init__(self, role: str, load: Callable[[], T], timeout: float, otherwise: str | None = None) -> None:
        self.role = role
        self._load = load
        self._timeout = timeout
        self._is_model = otherwise is None
        self._otherwise = otherwise or "Metrics that need it are skipped."
        self._value: T | None = None
        self._reset()
        reset_in_child(self)

    def _reset(self) -> None:
        self._lock = new_lock()
        self._done = Signal()
        self._deadline: float | None = None
        self._reason: str | None = None
        self._retry_at = math.inf
        self._logged = False

    def start(self) -> None:
        """Start to load, unless the load has started. A failed load starts again when it is time for another try."""
        with self._lock:
            if self._deadline is not None and time.monotonic() < self._retry_at:
                return
            self._reason, self._retry_at, self._done = None, math.inf, Signal()
            self._deadline = time.monotonic() + self._timeout
        _loading[id(self)] = self._is_model
        # Asked after the load was counted: who stops them looks at the counts afterwards.
        if _loads_end.is_set():
            self._fail(_ENDED)
            return
        try:
            start_daemon_thread(self._run, f"rageval-load-{self.role}")
        except RuntimeError as error:  # no more threads, or the interpreter is exiting
            self._fail(f"loading failed: {error}")

    @property
    def state(self) -> LoadState:
        """The state of the load. A load past its deadline counts as failed; one that may be tried again is idle."""
        if self._value is not None:
            return "ready"
        if self._deadline is None or time.monotonic() >= self._retry_at:
            return "idle"
        return "failed" if self._reason is not None or not remaining(self._deadline) else "loading"

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
            self._done.wait(remaining(self._deadline or 0.0))
        value: T | None = self._value  # another thread may have set it meanwhile
        if value is not None:
            return value
        if self.state == "loading" and not wait:
            raise ModelNotReadyError(self.role)
        reason = self._reason or f"loading took longer than {self._timeout:g} seconds"
        self._log(reason)
        # A new exception each time: raising the same one again and again keeps the frames of all callers alive.
        raise ModelUnavailableError(self.role, reason)

    async def settled(self) -> None:
        """Wait until the value is loaded, or cannot be."""
        self.start()
        if self.state == "loading":
            await self._done.wait_async(remaining(self._deadline or 0.0), _POLL)

    def _run(self) -> None:
        # PyTorch's companions import this module, which is not possible any more once the main thread has ended.
        with suppress(RuntimeError):
            import concurrent.futures.process  # noqa: F401
        reason = None
        try:
            self._value = self._load()
        except BaseException as error:
            reason = f"loading failed: {type(error).__name__}: {error}"
            if isinstance(error, ModelUnavailableError):
                reason = error.reason
                self._retry_at = math.inf if error.retry_after is None else time.monotonic() + error.retry_after
        # Not before the exception is gone: its frames hold tensors, and the exit goes on once the load is over.
        if reason is not None:
            self._fail(reason)
        _loading.pop(id(self), None)
        self._done.set()

    def _fail(self, reason: str) -> None:
        # Whatever the error is: at exit it may be one of a thread pool that takes no more work. No warning helps then.
        if not threading.main_thread().is_alive():
            reason, self._logged = _ENDED, True
        self._reason = reason
        self._log(reason)
        _loading.pop(id(self), None)
        self._done.set()

    def _log(self, reason: str) -> None:
        with self._lock:
            is_logged, self._logged = self._logged, True
        if not is_logged:
            # Without a model there are no scores; without anything else, numbers are less exact.
            level = logging.WARNING if self._is_model else logging.INFO
            _logger.log(
                level, "rageval-hooks: %s: %s. %s [RAGEVAL-203]", self.role, reason.rstrip("."), self._otherwise
            )

    def reset_after_fork(self) -> None:
        """Load again in the child if the load has not finished: its thread exists only in the parent.

        Not if the parent was importing something: packages such as PyTorch break when half of them is imported again.
        """
        if self._value is not None:
            self._lock = new_lock()
            return
        was_loading = _loading.pop(id(self), None) is not None
        self._reset()
        if was_loading and _has_half_imports and self._is_model:
            self._deadline = time.monotonic()
            self._fail(_FORKED)


_has_half_imports = False


def _forget_half_imports() -> None:
    """Forget the modules whose import another thread of the parent had begun.

    A child that imports such a module, for a model or for its own purposes, would wait forever for the lock of a thread
    that it does not have.
    """
    global _has_half_imports
    _has_half_imports = False
    if not _loading:
        return
    # Private parts of importlib, the same in Python 3.11 to 3.14.
    with suppress(AttributeError):
        locks = importlib._bootstrap._module_locks  # type: ignore[attr-defined]
        for name, reference in list(locks.items()):
            lock = reference()
            if lock is not None and lock.owner not in (None, _thread.get_ident()):
                _has_half_imports = True
                locks.pop(name, None)
                sys.modules.pop(name, None)


run_in_child(_forget_half_imports)


if TYPE_CHECKING:
    from functools import cached_property as cached_property  # noqa: TID251 - its type
else:

    class cached_property(Generic[T]):  # noqa: N801 - replaces the class of the same name
        """Computes an attribute once per instance.

        Up to Python 3.11, ``functools.cached_property`` holds one lock for all instances of a class while it computes.
        The scores of one turn would wait for the passes of another one, and a child that is forked meanwhile forever.
        """

        def __init__(self, compute: Callable[[Any], T]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            # The instance's own attribute hides this descriptor from now on.
            value = instance.__dict__[self._name] = self._compute(instance)
            return value
