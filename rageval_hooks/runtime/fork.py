"""What happens when a process forks: its threads are gone in the child, and locks that they held stay locked."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rageval_hooks.runtime.threads import current_thread_id

__all__ = ["Forkable", "delay_forks", "reset_in_child"]

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


_loading: set[int] = set()
"""The threads that are in :func:`delay_forks`, by id."""


@contextmanager
def delay_forks() -> Iterator[None]:
    """Make other threads that fork wait until this block ends, for at most 30 seconds.

    A thread that imports a module holds that module's lock. In a child that is forked meanwhile no thread releases
    the lock, and the first thread that imports the module waits forever. Libraries of models have such locks too.
    """
    thread = current_thread_id()
    _loading.add(thread)
    try:
        yield
    finally:
        _loading.discard(thread)


def _wait_for_loads() -> None:
    # A thread that forks while it loads something must not wait for itself.
    thread, end = current_thread_id(), time.monotonic() + _LONGEST_DELAY
    while _loading - {thread} and time.monotonic() < end:
        time.sleep(_POLL)


def _reset_all() -> None:
    _loading.clear()
    for instance in list(_objects):
        instance.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_loads, after_in_child=_reset_all)
