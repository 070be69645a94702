"""``asyncio.run`` that ends in order when the user presses Ctrl-C, on every Python."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["run_interruptible"]

T = TypeVar("T")

_BY_ASYNCIO: bool = sys.version_info >= (3, 11)


def run_interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end.

    An interruption cancels it, so that it closes what it holds, as :func:`asyncio.run` does since Python 3.11; before,
    the exception came up wherever the event loop happened to be, and could leave the coroutine unfinished.

    Raises:
        KeyboardInterrupt: the user interrupted it.
    """
    if _BY_ASYNCIO or threading.current_thread() is not threading.main_thread():
        return asyncio.run(main)
    return asyncio.run(_cancelled_by_the_user(main))


async def _cancelled_by_the_user(main: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        if task is not None:
            task.cancel()

    with suppress(NotImplementedError):  # Windows: then as asyncio does it
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await main
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
