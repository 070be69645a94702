"""A cache bounded by memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from rageval_hooks.runtime.executors import ForkSafeLock

__all__ = ["MemoryCache"]

T = TypeVar("T")


class MemoryCache(Generic[T]):
    """Keeps the values that were used most recently. Thread-safe.

    Args:
        capacity: maximum size of all values together, in bytes; 0 disables the cache.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = ForkSafeLock()

    def get(self, key: Hashable) -> T | None:
        """Return the value of a key; None if it is not in the cache."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.misses += 1
                return None
            self.hits += 1
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

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._entries)
