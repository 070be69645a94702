"""After a fork, the child has no threads but its own, and locks that other threads held stay locked."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rageval_hooks.runtime.threads import current_thread_id

__all__ = ["Forkable", "delay_forks", "is_fork_waiting", "reset_in_child", "run_in_child"]

_LONGEST_DELAY = 30.0
"""Maximum time that a fork waits, in seconds."""
_POLL = 0.01


class Forkable(Protocol):
    """An object with state that a forked child must not inherit."""

    def reset_after_fork(self) -> None:
        """Replace locks and forget what only the parent's threads can finish."""


# One registration for all: `os.register_at_fork` has no way to take a registration back.
_objects: weakref.WeakSet[Forkable] = weakref.WeakSet()


def reset_in_child(instance: Forkable) -> None:
    """Call an object's ``reset_after_fork`` in each child that this process forks, as long as the object lives."""
    _objects.add(instance)


_busy: set[int] = set()
"""The threads that are in :func:`delay_forks`, by id."""

_forking: set[int] = set()
"""The threads that are about to fork, by id."""


@contextmanager
def delay_forks() -> Iterator[None]:
    """Make other threads that fork wait until this block ends, for at most 30 seconds.

    A thread that imports a module holds that module's lock. In a child that is forked meanwhile no thread releases
    the lock, and the first thread that imports the module waits forever. Libraries of models have such locks too.
    SQLite keeps what it knows of locked files in memory, which is wrong in a child.

    If another thread is forking, the block begins after the fork.
    """
    thread = current_thread_id()
    if thread in _busy:  # in another such block of this thread, which the fork waits for
        yield
        return
    _enter(thread)
    try:
        yield
    finally:
        _busy.discard(thread)


def is_fork_waiting() -> bool:
    """Return True if another thread waits to fork: a long block of :func:`delay_forks` should end soon."""
    return bool(_forking - {current_thread_id()})


def _enter(thread: int) -> None:
    end = time.monotonic() + _LONGEST_DELAY
    while True:
        # In this order: the forking thread notes itself first and then looks for us, so one of the two sees the other.
        _busy.add(thread)
        if not is_fork_waiting() or time.monotonic() >= end:
            return
        _busy.discard(thread)
        time.sleep(_POLL)


def _before_fork() -> None:
    # A thread that forks while it is in such a block must not wait for itself.
    thread, end = current_thread_id(), time.monotonic() + _LONGEST_DELAY
    _forking.add(thread)
    while _busy - {thread} and time.monotonic() < end:
        time.sleep(_POLL)


def _after_fork_in_parent() -> None:
    _forking.discard(current_thread_id())


def _reset_all() -> None:
    _busy.clear()
    _forking.clear()
    for instance in list(_objects):
        instance.reset_after_fork()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_reset_all)


def run_in_child(*functions: Callable[[], Any]) -> None:
    """Call functions in each child that this process forks, in this order.

    For caches of threads, which do not survive a fork: a child starts its own. If one raises, Python prints the error
    and calls the others.
    """
    if hasattr(os, "register_at_fork"):
        for function in functions:
            os.register_at_fork(after_in_child=function)
