"""Objects that belong to one event loop, such as connections. They work in a forked child."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import wait
from contextlib import suppress
from typing import Generic, TypeVar

from rageval_hooks.runtime.fork import ForkSafeLock, delay_forks

T = TypeVar("T")


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
            # Loops that ended without closing their generators.
            for old in [old for old in self._entries if old[0] == key[0] and old[1].is_closed()]:
                del self._entries[old]
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

        Args:
            timeout: seconds to wait for all of them.
        """
        with self._lock:
            entries = [(loop, keeper) for (pid, loop), (_, keeper) in self._entries.items() if pid == os.getpid()]
        own = asyncio._get_running_loop()  # waiting for the caller's own loop would block it
        ends = []
        for loop, keeper in entries:
            if loop is not own and loop.is_running():
                # The loop may end at this moment, and then closes its object itself.
                with suppress(RuntimeError):
                    ends.append(asyncio.run_coroutine_threadsafe(_end(keeper), loop))
        wait(ends, timeout)

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
