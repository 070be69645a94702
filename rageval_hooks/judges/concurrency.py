"""Objects and threads that belong to one event loop, and the clock. All of them work in a forked child."""

from __future__ import annotations

import asyncio
import os
import random
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from rageval_hooks.runtime.fork import ForkSafeLock, delay_forks
from rageval_hooks.runtime.threads import SimpleQueue, start_daemon_thread

T = TypeVar("T")


class Clock:
    """The real clock. Tests derive a clock that they control."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment. Never goes back."""
        return time.monotonic()

    def time(self) -> float:
        """Return seconds since the epoch, for HTTP dates."""
        return time.time()

    def random(self) -> float:
        """Return a random number, 0 <= x < 1, that does not depend on the seed of the application."""
        return random.SystemRandom().random()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class PerLoop(Generic[T]):
    """Creates an object for each event loop that asks for it, and closes the object when the loop ends.

    Connections and semaphores belong to the loop that created them. ``asyncio.run`` closes the asynchronous generators
    of its loop before the loop itself. One of these generators holds the object, so it is closed inside its loop. A
    forked child creates its own objects: closing those of the parent would close the parent's connections.

    Args:
        make: creates the object, inside the loop.
        close: closes the object, inside the loop; None if there is nothing to close.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]] | None = None) -> None:
        self._make = make
        self._close = close
        self._lock = ForkSafeLock()
        self._entries: dict[tuple[int, asyncio.AbstractEventLoop], tuple[T, AsyncGenerator[None, None]]] = {}

    async def get(self) -> T:
        """Return the running loop's object."""
        key = os.getpid(), asyncio.get_running_loop()
        with self._lock:
            if key in self._entries:
                return self._entries[key][0]
        # Not inside the lock: creating a client takes a while, and belongs to this loop alone. A child that is forked
        # meanwhile would wait forever for the locks that a client library holds.
        with delay_forks():
            thing = self._make()
        keeper = self._keep(key, thing)
        with self._lock:
            self._forget()
            self._entries[key] = thing, keeper
        await anext(keeper)
        return thing

    async def aclose(self) -> None:
        """Close the running loop's object; the next :meth:`get` creates another."""
        with self._lock:
            _, keeper = self._entries.get((os.getpid(), asyncio.get_running_loop()), (None, None))
        if keeper is not None:
            await keeper.aclose()

    def close(self, timeout: float) -> None:
        """Close the objects of the loops that run on other threads; the next :meth:`get` creates others.

        An object of the caller's own running loop stays open: waiting for it here would block that loop.

        Args:
            timeout: seconds to wait for all of them.
        """
        with self._lock:
            entries = [(loop, keeper) for (pid, loop), (_, keeper) in self._entries.items() if pid == os.getpid()]
        own = None
        with suppress(RuntimeError):
            own = asyncio.get_running_loop()
        ends: list[Future[None]] = []
        for loop, keeper in entries:
            if loop is not own and loop.is_running():
                # The loop may end at this moment, and then closes its object itself.
                with suppress(RuntimeError):
                    ends.append(asyncio.run_coroutine_threadsafe(_end(keeper), loop))
        wait(ends, timeout)

    def things(self) -> list[T]:
        """Return the objects of all loops of this process."""
        with self._lock:
            self._forget()
            return [thing for (pid, _), (thing, _) in self._entries.items() if pid == os.getpid()]

    def _forget(self) -> None:
        """Drop the objects of loops that ended without closing their generators."""
        for key in [key for key in self._entries if key[0] == os.getpid() and key[1].is_closed()]:
            del self._entries[key]

    async def _keep(self, key: tuple[int, asyncio.AbstractEventLoop], thing: T) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            with self._lock:
                self._entries.pop(key, None)
            if self._close is not None:
                await self._close(thing)


async def _end(keeper: AsyncGenerator[None, None]) -> None:
    await keeper.aclose()


class CallThreads:
    """Daemon threads for the blocking calls of one judge.

    A model's own asynchronous methods are no alternative: their connections belong to the event loop that used them
    first, often the application's, and all models of a process share them. On a second loop they break. The threads
    start at once, because none can be started while the interpreter exits, and the last turns are judged then.

    Args:
        size: the number of concurrent calls.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._calls = SimpleQueue()
        for number in range(self._size):
            start_daemon_thread(partial(_work, self._calls), f"rageval-judge-{number}")
        weakref.finalize(self, _stop, self._calls, self._size).atexit = False

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call in the caller's context. A cancelled call continues on its thread; its result is dropped."""
        if self._pid != os.getpid():  # threads do not survive a fork
            self._start()
        future: Future[T] = Future()
        self._calls.put((future, copy_context().run, call))
        return await asyncio.wrap_future(future)


def _work(calls: Any) -> None:
    while (item := calls.get()) is not None:
        future, run, call = item
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(run(call))
            except BaseException as error:  # also SystemExit: it belongs to the caller, and must not end the thread
                future.set_exception(error)
        del item, future, run, call  # or the thread would keep them alive while it waits


def _stop(calls: Any, size: int) -> None:
    for _ in range(size):
        calls.put(None)
