"""Thread pools of daemon threads that work until the interpreter's very end, and locks. Both survive a fork."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from queue import Empty
from typing import Any, Literal, TypeVar

from rageval_hooks.runtime.fork import reset_in_child, run_in_child
from rageval_hooks.runtime.threads import Lock, SimpleQueue, new_lock, start_daemon_thread, wait_until

__all__ = [
    "DaemonExecutor",
    "ForkSafeLock",
    "LowPriority",
    "are_several_in_progress",
    "deferred_executor",
    "embed_ahead_executor",
    "embed_along_executor",
    "inline_executor",
    "inline_threads",
    "is_evaluating",
    "low_priority",
    "model_executor",
    "prepare_executor",
    "slow_model_executor",
    "stop_models",
    "turn_begins",
    "turn_ends",
    "urgent",
]

T = TypeVar("T")
_Job = tuple[Future[Any], Callable[[], Any]]
LowPriority = Literal["early", "late"]

_MOST_INLINE_THREADS = 4
# These threads mostly wait, for the inline pool or a deadline.
_DEFERRED_THREADS = 4
_MODEL_THREADS = 2

_NICENESS = 10
"""The usual step of the command ``nice``."""


class DaemonExecutor(ThreadPoolExecutor):
    """A thread pool whose daemon threads exist from the start and work until the interpreter's very end.

    The standard pool refuses work once the interpreter begins to exit, and an event loop resolves host names on one:
    requests that are sent at exit would fail. This class derives from the standard pool because event loops insist on
    that.

    If the interpreter already exits when the pool is created, no thread can be started (Python 3.12 and later); the
    pool then works on the thread that submits.

    Args:
        threads: how many threads.
        name: prefix of their names.
        prepare: called once on each thread, before its first work.
        keeps_one_free: returns True while late work must leave one thread to other work.
    """

    def __init__(
        self,
        threads: int,
        name: str,
        prepare: Callable[[], object] = lambda: None,
        keeps_one_free: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(max_workers=threads, thread_name_prefix=name)
        self._prepare = prepare
        self._keeps_one_free = keeps_one_free
        self._jobs = SimpleQueue()
        self._waiting: dict[LowPriority, Any] = {
            "early": SimpleQueue(),
            "late": SimpleQueue(),
        }  # low priority, in this order
        # One entry for each: lists change by single, atomic operations.
        self._series: list[LowPriority | None] = []
        self._running_low: list[None] = []
        self._running: list[None] = []
        self._is_stopped = False
        self._size = 0
        for index in range(threads):
            # The interpreter may be exiting, or the system may have no further threads.
            with suppress(RuntimeError):
                start_daemon_thread(self._work, f"{name}-{index}")
                self._size += 1

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run ``fn`` on one of the threads. Inside :func:`low_priority` it waits for more important work."""
        future: Future[T] = Future()
        job = (future, lambda: fn(*args, **kwargs))
        if not self._size:
            _perform(*job)
        elif priority := getattr(_caller, "low_priority", None):
            self._waiting[priority].put(job)
            self._jobs.put(_WAKE)
        else:
            self._jobs.put(job)
        return future

    @property
    def has_queue(self) -> bool:
        """True if work waits for a thread."""
        return not self._jobs.empty()

    def is_free_within(self, timeout: float) -> bool:
        """Return True if a thread is free within some seconds; low-priority work that waits does not count."""
        probe = self.submit(_nothing)
        try:
            probe.result(timeout)
        except TimeoutError:
            probe.cancel()
            return False
        return True

    @contextmanager
    def series(self, priority: LowPriority | None = None) -> Iterator[None]:
        """Submit several jobs, one after the other.

        Late work does not come between those of an ``early`` series. A series without a low priority finds one thread
        free of low-priority work each time.
        """
        self._series.append(priority)
        try:
            # A series without a low priority may end on another thread.
            with low_priority(priority) if priority else nullcontext():
                yield
        finally:
            self._series.remove(priority)
            self.wake()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end after the work that is queued; never waits."""
        for _ in range(self._size):
            self._jobs.put(_STOP)

    def stop(self, timeout: float) -> bool:
        """Leave what is queued undone, and wait for what is running. Call this when the process exits.

        Args:
            timeout: seconds to wait.

        Returns:
            False if something still runs.
        """
        self._is_stopped = True
        return wait_until(lambda: not self._running, timeout)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._running.append(None)
        try:
            yield
        finally:
            self._running.pop()

    def _run(self, job: _Job) -> None:
        with self._counted():
            # Asked after the work was counted: `stop` counts after it has said so.
            if not self._is_stopped:
                _perform(*job)

    def _work(self) -> None:
        with self._counted(), suppress(Exception):  # a pool without threads would let its callers wait forever
            self._prepare()
        while True:
            if self._jobs.empty() and self._perform_low():
                continue
            item = self._jobs.get()
            if item is _STOP:
                while self._perform_low(at_once=True):
                    pass
                return
            # After a call to wake up, the thread looks for low-priority work again.
            if item is not _WAKE:
                self._run(item)
            del item  # or the thread would keep the last job's data alive while it waits

    def wake(self) -> None:
        """Make all threads look for low-priority work again."""
        for _ in range(self._size):
            self._jobs.put(_WAKE)

    def _may_perform(self, priority: LowPriority) -> bool:
        is_last_free = len(self._running_low) >= max(1, self._size - 1)
        if is_last_free and None in self._series:
            return False
        if priority == "early":
            return True
        return "early" not in self._series and not (is_last_free and self._keeps_one_free())

    def _perform_low(self, at_once: bool = False) -> bool:
        """Perform the first job of low priority that may run. Returns False if no job may.

        Args:
            at_once: no job has to wait.
        """
        for priority, queue in self._waiting.items():
            if not (at_once or self._may_perform(priority)):
                continue
            with suppress(Empty):
                job = queue.get_nowait()
                self._running_low.append(None)
                self._run(job)
                self._running_low.pop()
                return True
        return False


def _nothing() -> None:
    """Do nothing."""


_STOP = object()
_WAKE = object()
"""Makes a thread look for work of low priority."""

_caller = threading.local()


@contextmanager
def low_priority(kind: LowPriority) -> Iterator[None]:
    """Give way: what this thread submits to executors in this block runs after all other work.

    Args:
        kind: ``early`` for what a turn in progress will need, ``late`` for turns that have ended, which comes last.
    """
    before = getattr(_caller, "low_priority", None)
    _caller.low_priority = kind
    try:
        yield
    finally:
        _caller.low_priority = before


@contextmanager
def urgent() -> Iterator[None]:
    """Compute at the application's priority in this block: a caller waits for the result."""
    _caller.is_urgent = True
    try:
        yield
    finally:
        _caller.is_urgent = False


