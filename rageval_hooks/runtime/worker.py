"""The background thread: one daemon thread with one event loop, bounded queues and counted drops."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVar

from rageval_hooks.runtime.at_exit import EXIT_DRAIN, is_multiprocessing_child
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import DaemonPool
from rageval_hooks.runtime.queues import BoundedQueue
from rageval_hooks.runtime.threads import current_thread_id, new_lock, sleep, start_daemon_thread, wait_until

_logger = logging.getLogger(__name__)
_limited_log = RateLimitedLogger(_logger)
T = TypeVar("T")

Work = Callable[[], "Coroutine[Any, Any, None] | None"]

_LINGER = 0.25
"""Seconds from the first work of a batch until it runs. Requests come in bursts: a thread that wakes for each of them
would compete with them for the interpreter's lock."""

_PAUSE = 0.0001
"""Seconds between two pieces of work, in which a waiting request thread gets the interpreter's lock. Without the pause
it would wait for the 5 ms that Python grants a thread."""

_START_SECONDS = 10.0

_CANCEL_SECONDS = 0.1
"""How long a shutdown waits for cancelled work to end, at least."""

_COMPUTE_THREADS = 4
"""Threads for blocking functions: they start when they are needed."""


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
        self._tasks: set[asyncio.Task[Any]] = set()
        self._of_parents: list[set[asyncio.Task[Any]]] = []
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget everything that is pending: it belongs to the parent."""
        self._waiting: deque[tuple[BoundedQueue, Work, int]] = deque()
        self._lock = new_lock()
        self._running = self._calls = 0
        self._is_woken = False
        self._is_started = False
        self._flushes = 0
        self._thread_id: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Kept, since a task that is destroyed ends here: its work would be counted as done, although it was not counted
        # as pending, and a flush would never find nothing pending.
        self._of_parents.append(self._tasks)
        self._tasks = set()

    def start(self) -> None:
        """Start the thread unless it runs.

        Raises:
            RuntimeError: no thread can be started, for example because the interpreter is exiting.
        """
        with self._lock:
            self._start()

    def submit(self, queue: BoundedQueue, work: Work, size: int = 0) -> bool:
        """Queue work. Returns False, and counts, if the queue is full, or if the thread cannot be started.

        Args:
            queue: the queue.
            work: a function.
            size: bytes that the work keeps in memory.
        """
        EXIT_DRAIN.add(self.drain, "evaluate", self.has_work)
        EXIT_DRAIN.register()
        with self._lock:
            try:
                self._start()
            except RuntimeError as error:
                _limited_log.warn("start", "work is dropped: no thread can be started: %s [RAGEVAL-602]", error)
                queue.drop()
                return False
            if not queue.add(size):
                return False
            self._waiting.append((queue, work, size))
            is_woken, self._is_woken = self._is_woken, True
            loop = self._loop
        # A thread that has just been started looks by itself.
        if loop is not None and not is_woken:
            loop.call_soon_threadsafe(self._on_wake, context=Context())  # not in the request's context
        return True

    def has_work(self) -> bool:
        """Return True if something waits or runs."""
        return bool(self._waiting or self._running)

    def flush(self, timeout: float) -> bool:
        """Wait until nothing is pending. Returns False if ``timeout`` seconds pass first."""
        if current_thread_id() == self._thread_id:
            return False  # it would wait for itself
        with self._lock:
            if not self.has_work():
                return True
            self._flushes += 1
            loop = self._loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._run_waiting, context=Context())
            return wait_until(lambda: not self.has_work(), timeout)
        finally:
            with self._lock:
                self._flushes -= 1

    def drain(self, timeout: float) -> None:
        """Flush at exit; log what could not be finished."""
        if not self.flush(timeout):
            _logger.warning(
                "rageval-hooks: the interpreter exits with %d background jobs undone after %.1f seconds [RAGEVAL-601]",
                len(self._waiting) + self._running,
                timeout,
            )

    def cancel(self, queue: BoundedQueue, timeout: float) -> None:
        """Cancel the coroutines of a queue that have begun, and wait until they have ended."""

        async def cancel() -> None:
            tasks = list(queue.tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        if not queue.tasks:
            return
        try:
            self.call(cancel).result(max(_CANCEL_SECONDS, timeout))
        except Exception:
            _logger.warning("rageval-hooks: background jobs did not end when they were cancelled [RAGEVAL-604]")

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine on the event loop, for a caller that waits for its result on another thread.

        Raises:
            RuntimeError: the thread cannot be started.
        """
        with self._lock:
            self._start()
            self._calls += 1  # so that the thread does not end meanwhile
        try:
            wait_until(lambda: self._loop, _START_SECONDS)
            if self._loop is None:
                raise RuntimeError("the background thread has not started")
            future = asyncio.run_coroutine_threadsafe(make(), self._loop)
        except BaseException:
            self._note_call()
            raise
        future.add_done_callback(self._note_call)
        return future

    def _note_call(self, _: object = None) -> None:
        with self._lock:
            self._calls -= 1

    def stop(self, is_unused: Callable[[], bool] = lambda: True) -> None:
        """End the thread, unless there is work. It starts again with the next work.

        Args:
            is_unused: asked on the thread: False if the thread was needed again meanwhile.
        """
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop_if_idle, is_unused)

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking function outside the event loop; only for coroutines of this worker."""
        return await asyncio.get_running_loop().run_in_executor(None, function)

    async def in_order(self, function: Callable[[], T]) -> T:
        """Like :meth:`in_thread`, but one function after the other: for files, and connections to a broker."""
        return await asyncio.get_running_loop().run_in_executor(self._one_thread, function)

    def _start(self) -> None:
        """Start the thread unless it runs; under the lock."""
        if not self._is_started:
            start_daemon_thread(self._run, self.name)
            self._is_started = True

    # -- on the background thread

    def _run(self) -> None:
        self._thread_id = current_thread_id()
        # Made here, since gevent binds a loop to the thread that makes it.
        loop = asyncio.new_event_loop()
        loop.set_default_executor(DaemonPool(_COMPUTE_THREADS, f"{self.name}-compute"))
        self._one_thread = one_thread = DaemonPool(1, f"{self.name}-in-order")
        asyncio.set_event_loop(loop)
        loop.call_soon(self._on_wake)  # work that was queued while the thread started
        with self._lock:
            self._loop = loop
        while True:
            try:
                loop.run_forever()
                break
            except BaseException:  # a task of a judge that calls `sys.exit`; who awaits it gets the exception, too
                _logger.exception("rageval-hooks: the background thread goes on after an exception [RAGEVAL-222]")
        # Connections of judges belong to the loop, and are closed in it.
        loop.run_until_complete(loop.shutdown_asyncgens())
        one_thread.shutdown()  # this loop's own: another thread may have started meanwhile
        loop.close()

    def _stop_if_idle(self, is_unused: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            # A coroutine of `call` may not be a task yet.
            if is_unused() and not self.has_work() and self._calls == 0 and not asyncio.all_tasks(loop):
                self._loop = self._thread_id = None
                self._is_started = False
                loop.stop()

    def _on_wake(self) -> None:
        # The parent may terminate a child of multiprocessing as soon as it has the result: no time to linger.
        is_urgent = self._flushes or is_multiprocessing_child()
        asyncio.get_running_loop().call_later(0 if is_urgent else _LINGER, self._run_waiting)

    def _run_waiting(self) -> None:
        """Do what is queued, in order; what is to be awaited runs as concurrent tasks."""
        self._is_woken = False
        self._run_next()

    def _run_next(self) -> None:
        if not self._waiting:
            return
        with self._lock:
            self._running += 1
        queue, work, size = self._waiting.popleft()
        coroutine = None
        try:
            coroutine = work()
        except BaseException:  # whatever it was, the thread continues
            self._note_failure(queue)
        del work  # it refers to its pipeline, which may be dropped as soon as nothing is pending
        loop = asyncio.get_running_loop()
        if coroutine is None:
            self._ended(queue, size)
        else:
            loop.create_task(self._follow(queue, coroutine, size))  # noqa: RUF006 - it keeps itself in `_tasks`
        if not self._flushes:
            sleep(_PAUSE)
        # Not in a loop here: coroutines continue between two pieces of work.
        loop.call_soon(self._run_next, context=Context())

    async def _follow(self, queue: BoundedQueue, coroutine: Coroutine[Any, Any, None], size: int) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of the event loop
        queue.tasks.add(task)
        self._tasks.add(task)  # the loop itself has weak references only
        try:
            await coroutine
        except BaseException:
            if task.cancelling():  # by a shutdown
                raise
            self._note_failure(queue)
        finally:
            queue.tasks.discard(task)
            self._tasks.discard(task)
            self._ended(queue, size)

    def _note_failure(self, queue: BoundedQueue) -> None:
        queue.failed += 1
        _logger.exception("rageval-hooks: a background job (%s) failed [RAGEVAL-214]", queue.name)

    def _ended(self, queue: BoundedQueue, size: int) -> None:
        with self._lock:
            queue.remove(size)
            self._running -= 1


_SHARED = Worker()
_JUDGE = Worker("rageval-judge")


def judge_worker() -> Worker:
    """Return the process's worker on which judges are asked."""
    return _JUDGE


def shared_worker() -> Worker:
    """Return the process's one worker."""
    return _SHARED
