"""Time and random numbers behind one class, so that tests of waiting do not have to wait."""

from __future__ import annotations

import asyncio
import time

from rageval_hooks.runtime.tracing.random_ids import RANDOM

__all__ = ["Clock"]


class Clock:
    """The real clock. Tests derive a clock that they control."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment. Never goes back."""
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
