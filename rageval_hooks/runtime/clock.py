"""Time and chance, in one place, so that tests of waiting need not wait."""

from __future__ import annotations

import asyncio
import time

from rageval_hooks.runtime.ids import RANDOM

__all__ = ["Clock"]


class Clock:
    """The real clock. Tests derive one that stands still."""

    def monotonic(self) -> float:
        """Return seconds since some moment; never goes back."""
        return time.monotonic()

    def time(self) -> float:
        """Return seconds since the epoch, for HTTP dates."""
        return time.time()

    def random(self) -> float:
        """Return a random number, 0 <= x < 1."""
        return RANDOM.random()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
