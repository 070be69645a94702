"""The background thread: one daemon thread with one event loop, bounded queues and counted drops."""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVar

from rageval_hooks.runtime.at_exit import EXIT_DRAIN, is_multiprocessing_child
from rageval_hooks.runtime.executors import DaemonExecutor
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.runtime.threads import Signal, current_thread_id, new_lock, sleep, start_daemon_thread

__all__ = ["Lane", "Worker", "shared_worker"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")

Work = Callable[[], "Coroutine[Any, Any, None] | None"]

_LINGER = 0.25
"""Seconds from the first work of a batch until it runs, and between two checks while there is some. Requests come in
bursts: fewer wake-ups, and less contention with them."""

_POLL = 0.005
"""Seconds between two checks for work at exit, when no thread can be started."""

_PAUSE = 0.0001
"""Seconds between two pieces of work of a batch, so that a waiting request thread gets the interpreter's lock. Without
the pause it would wait for the 5 ms that Python grants a thread."""

_MANY = 5_000
"""With this many pieces of pending work, skip the pause between them: half of what the export queue holds before it
drops."""

_EMPTY_CHECKS = 5
"""Checks that find nothing before the thread waits to be woken: waking a thread costs the caller more than handing over
the work."""


class Lane:
    """A bounded queue of the worker, with its counters.

    Args:
        name: for log lines and statistics.
        capacity: pieces of work that may be waiting or running.
        max_bytes: their size. One piece of work is always taken, whatever its size.
    """

    def __init__(self, name: str, capacity: int, max_bytes: float = math.inf) -> None:
        self.name = name
        self.capacity = capacity
        self.max_bytes = max_bytes
        self.pending = 0
        self.pending_bytes = 0
        self.dropped_by_size = 0
        self.accepted = 0
        self.dropped = 0
        self.failed = 0

    def stats(self) -> dict[str, int]:
        """Return the counters. ``dropped`` is the number of all drops, ``dropped_by_size`` of those by size."""
        return {
            "pending": self.pending,
            "pending_bytes": self.pending_bytes,
            "accepted": self.accepted,
            "dropped": self.dropped,
            "dropped_by_size": self.dropped_by_size,
            "failed": self.failed,
        }

    def add(self, size: int) -> bool:
        """Count a piece of work. Returns False if there is no room for it; the worker's lock is held."""
        is_too_large = self.pending > 0 and self.pending_bytes + size > self.max_bytes
        if self.pending >= self.capacity or is_too_large:
            self.dropped += 1
            self.dropped_by_size += self.pending < self.capacity
            return False
        self.pending += 1
        self.pending_bytes += size
        self.accepted += 1
        return True

    def remove(self, size: int) -> None:
        """Count a piece of work that has ended; the worker's lock is held."""
        self.pending -= 1
        self.pending_bytes -= size


class Worker:
    """Runs work on one daemon thread, in the order in which it was submitted.

    A piece of work is a function; if it returns a coroutine, that runs as a concurrent task. Exceptions are
    logged and counted. The thread starts with the first work. A forked child has an empty queue and starts its own
    thread. Pending work is finished when the process ends; see :class:`rageval_hooks.runtime.at_exit.ExitDrain`.

    Args:
        name: the thread's name.
    """

    def __init__(self, name: str = "rageval") -> None:
        self.name = name
        self.lanes: weakref.WeakSet[Lane] = weakref.WeakSet()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget everything that is pending: it belongs to the parent."""
        self._queue: deque[tuple[Lane, Work, int]] = deque()
        self._lock = new_lock()
        self._idle: set[Signal] = set()
        self._pending = 0
        self._wake_sent = False
        self._flushes = 0
        self._started = False
        self._thread_id: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_ready = Signal()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_run_here = False
        for lane in list(self.lanes):
            lane.pending = lane.pending_bytes = 0

    def submit(self, lane: Lane, work: Work, size: int = 0) -> bool:
        """Queue work. Returns False, and counts, if the lane is full.

        Args:
            lane: the lane.
            work: a function.
            size: bytes that the work keeps in memory.
        """
        EXIT_DRAIN.add(self.drain, "evaluate", self.has_work)
        EXIT_DRAIN.register()
        with self._lock:
            if not lane.add(size):
                PROCESS_TOTALS.add_dropped(lane.name)
                return False
            if lane.accepted == 1:
                self.lanes.add(lane)
                PROCESS_TOTALS.watch(lane)
            self._pending += 1
            self._queue.append((lane, work, size))
            runs_here = not self._start() and not self._is_run_here
            self._is_run_here = self._is_run_here or runs_here
            # The thread that does the work at exit looks for more by itself.
            wake = not self._wake_sent and not self._is_run_here
            self._wake_sent = True
            loop = self._loop
        if runs_here:
            self._run_here()
            return True
        if wake and loop is not None:
            loop.call_soon_threadsafe(self._on_wake, context=Context())  # not in the request's context
        return True

    def has_work(self) -> bool:
        """Return True if something waits or runs."""
        return self._pending > 0

    def flush(self, timeout: float) -> bool:
        """Wait until nothing is pending. Returns False if ``timeout`` seconds pass first."""
        if current_thread_id() == self._thread_id:
            return False  # it would wait for itself
        idle = Signal()
        with self._lock:
            if self._pending == 0:
                return True
            self._idle.add(idle)
            self._flushes += 1
            loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._run_queue, context=Context())
        try:
            return idle.wait(timeout)
        finally:
            with self._lock:
                self._idle.discard(idle)
                self._flushes -= 1

    def drain(self, timeout: float) -> bool:
        """Flush at exit; log what could not be finished."""
        if self.flush(timeout):
            return True
        _logger.warning(
            "rageval-hooks: the interpreter exits with %d background jobs undone after %.1f seconds [RAGEVAL-601]",
            self._pending,
            timeout,
        )
        return False

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine on the event loop, for a caller that waits for its result on another thread.

        Raises:
            RuntimeError: the thread cannot be started.
        """
        with self._lock:
            if not self._start():
                raise RuntimeError("the background thread cannot be started")
        if not self._loop_ready.wait(_START_SECONDS) or self._loop is None:
            raise RuntimeError("the background thread has not started")
        return asyncio.run_coroutine_threadsafe(make(), self._loop)

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function outside the event loop; only for coroutines of this worker."""
        return await asyncio.get_running_loop().run_in_executor(None, function)

    # -- on the caller's thread, under the lock

    def _start(self) -> bool:
        """Start the thread unless it runs. Returns False if no thread can be started any more."""
        if self._started:
            return True
        try:
            start_daemon_thread(self._run, self.name)
        except RuntimeError:
            return False
        self._started = True
        return True

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        loop = Context().run(asyncio.new_event_loop)  # or the loop would keep the caller's context alive
        loop.set_default_executor(DaemonExecutor(2, f"{self.name}-compute"))
        return loop

    # -- at exit, when no thread can be started any more

    def _run_here(self) -> None:
        """Do what is queued on this thread, and what follows from it."""
        loop = self._loop = self._new_loop()
        try:
            loop.run_until_complete(asyncio.wait_for(self._run_all(), EXIT_DRAIN.timeout))
        except Exception:
            undone = self._pending
            _logger.warning("rageval-hooks: %d background jobs are undone at exit [RAGEVAL-602]", undone, exc_info=True)
        finally:
            with self._lock:
                self._is_run_here = self._wake_sent = False
                self._loop = None
            loop.close()

    async def _run_all(self) -> None:
        while True:
            self._run_queue()
            with self._lock:
                if not self._queue and not self._tasks:
                    # From here on, a thread that submits work runs it.
                    self._is_run_here = False
                    return
            # Work submits further work, and so may other threads that end now.
            await asyncio.sleep(_POLL)

    # -- on the background thread

    def _run(self) -> None:
        self._thread_id = current_thread_id()
        loop = self._new_loop()
        asyncio.set_event_loop(loop)
        with self._lock:
            self._loop = loop
        loop.call_soon(self._on_wake)  # work that was queued while the thread started
        self._loop_ready.set()
        loop.run_forever()

    def _on_wake(self) -> None:
        if is_multiprocessing_child():
            # The parent may terminate this process as soon as it has the result: no time to linger.
            self._run_queue()
            self._check(0)
            return
        if self._flushes:
            self._run_queue()
        self._check_later(_EMPTY_CHECKS)

    def _check_later(self, checks: int) -> None:
        asyncio.get_running_loop().call_later(_LINGER, self._check, checks)

    def _check(self, checks: int) -> None:
        """Do what has come. Check again after a while, unless several checks in a row found nothing."""
        checks = _EMPTY_CHECKS if self._run_queue() else checks - 1
        with self._lock:
            if checks <= 0 and not self._queue:
                self._wake_sent = False
                return
        self._check_later(checks)

    def _run_queue(self) -> bool:
        """Do what is queued. Returns True if there was anything."""
        found = False
        while True:
            with self._lock:
                if not self._queue:
                    return found
                lane, work, size = self._queue.popleft()
            found = True
            self._perform(lane, work, size)
            if not self._flushes and self._pending < _MANY:
                sleep(_PAUSE)

    def _perform(self, lane: Lane, work: Work, size: int) -> None:
        try:
            coroutine = work()
        except BaseException:  # whatever it was, the thread continues
            self._failed(lane)
        else:
            if coroutine is not None:
                task = asyncio.get_running_loop().create_task(self._follow(lane, coroutine, size))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return
        self._finished(lane, size)

    async def _follow(self, lane: Lane, coroutine: Coroutine[Any, Any, None], size: int) -> None:
        try:
            await coroutine
        except Exception:
            self._failed(lane)
        finally:
            self._finished(lane, size)

    def _failed(self, lane: Lane) -> None:
        lane.failed += 1
        _logger.exception("rageval-hooks: a background job (%s) failed [RAGEVAL-214]", lane.name)

    def _finished(self, lane: Lane, size: int) -> None:
        with self._lock:
            lane.remove(size)
            self._pending -= 1
            waiting = list(self._idle) if self._pending == 0 else []
        for idle in waiting:
            idle.set()


_START_SECONDS = 10.0


_SHARED = Worker()


def shared_worker() -> Worker:
    """Return the process's one worker."""
    return _SHARED
