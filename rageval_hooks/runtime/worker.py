"""The background thread: one daemon thread with one event loop, bounded queues, counted drops, a drain at exit."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVar

from rageval_hooks.runtime.executors import DaemonExecutor

__all__ = ["Lane", "Worker", "shared_worker"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")

Job = Callable[[], "Coroutine[Any, Any, None] | None"]
Close = Callable[[float], object]
"""Releases something within so many seconds."""

_LINGER = 0.25
"""Seconds from a batch's first job to its work, and from look to look while there is some: fewer wake-ups, and less
contention with requests, which come in bursts."""

_PAUSE = 0.0001
"""Seconds between two jobs of a batch: a request's thread that waits for the interpreter's lock gets it then. Without
that it would wait for the 5 ms that Python grants a thread, each time it has given the lock away."""

_MANY = 500
"""Pending jobs from which on there are no pauses."""

_DRAIN_TIMEOUT = 10.0

_DRAIN_SHARE = 0.75
"""Share of the drain timeout that pending jobs get. The rest is for exporters, which then send what is computed."""

_LOOKS = 5
"""How often it looks for jobs in vain, after so many seconds each, before it waits to be woken: waking a thread costs
who does it more than handing over the job."""


class Lane:
    """A bounded queue of the worker, with its counters.

    Args:
        name: for log lines and statistics.
        capacity: jobs that may be waiting or running.
    """

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.pending = 0
        self.accepted = 0
        self.dropped = 0
        self.failed = 0

    def stats(self) -> dict[str, int]:
        """Return the counters."""
        return {
            "pending": self.pending,
            "accepted": self.accepted,
            "dropped": self.dropped,
            "failed": self.failed,
        }


class Worker:
    """Runs jobs on one daemon thread, in the order in which they come.

    A job is a function; if it returns a coroutine, that runs as a task beside the others. Exceptions are logged and
    counted. The thread starts with the first job; after a fork the child has an empty queue and starts its own.

    Args:
        name: the thread's name.
        drain_timeout: seconds that the interpreter's exit takes at most for pending jobs and for closing.
    """

    def __init__(self, name: str = "rageval", drain_timeout: float | None = None) -> None:
        self.name = name
        self._drain_timeout = drain_timeout
        self.lanes: weakref.WeakSet[Lane] = weakref.WeakSet()
        self._reset()
        if hasattr(os, "register_at_fork"):
            method = weakref.WeakMethod(self._reset)
            os.register_at_fork(after_in_child=lambda: (reset := method()) and reset())

    def _reset(self) -> None:
        self._jobs: deque[tuple[Lane, Job]] = deque()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._pending = 0
        self._signalled = False
        self._hurry = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._exit_registered = False
        self._provider: object = None
        self._closing: dict[Close, None] = getattr(self, "_closing", {})
        for lane in list(getattr(self, "lanes", ())):
            lane.pending = 0

    @property
    def drain_timeout(self) -> float:
        """Seconds that the exit takes at most: the longest that was asked for, else 10."""
        return _DRAIN_TIMEOUT if self._drain_timeout is None else self._drain_timeout

    def extend_drain(self, seconds: float) -> None:
        """Let the exit take up to so many seconds; the longest request counts."""
        self._drain_timeout = max(self._drain_timeout or 0.0, seconds)

    def submit(self, lane: Lane, job: Job) -> bool:
        """Queue a job; returns False, and counts, if the lane is full."""
        with self._lock:
            if lane.pending >= lane.capacity:
                lane.dropped += 1
                return False
            if not lane.accepted:
                self.lanes.add(lane)
            lane.pending += 1
            lane.accepted += 1
            self._pending += 1
            self._jobs.append((lane, job))
            try:
                if not self._signalled:
                    self._signalled = True
                    loop = self._loop or self._start()
                    loop.call_soon_threadsafe(self._wake, context=Context())  # not that of the request
            except RuntimeError:
                alone = True
            else:
                alone = False
        if alone:
            self._run_here()
        elif _is_exiting():
            self.flush(self.drain_timeout)  # the drain may have been, or may never come
        return True

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing is pending; returns False if that took longer than ``timeout`` seconds."""
        if threading.current_thread() is self._thread:
            return False
        with self._lock:
            if self._pending == 0:
                return True
            self._hurry = True
            loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._drain, context=Context())
        try:
            with self._idle:
                return self._idle.wait_for(lambda: self._pending == 0, timeout)
        finally:
            self._hurry = False

    def drain_before(self, provider: object) -> None:
        """Make the drain at exit run before a tracer provider shuts down.

        Exit handlers run last-in first-out: the drain is registered anew whenever the provider is another one.
        """
        if provider is not self._provider or not self._exit_registered:
            self._provider = provider
            atexit.unregister(self._at_exit)
            atexit.register(self._at_exit)
            self._exit_registered = True

    def close_at_exit(self, close: Close, wanted: bool = True) -> None:
        """Register a function that is called at exit, after the drain, with the seconds that are left; or remove it."""
        with self._lock:
            if wanted:
                self._closing[close] = None
            else:
                self._closing.pop(close, None)

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine on the event loop, for a caller who waits for its result on another thread."""
        with self._lock:
            loop = self._loop or self._start()
        return asyncio.run_coroutine_threadsafe(make(), loop)

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function beside the event loop; only for coroutines of this worker."""
        return await asyncio.get_running_loop().run_in_executor(None, function)

    # -- on the request's thread, under the lock

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = self._new_loop()
        if not self._exit_registered:
            self.drain_before(self._provider)
        thread = threading.Thread(target=self._run, args=(loop,), name=self.name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        self._loop, self._thread = loop, thread
        return loop

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        loop = Context().run(asyncio.new_event_loop)  # it would keep the request's context for ever
        loop.set_default_executor(DaemonExecutor(2, f"{self.name}-compute"))
        return loop

    # -- at exit, when no thread can be started any more

    def _run_here(self) -> None:
        """Do what is queued on this thread, and what follows from it."""
        loop = self._loop = self._new_loop()
        try:
            loop.run_until_complete(asyncio.wait_for(self._run_all(), self.drain_timeout))
        except Exception:
            _logger.warning("rageval-hooks: %d background jobs are undone at exit", self._pending, exc_info=True)
        finally:
            self._loop = None
            self._signalled = False
            loop.close()

    async def _run_all(self) -> None:
        self._drain()
        while self._tasks:
            await asyncio.wait(self._tasks)
            self._drain()

    # -- on the background thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def _wake(self) -> None:
        if self._hurry:
            self._drain()
        self._look_again(_LOOKS)

    def _look_again(self, looks: int) -> None:
        asyncio.get_running_loop().call_later(_LINGER, self._look, looks)

    def _look(self, looks: int) -> None:
        """Do what has come; look again after a while, unless nothing has come several times in a row."""
        looks = _LOOKS if self._drain() else looks - 1
        with self._lock:
            if looks <= 0 and not self._jobs:
                self._signalled = False
                return
        self._look_again(looks)

    def _drain(self) -> bool:
        """Do what is queued; returns whether there was anything."""
        found = False
        while True:
            with self._lock:
                if not self._jobs:
                    return found
                lane, job = self._jobs.popleft()
            found = True
            self._perform(lane, job)
            if not self._hurry and self._pending < _MANY:
                time.sleep(_PAUSE)

    def _perform(self, lane: Lane, job: Job) -> None:
        try:
            coroutine = job()
        except BaseException:  # whatever it was, the thread goes on
            self._failed(lane)
        else:
            if coroutine is not None:
                task = asyncio.get_running_loop().create_task(self._follow(lane, coroutine))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return
        self._finished(lane)

    async def _follow(self, lane: Lane, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception:
            self._failed(lane)
        finally:
            self._finished(lane)

    def _failed(self, lane: Lane) -> None:
        lane.failed += 1
        _logger.exception("rageval-hooks: a background job (%s) failed", lane.name)

    def _finished(self, lane: Lane) -> None:
        with self._idle:
            lane.pending -= 1
            self._pending -= 1
            if self._pending == 0:
                self._idle.notify_all()

    # -- at exit

    def _at_exit(self) -> None:
        started = time.monotonic()
        deadline = started + self.drain_timeout
        share = _DRAIN_SHARE if self._closing else 1.0
        if not self.flush(self.drain_timeout * share):
            _logger.warning(
                "rageval-hooks: the interpreter exits with %d background jobs undone after %.1f seconds",
                self._pending,
                time.monotonic() - started,
            )
        for close in list(self._closing):
            try:
                close(max(0.0, deadline - time.monotonic()))
            except Exception:
                _logger.warning("rageval-hooks: an exporter could not be shut down", exc_info=True)


def _is_exiting() -> bool:
    """Whether this is the main thread, after its program has ended: in an exit handler."""
    main = threading.main_thread()
    return not main.is_alive() and threading.current_thread() is main


_SHARED = Worker()


def shared_worker() -> Worker:
    """Return the process's one worker."""
    return _SHARED
