"""Forks. A child has no threads but its own, and locks that other threads held stay locked.

Everything that a child must replace (threads, locks, queues, connections) registers here with :func:`reset_in_child`.
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rageval_hooks.runtime.threads import current_thread_id, new_lock, sleep

_logger = logging.getLogger(__name__)

_MAX_DELAY = 0.09
"""Seconds that a fork waits for us, at most."""
_POLL = 0.002


class Forkable(Protocol):
    """An object with state that a forked child must not inherit."""

    def reset_after_fork(self) -> None:
        """Replace locks and forget what only the parent's threads can finish."""


# One registration for all: `os.register_at_fork` has no way to take a registration back.
_objects: weakref.WeakSet[Forkable] = weakref.WeakSet()
_functions: list[Callable[[], Any]] = []

_busy: set[int] = set()
"""The threads that are in :func:`delay_forks`, by id."""

_forking: set[int] = set()
"""The threads that are about to fork, by id."""


def reset_in_child(instance: Forkable) -> None:
    """Call an object's ``reset_after_fork`` in each child that this process forks, as long as the object lives."""
    _objects.add(instance)


def run_in_child(*functions: Callable[[], Any]) -> None:
    """Call functions in each child that this process forks, before the methods of objects."""
    _functions.extend(functions)


class ForkSafeLock:
    """A lock that is free in a forked child, even if a thread of the parent held it.

    Without it, a child that is forked while a background thread counts something waits forever when it counts.

    Attributes:
        lock: the lock of this process. ``with self.lock:`` takes a third of the time of ``with self:``.
    """

    def __init__(self) -> None:
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Replace the lock: the thread that held it does not exist in the child."""
        self.lock = new_lock()

    def __enter__(self) -> None:
        """Take the lock."""
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self.lock.release()


@contextmanager
def delay_forks() -> Iterator[None]:
    """Make other threads that fork wait until this block ends, for at most a tenth of a second.

    For short work that leaves a child broken if a fork cuts it: SQLite keeps what it knows of locked files in memory,
    which is wrong in a child; a client library that is being set up holds its locks. If another thread is forking, the
    block begins after the fork.
    """
    thread = current_thread_id()
    if thread in _busy:  # in another such block of this thread, which the fork waits for
        yield
        return
    end = time.monotonic() + _MAX_DELAY
    while True:
        # In this order: the forking thread notes itself first and then looks for us, so one of the two sees the other.
        _busy.add(thread)
        if not is_fork_waiting() or time.monotonic() >= end:
            break
        _busy.discard(thread)
        sleep(_POLL)
    try:
        yield
    finally:
        _busy.discard(thread)


def is_fork_waiting() -> bool:
    """Return True if another thread waits to fork: a long block of :func:`delay_forks` should end soon."""
    return bool(_forking - {current_thread_id()})


def _before_fork() -> None:
    # A thread that forks while it is in such a block must not wait for itself.
    thread, end = current_thread_id(), time.monotonic() + _MAX_DELAY
    _forking.add(thread)
    while _busy - {thread} and time.monotonic() < end:
        sleep(_POLL)


def _after_fork_in_parent() -> None:
    _forking.discard(current_thread_id())


def _after_fork_in_child() -> None:
    _busy.clear()
    _forking.clear()
    for function in (*_functions, *(instance.reset_after_fork for instance in list(_objects))):
        try:
            function()
        except Exception:  # the others must run all the same
            _logger.exception("rageval-hooks: something could not be reset in a forked process [RAGEVAL-220]")


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