def _is_urgent() -> bool:
    return getattr(_caller, "is_urgent", False)


def _perform(future: Future[Any], call: Callable[[], Any]) -> None:
    # The caller may have cancelled the work while it was queued.
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # also SystemExit: it belongs to the caller, and must not end the thread
        future.set_exception(error)


class ForkSafeLock:
    """A lock that is free in a forked child, even if a thread of the parent held it.

    Attributes:
        lock: the lock of this process. ``with self.lock:`` takes a third of the time of ``with self:``.
    """

    lock: Lock

    def __init__(self) -> None:
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Replace the lock: the thread that held it does not exist in the child."""
        self.lock = new_lock()

    def __enter__(self) -> None:
        """Take the lock."""
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self.lock.release()


@cache
def inline_executor() -> DaemonExecutor:
    """Return the process's pool for evaluations that a caller may wait for."""
    return DaemonExecutor(inline_threads(), "rageval-inline")


@cache
def inline_threads() -> int:
    """Return the number of threads of :func:`inline_executor`."""
    return min(_MOST_INLINE_THREADS, os.cpu_count() or 1)


@cache
def deferred_executor() -> DaemonExecutor:
    """Return the process's pool for the ends of turns that a finalizer or an event loop hands over.

    Not the inline pool: these threads wait for the inline pool.
    """
    return DaemonExecutor(_DEFERRED_THREADS, "rageval-deferred")


@cache
def prepare_executor() -> DaemonExecutor:
    """Return the process's one thread for work that may turn out to be needed, and needs no model."""
    return DaemonExecutor(1, "rageval-prepare")


