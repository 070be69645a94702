"""Operating-system threads, locks and signals, also in a process that gevent has patched.

gevent's ``monkey.patch_all()`` turns the threads of the standard library into greenlets of one thread. Our background
work must not be a greenlet: it would run its event loop inside the application's thread, where every other greenlet
would find that loop running. These functions therefore return the original primitives.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from _thread import LockType
from collections.abc import Awaitable, Callable
from typing import Any, Literal

_POLL = 0.002
"""Seconds between two checks of what is waited for."""


def patched_by() -> Literal["gevent", "eventlet"] | None:
    """Return which library has replaced the threads of the standard library in this process."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        return "gevent"
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        return "eventlet"
    return None


def original(module: str, name: str) -> Any:
    """Return what the standard library has under a name, also where gevent has replaced it."""
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
        original("_thread", "start_new_thread")(target, ())
    else:
        threading.Thread(target=target, name=name, daemon=True).start()


def new_lock() -> LockType:
    """Return a lock. Hold it for moments only, and never switch greenlets while holding it."""
    return original("_thread", "allocate_lock")()  # type: ignore[no-any-return]


def current_thread_id() -> int:
    """Return the id of the running operating-system thread."""
    return original("_thread", "get_ident")()  # type: ignore[no-any-return]


# Taken once: a test of the application may replace `time.sleep`, and count its calls.
_sleep = time.sleep


def sleep(seconds: float) -> None:
    """Sleep on a thread of ours; do nothing if the time is not positive."""
    if seconds > 0:
        (_sleep if patched_by() is None else original("time", "sleep"))(seconds)


def wait_until(condition: Callable[[], object], timeout: float, poll: float = _POLL) -> bool:
    """Wait until a condition is true. Returns False if ``timeout`` seconds pass first."""
    end = time.monotonic() + timeout
    # The patched function lets other greenlets run meanwhile.
    pause = _sleep if patched_by() is None else time.sleep
    while not condition():
        if time.monotonic() >= end:
            return False
        pause(poll)
    return True


class Signal:
    """An event: threads, greenlets and coroutines wait until a thread sets it."""

    def __init__(self) -> None:
        self._is_set = False
        # A blocking wait would stop all greenlets of its thread.
        self._event = threading.Event() if patched_by() is None else None

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
            return self._event.wait(min(max(0.0, timeout), threading.TIMEOUT_MAX))
        return wait_until(self.is_set, timeout)

    async def wait_async(self, timeout: float, poll: float = _POLL) -> bool:
        """Wait in an event loop, of asyncio or trio. Returns False if ``timeout`` seconds pass first.

        Args:
            timeout: seconds.
            poll: seconds between two looks.
        """
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pause = sys.modules["trio"].sleep
        end = time.monotonic() + timeout
        while not self._is_set and (left := end - time.monotonic()) > 0:
            await pause(min(poll, left))
        return self._is_set
