"""``asyncio.run`` that ends in order when the user presses Ctrl-C, on every Python."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_interruptible"]

T = TypeVar("T")

_BY_ASYNCIO: bool = sys.version_info >= (3, 11)  # annotated, so that type checkers read on


def run_interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end.

    An interruption cancels it, so that it closes what it holds, and a second one ends it at once, as
    :func:`asyncio.run` does since Python 3.11; before, the exception came up wherever the event loop happened to be,
    and could leave the coroutine unfinished. A handler that the application has for the signal stays.

    Raises:
        KeyboardInterrupt: the user interrupted it.
    """
    ours = threading.current_thread() is threading.main_thread()
    if _BY_ASYNCIO or not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return asyncio.run(main)
    return asyncio.run(_cancelled_by_the_user(main))


async def _cancelled_by_the_user(main: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    interruptions = 0

    def interrupt(*_: Any) -> None:
        nonlocal interruptions
        interruptions += 1
        if interruptions > 1 or task is None:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(task.cancel)

    signal.signal(signal.SIGINT, interrupt)
    try:
        found = await main
    except asyncio.CancelledError:
        if interruptions:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interruptions:
        raise KeyboardInterrupt
    return found
