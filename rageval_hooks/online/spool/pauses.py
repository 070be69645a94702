"""Pauses that grow while something does not work: the judge, or the backends of the exporters."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Pause"]


class Pause:
    """A pause that doubles with each failure in a row.

    Args:
        shortest: seconds of the first pause.
        longest: seconds of the longest.
        clock: the monotonic clock, in seconds.
    """

    def __init__(self, shortest: float, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._shortest = shortest
        self._longest = longest
        self._clock = clock
        self._seconds = 0.0
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds until the pause ends; 0 without a pause."""
        return max(0.0, self._until - self._clock())

    @property
    def is_trial(self) -> bool:
        """True after a pause, until it is known whether it works again."""
        return self._seconds > 0 and not self.left

    def begin(self) -> bool:
        """Note a failure. Returns True if a pause begins; False if one was running."""
        if self.left:
            return False
        self._seconds = min(max(self._shortest, self._seconds * 2), self._longest)
        self._until = self._clock() + self._seconds
        return True

    def end(self) -> None:
        """Note that it works."""
        self._seconds = self._until = 0.0
