"""Several things at a time, in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["work_together"]


async def work_together(worker: Callable[[], Coroutine[Any, Any, None]], number: int) -> None:
    """Run so many workers until all are done; if one fails, or this is cancelled, the others are cancelled.

    Args:
        worker: makes one; all take from the same place what there is to do.
        number: how many.
    """
    workers = [asyncio.ensure_future(worker()) for _ in range(number)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
