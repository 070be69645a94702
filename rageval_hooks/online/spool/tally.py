"""The counters of a spool in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rageval_hooks.runtime.fork import ForkSafeLock, reset_in_child

__all__ = ["Tally"]


class Tally:
    """Counts by name. Safe to use from any thread; a forked child starts from zero."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start from zero."""
        self._counts: Counter[str] = Counter()

    def add(self, **amounts: int) -> None:
        """Change several counts at once, so that they add up at any moment. Amounts may be negative."""
        with self._lock.lock:
            for name, amount in amounts.items():
                self._counts[name] += amount

    def __getitem__(self, name: str) -> int:
        """Return a count."""
        return self._counts[name]

    def get(self, names: Iterable[str]) -> dict[str, int]:
        """Return several counts of the same moment."""
        with self._lock.lock:
            return {name: self._counts[name] for name in names}
