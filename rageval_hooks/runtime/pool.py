"""The pool: two daemon threads for local metrics and the passes of models. The most urgent step always comes next.

The standard pools refuse work while the interpreter exits, do not survive a fork, and know no priorities.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import Context, copy_context
from enum import IntEnum
from functools import cache
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple, TypeVar

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.runtime.fork import reset_in_child, run_in_child
from rageval_hooks.runtime.threads import new_lock, original, sleep, start_daemon_thread, wait_until

T = TypeVar("T")

_LOCAL_THREADS = 2
_NICENESS = 10
"""The usual step of the command ``nice``."""

_PAUSE = 0.0001
_numbers = count()


class Priority(IntEnum):
    """What comes first.

    Attributes:
        ENDED: turns that have ended, as far as rules go: their span waits for the scores.
        MODELS: the models of such turns.
        PREPARE: passages of turns in progress, those of the newest turn first: it has the most time left.
        LATE: what was not ready in time. It never takes the last thread.
    """

    ENDED = 0
    MODELS = 1
    PREPARE = 2
    LATE = 3


Steps = Generator[Priority, None, T]
"""Work in steps. Each ``yield`` lets more urgent work come first, and says how urgent the rest is."""


class _Job(NamedTuple):
    priority: Priority
    order: int  # unique, so that comparing two jobs never looks at what follows
    steps: Steps[Any]
    context: Context
    future: Future[Any]


class DaemonPool(ThreadPoolExecutor):
    """Daemon threads that start when they are needed, and work until the interpreter's very end.

    The standard pool refuses work once the interpreter begins to exit, and an event loop resolves host names on one:
    requests that are sent at exit would fail. This class derives from the standard pool because event loops insist on
    that; it uses none of its threads. A forked child starts with an empty queue and no threads.

    Args:
        threads: how many threads, at most.
        name: prefix of their names.
        niceness: how far the threads stand back behind the application's. Where two models compute on two cores, each
            chunk of an answer would wait some milliseconds for a core.
    """

    def __init__(self, threads: int, name: str, niceness: int = 0) -> None:
        super().__init__(max_workers=threads, thread_name_prefix=name)
        self._threads_wanted = threads
        self._niceness = niceness
        self._name = name
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start empty."""
        # A heap. Its operations are atomic, since jobs are compared by their first two numbers: a finalizer on any
        # thread may submit work, and must not wait for a lock that its own thread holds.
        self._jobs: list[_Job] = []
        self._wake = original("queue", "SimpleQueue")()  # its `put` may be called from a finalizer
        self._lock = new_lock()
        self._size = 0
        self._late = 0

    def start(self) -> None:
        """Start all threads now, so that :meth:`submit` may be called in a finalizer."""
        while self._size < self._threads_wanted and self._start_one():
            pass

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run a function on one of the threads, in a copy of the caller's context."""

        def steps() -> Steps[T]:
            yield from ()  # a generator of one step
            return fn(*args, **kwargs)

        return self.run(steps(), Priority.ENDED)

    def run(self, steps: Steps[T], priority: Priority, context: Context | None = None) -> Future[T]:
        """Run work in steps. The threads do the most urgent steps first, and steps of one kind in order.

        Args:
            steps: the work.
            priority: that of its first step.
            context: the context in which it runs; None for a copy of the caller's.
        """
        number = next(_numbers)
        order = -number if priority is Priority.PREPARE else number
        job = _Job(priority, order, steps, context or copy_context(), Future())
        if self._size < self._threads_wanted:
            self._start_one()
        if self._size:
            self._put(job)
            if not self._size:  # another thread has shut the pool down meanwhile
                self._start_one()
        else:  # the interpreter is exiting: Python 3.12 and later start no threads then
            while _advance(job) is not None:
                pass
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end after the work that is queued; never waits."""
        for _ in range(self._size):
            self._wake.put(_END)
        self._size = 0

    def _start_one(self) -> bool:
        try:
            start_daemon_thread(self._work, f"{self._name}-{self._size}")
        except RuntimeError:  # the interpreter is exiting, or the system has no further threads
            return False
        self._size += 1
        return True

    def _put(self, job: _Job) -> None:
        heappush(self._jobs, job)
        self._wake.put(None)

    # -- on the threads

    def _work(self) -> None:
        _here.is_pool_thread = True
        if self._niceness and sys.platform == "linux":  # of this thread; elsewhere it would be that of the process
            os.nice(self._niceness)
        is_ending = False
        while True:
            job = self._take()
            if job is None:
                if is_ending:
                    return
                is_ending = self._wake.get() is _END
                continue
            again = _advance(job)
            with self._lock:
                self._late -= job.priority is Priority.LATE
            if again is not None:
                self._put(job._replace(priority=again))
            del job  # or the thread would keep the last turn alive while it waits

    def _take(self) -> _Job | None:
        """Return the most urgent job that may run now. A late one may not if all other threads have late ones too."""
        with self._lock:
            if not self._jobs:
                return None
            job = heappop(self._jobs)
            if job.priority is Priority.LATE and self._late and self._late >= self._threads_wanted - 1:
                # The thread that runs late work looks again when it is done.
                heappush(self._jobs, job)
                return None
            self._late += job.priority is Priority.LATE
            return job


_END = object()
_here = threading.local()


def _advance(job: _Job) -> Priority | None:
    """Do the next step of a job. Returns the priority of the rest; None if the job is done."""
    future = job.future
    try:
        # The caller may have cancelled the work while it was queued.
        if not future.running() and not future.set_running_or_notify_cancel():
            return None
        return job.context.run(next, job.steps)
    except StopIteration as end:
        future.set_result(end.value)
    except BaseException as error:  # also SystemExit: it belongs to the caller, and must not end the thread
        future.set_exception(error)
    return None


def run_steps(steps: Steps[T]) -> T:
    """Run work in steps to its end on this thread, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def on_pool_thread() -> bool:
    """Return True on a thread of a pool: waiting for other work of that pool could take forever."""
    return getattr(_here, "is_pool_thread", False)


def give_way() -> None:
    """Let threads of the application run for a moment, if this is a thread of a pool; called between steps of work.

    They would wait for the 5 ms that Python grants a thread before it has to give up the interpreter's lock.
    """
    if on_pool_thread():
        sleep(_PAUSE)


_passes: list[None] = []
"""One entry for each pass that runs: lists change by single, atomic operations."""

_passes_end = threading.Event()


@contextmanager
def running_pass() -> Iterator[None]:
    """Wrap each pass of a model in this, on whatever thread it runs.

    A thread that takes the interpreter's lock in the interpreter's last steps ends there. The native code of a model
    may not be left in this way: the process would be aborted.

    Raises:
        ModelUnavailableError: the process exits.
    """
    _passes.append(None)
    try:
        # Asked after the pass was counted: `stop_passes` counts after it has said so.
        if _passes_end.is_set():
            raise ModelUnavailableError("model", "the process is ending")
        yield
    finally:
        _passes.pop()


def stop_passes(timeout: float) -> bool:
    """Begin no more passes, and wait for those that run. Returns False if one still runs after ``timeout`` seconds."""
    _passes_end.set()
    return wait_until(lambda: not _passes, timeout)


run_in_child(_passes.clear)


@cache
def local_pool() -> DaemonPool:
    """Return the process's pool for local metrics and the passes of models."""
    return DaemonPool(_LOCAL_THREADS, "rageval-local", _NICENESS)
