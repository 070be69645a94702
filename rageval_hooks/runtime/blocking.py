"""Blocking calls of other people's clients, beside the event loop."""

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
    """Threads for the calls of one judge; made at once, since none can be made while the interpreter exits.

    Why not the asynchronous methods of a model that has them: its connections belong to the event loop that used them
    first, often the application's, and are shared by all models of a process. On a second loop they break.

    Args:
        size: calls at the same time.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._executor = DaemonExecutor(self._size, "rageval-judge")
        finalizer = weakref.finalize(self, self._executor.shutdown)
        finalizer.atexit = False  # calls are still made then

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call, in the caller's context. One that is cancelled goes on by itself, and its result is dropped."""
        if self._pid != os.getpid():
            self._start()
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(copy_context().run, call))
