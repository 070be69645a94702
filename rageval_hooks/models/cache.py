"""A cache bounded by memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.threads import Signal, new_lock

T = TypeVar("T")

_POLL = 0.01
"""Seconds between two calls of ``pause`` while another thread computes a value."""


class MemoryCache(Generic[T]):
    """Keeps the values that were used most recently. Thread-safe.

    Args:
        capacity: maximum size of all values together, in bytes; 0 disables the cache.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Free the lock, and forget what other threads compute: they do not exist in a child."""
        self._lock = new_lock()
        self._in_progress: dict[Hashable, Signal] = {}

    def get(self, key: Hashable) -> T | None:
        """Return the value of a key; None if it is not in the cache."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Add a value. A value that is larger than the whole cache is not kept."""
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self.size -= old[1]
            if size > self.capacity:
                return
            self._entries[key] = (value, size)
            self.size += size
            while self.size > self.capacity:
                _, (_, freed) = self._entries.popitem(last=False)
                self.size -= freed

    def get_or_compute(
        self, key: Hashable, compute: Callable[[], tuple[T, int]], pause: Callable[[], None] = lambda: None
    ) -> T:
        """Return the value of a key; compute it if it is not in the cache and no other thread does so already.

        Args:
            key: the key.
            compute: returns the value and its size in bytes.
            pause: called again and again while another thread computes the value; what it raises ends the wait.
        """
        while True:
            found = self.get(key)
            if found is not None:
                return found
            own = Signal()
            with self._lock:
                other = self._in_progress.setdefault(key, own)
            if other is own:
                break
            # If the other thread fails, or its value is too large to keep, this one computes it.
            while not other.wait(_POLL):
                pause()
        try:
            value, size = compute()
            self.put(key, value, size)
            return value
        finally:
            with self._lock:
                self._in_progress.pop(key, None)
            own.set()
