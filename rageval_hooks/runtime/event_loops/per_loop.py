"""One object per event loop: connections and semaphores belong to the loop that created them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import wait
from contextlib import suppress
from typing import Generic, TypeVar

from rageval_hooks.runtime.executors import ForkSafeLock

__all__ = ["PerLoop"]

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Creates an object for each event loop that asks for it, and closes the object when the loop ends.

    ``asyncio.run`` closes the asynchronous generators of its loop before the loop itself. One of these generators holds
    the object, so the object is closed inside its loop.

    Args:
        make: creates the object, inside the loop.
        close: closes the object, inside the loop; None if there is nothing to close.
    """

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]] | None = None) -> None:
        self._make = make
        self._close = close
        self._lock = ForkSafeLock()
        self._entries: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}
        self._pid = os.getpid()
        self._of_parent: object = None

    async def get(self) -> T:
        """Return the running loop's object."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._forget()
            if loop in self._entries:
                return self._entries[loop][0]
            thing = self._make()
            keeper = self._keep(loop, thing)
            self._entries[loop] = (thing, keeper)
        await anext(keeper)
        return thing

    async def aclose(self) -> None:
        """Close the running loop's object; the next :meth:`get` creates another."""
        with self._lock:
            _, keeper = self._entries.get(asyncio.get_running_loop(), (None, None))
        if keeper is not None:
            await keeper.aclose()

    def close(self, timeout: float) -> None:
        """Close the objects of the loops that run on other threads; the next :meth:`get` creates others.

        An object of the caller's own running loop stays open: waiting for it here would block that loop.

        Args:
            timeout: seconds to wait for all of them.
        """
        with self._lock:
            self._forget()
            keepers = {loop: keeper for loop, (_, keeper) in self._entries.items()}
        own = _running_loop()
        ends = []
        for loop, keeper in keepers.items():
            if loop is not own and loop.is_running():
                # The loop may end at this moment, and then closes its object itself.
                with suppress(RuntimeError):
                    ends.append(asyncio.run_coroutine_threadsafe(_end(keeper), loop))
        wait(ends, timeout)

    def things(self) -> list[T]:
        """Return the objects of all loops."""
        with self._lock:
            self._forget()
            return [thing for thing, _ in self._entries.values()]

    def _forget(self) -> None:
        if self._pid != os.getpid():
            # The parent's objects are kept but not used: closing them would close the parent's connections.
            self._of_parent, self._entries, self._pid = self._entries, {}, os.getpid()
        for loop in [loop for loop in self._entries if loop.is_closed()]:
            del self._entries[loop]

    async def _keep(self, loop: asyncio.AbstractEventLoop, thing: T) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            with self._lock:
                self._entries.pop(loop, None)
            if self._close is not None:
                await self._close(thing)


async def _end(keeper: AsyncGenerator[None, None]) -> None:
    await keeper.aclose()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
