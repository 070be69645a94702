"""Blocking calls of third-party clients, outside the event loop."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from rageval_hooks.runtime.executors import DaemonExecutor

__all__ = ["CallThreads"]

T = TypeVar("T")


class CallThreads:
    """Threads for the calls of one judge. They start at once, because no thread can start while the interpreter exits.

    A model's own asynchronous methods are no alternative: their connections belong to the event loop that used them
    first, often the application's, and all models of a process share them. On a second loop they break.

    Args:
        size: the number of concurrent calls.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._executor = DaemonExecutor(self._size, "rageval-judge")
        finalizer = weakref.finalize(self, self._executor.shutdown)
        finalizer.atexit = False  # calls are still made during the exit

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call in the caller's context. A cancelled call continues on its thread; its result is dropped."""
        # Threads do not survive a fork.
        if self._pid != os.getpid():
            self._start()
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(copy_context().run, call))
