"""Operating-system threads, locks and signals, also in a process that gevent has patched.

gevent's ``monkey.patch_all()`` turns the threads of the standard library into greenlets of one thread. Our background
work must not be a greenlet: it would run its event loop inside the application's thread, where every other greenlet
would find that loop running. These functions therefore return the original primitives.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

__all__ = [
    "Lock",
    "Signal",
    "SimpleQueue",
    "current_thread_id",
    "give_way",
    "giving_way",
    "new_lock",
    "patched_by",
    "sleep",
    "start_daemon_thread",
    "wait_until",
]

_POLL = 0.002
"""Seconds between two checks of what is waited for."""

_LONGEST_HOLD = 0.0003
_PAUSE = 0.0002
"""Seconds that a background thread computes without a pause, and the length of the pause.

A thread that waits for the interpreter's lock gets it after 5 ms, if the thread that has it does not let it go before.
An application that streams an answer waits for the lock with every piece. A pause of no length would not do: the thread
would take the lock again before the one that waits for it is awake.
"""


class Lock(Protocol):
    """A mutual-exclusion lock."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock."""

    def release(self) -> None:
        """Give the lock back."""

    def __enter__(self) -> bool:
        """Take the lock."""

    def __exit__(self, *_: object) -> None:
        """Give the lock back."""


def patched_by() -> Literal["gevent", "eventlet"] | None:
    """Return which library has replaced the threads of the standard library in this process."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        return "gevent"
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        return "eventlet"
    return None


def _original(module: str, name: str) -> Any:
    if patched_by() == "gevent":
        return sys.modules["gevent.monkey"].get_original(module, name)
    return getattr(__import__(module), name)


def start_daemon_thread(target: Callable[[], object], name: str) -> None:
    """Start a thread that does not keep the process alive.

    Raises:
        RuntimeError: no thread can be started, for example because the interpreter is exiting.
    """
    # Python 3.11 would start it and wait forever for its first step, which never comes.
    if sys.is_finalizing():
        raise RuntimeError("the interpreter is exiting")
    if patched_by() == "gevent":
        _original("_thread", "start_new_thread")(target, ())
    else:
        threading.Thread(target=target, name=name, daemon=True).start()


def new_lock() -> Lock:
    """Return a lock. Hold it for moments only, and never switch greenlets while holding it."""
    return _original("_thread", "allocate_lock")()  # type: ignore[no-any-return]


def current_thread_id() -> int:
    """Return the id of the running operating-system thread."""
    return _original("_thread", "get_ident")()  # type: ignore[no-any-return]


def SimpleQueue() -> Any:  # noqa: N802 - stands for the class of the same name
    """Return an unbounded queue whose ``put`` may be called from a finalizer."""
    return _original("queue", "SimpleQueue")()


class Signal:
    """An event: some threads or greenlets wait until another thread sets it."""

    def __init__(self) -> None:
        self._is_set = False
        self._patched = patched_by() is not None
        self._event = None if self._patched else threading.Event()

    def set(self) -> None:
        """Wake all who wait, now and later."""
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def is_set(self) -> bool:
        """Return True once :meth:`set` was called."""
        return self._is_set

    def wait(self, timeout: float) -> bool:
        """Wait for the signal. Returns False if ``timeout`` seconds pass first."""
        if self._event is not None:
            return self._event.wait(max(0.0, timeout))
        # A blocking wait would stop all greenlets of this thread; the patched `sleep` switches to them.
        end = time.monotonic() + timeout
        while not self._is_set:
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_POLL, left))
        return True


def sleep(seconds: float) -> None:
    """Sleep on a thread of ours; do nothing if the time is not positive."""
    if seconds > 0:
        (_sleep if patched_by() is None else _original("time", "sleep"))(seconds)


def wait_until(condition: Callable[[], object], timeout: float) -> bool:
    """Wait on a thread of ours until a condition is true. Returns False if ``timeout`` seconds pass first."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= end:
            return False
        sleep(_POLL)
    return True


# Taken once: a test of the application may replace `time.sleep`, and count its calls.
_sleep = time.sleep


class _Background(threading.local):
    # When this thread last gave way, or began; None on threads of the application.
    since: float | None = None


_background = _Background()


@contextmanager
def giving_way() -> Iterator[None]:
    """Make :func:`give_way` effective on this thread: it computes for the background, next to an application."""
    _background.since = time.perf_counter()
    try:
        yield
    finally:
        _background.since = None


def give_way() -> None:
    """Let the application's threads run for a moment, if this is a background thread that did not for a while."""
    since = _background.since
    if since is None or time.perf_counter() - since < _LONGEST_HOLD:
        return
    sleep(_PAUSE)
    _background.since = time.perf_counter()
