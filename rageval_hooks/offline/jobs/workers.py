"""Concurrent workers in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["work_together"]


async def work_together(worker: Callable[[], Coroutine[Any, Any, None]], number: int) -> None:
    """Run workers until all are done. If one fails, or this is cancelled, the others are cancelled.

    Args:
        worker: makes a worker; all of them take their tasks from the same iterator.
        number: how many workers.
    """
    workers = [asyncio.ensure_future(worker()) for _ in range(number)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        # Cancelled tasks end here, before the event loop closes; their errors are those of the first.
        await asyncio.gather(*workers, return_exceptions=True)