@cache
def embed_ahead_executor() -> DaemonExecutor:
    """Return the process's one thread that has passages embedded that may turn out to be needed."""
    return DaemonExecutor(1, "rageval-embed-ahead")


@cache
def embed_along_executor() -> DaemonExecutor:
    """Return the process's one thread that helps that of :func:`embed_ahead_executor` on a second core."""
    return DaemonExecutor(1, "rageval-embed-along")


_in_progress: set[object] = set()
"""The turns that are being prepared or evaluated."""

_evaluated: set[object] = set()
"""Those of them that are being evaluated."""


def turn_begins(turn: object, has_ended: bool = False) -> None:
    """Announce that a turn will need models. Several turns at a time keep one model thread free of late work.

    Args:
        turn: identifies the work for the turn.
        has_ended: True if the turn is being evaluated; without it, it is being prepared.
    """
    _in_progress.add(turn)
    if has_ended:
        _evaluated.add(turn)


def turn_ends(turn: object) -> None:
    """Tell that a turn that :func:`turn_begins` announced needs models no more at once."""
    _in_progress.discard(turn)
    _evaluated.discard(turn)
    if not are_several_in_progress() and _model_executor.cache_info().currsize:
        model_executor().wake()


def are_several_in_progress() -> bool:
    """Return True while several turns are being prepared or evaluated."""
    return len(_in_progress) > 1


def is_evaluating() -> bool:
    """Return True while a turn that has ended is being evaluated."""
    return bool(_evaluated)


def model_executor() -> DaemonExecutor:
    """Return the process's pool for forward passes of models; each pass takes one core.

    Few threads, so that the application keeps the other cores. Threads of our own, because PyTorch has a pool of
    workers for each thread that calls it, and such a pool does not survive a fork: a child that continues to use it
    hangs.

    In :func:`urgent` work it is a separate pool whose threads have the application's priority.
    """
    return _model_executor(_is_urgent())


def slow_model_executor() -> DaemonExecutor:
    """Return the process's one thread for models whose forward pass takes seconds; another one in urgent work.

    On the threads of :func:`model_executor` such a pass would hold up the embedder, for which callers wait.
    """
    return _slow_model_executor(_is_urgent())


@cache
def _model_executor(is_urgent: bool) -> DaemonExecutor:
    name = "rageval-urgent-model" if is_urgent else "rageval-model"
    prepare = partial(_compute_on, is_urgent)
    return _for_models(DaemonExecutor(_MODEL_THREADS, name, prepare, are_several_in_progress))


@cache
def _slow_model_executor(is_urgent: bool) -> DaemonExecutor:
    name = "rageval-urgent-slow-model" if is_urgent else "rageval-slow-model"
    return _for_models(DaemonExecutor(1, name, partial(_compute_on, is_urgent)))


_executors_for_models: list[DaemonExecutor] = []


def _for_models(executor: DaemonExecutor) -> DaemonExecutor:
    _executors_for_models.append(executor)
    return executor


def stop_models(timeout: float) -> bool:
    """Begin no more forward passes, and wait for those that are running. Call this when the process exits.

    During the interpreter's last steps, a thread ends when it takes the interpreter's lock. PyTorch takes it in
    functions that may not be left in this way, and the process is aborted.

    Args:
        timeout: seconds to wait.

    Returns:
        False if a pass still runs.
    """
    end = time.monotonic() + timeout
    stopped = [executor.stop(max(0.0, end - time.monotonic())) for executor in _executors_for_models]
    return all(stopped)


def _compute_on(is_urgent: bool) -> None:
    """Prefer the application's threads to this one, unless it is urgent."""
    # Elsewhere the priority of a single thread cannot be set in this way.
    if sys.platform == "linux" and not is_urgent:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


run_in_child(
    _in_progress.clear,
    _evaluated.clear,
    _executors_for_models.clear,
    inline_executor.cache_clear,
    deferred_executor.cache_clear,
    prepare_executor.cache_clear,
    embed_ahead_executor.cache_clear,
    embed_along_executor.cache_clear,
    _model_executor.cache_clear,
    _slow_model_executor.cache_clear,
)
