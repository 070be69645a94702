"""What a caller may wait for: a turn, or the check of a guard, that other threads work on."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from rageval_hooks.runtime.threads import Signal


class PendingTurn:
    """A turn whose evaluation has begun. Callers wait for it, or await it, until the budget is used up.

    Args:
        deadline: value of ``time.perf_counter()`` at which callers stop waiting.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._signal = Signal()

    @property
    def done(self) -> bool:
        """True once the inline results were handed to the exporters."""
        return self._signal.is_set()

    def finish(self) -> None:
        """Wake all who wait."""
        self._signal.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the evaluation, by default until the deadline. Returns False if that came first."""
        return self._signal.wait(self._left if timeout is None else timeout)

    def __await__(self) -> Generator[Any, None, bool]:
        """Wait in an event loop until the deadline. Cancelling the wait does not cancel the evaluation."""
        return self._signal.wait_async(self._left).__await__()

    @property
    def _left(self) -> float:
        return self.deadline - time.perf_counter()


DONE = PendingTurn(0.0)
"""A turn that needs no waiting."""
DONE.finish()
