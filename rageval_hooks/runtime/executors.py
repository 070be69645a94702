"""Thread pools of daemon threads that work until the interpreter's very end, and locks. Both survive a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from queue import Empty
from typing import Any, Literal, TypeVar

from rageval_hooks.runtime.fork import reset_in_child, run_in_child
from rageval_hooks.runtime.threads import Lock, SimpleQueue, new_lock, start_daemon_thread

__all__ = [
    "DaemonExecutor",
    "ForkSafeLock",
    "LowPriority",
    "deferred_executor",
    "embed_ahead_executor",
    "inline_executor",
    "inline_threads",
    "low_priority",
    "model_executor",
    "prepare_executor",
    "slow_model_executor",
    "turn_begins",
    "turn_ends",
]

T = TypeVar("T")
LowPriority = Literal["early", "late"]

_MOST_INLINE_THREADS = 4
# These threads mostly wait, for the inline pool or a deadline.
_DEFERRED_THREADS = 4
_MODEL_THREADS = 2
_SLOW_MODEL_CORES = 2


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
        keeps_one_free: returns True while low-priority work must leave one thread to other work.
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
        self._waiting = {"early": SimpleQueue(), "late": SimpleQueue()}  # low priority, in this order
        self._early_series = 0
        self._running_low: list[None] = []  # one entry for each: lists change by single, atomic operations
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
    def early_series(self) -> Iterator[None]:
        """Submit several early jobs, one after the other; late work does not come between them."""
        self._early_series += 1
        try:
            with low_priority("early"):
                yield
        finally:
            self._early_series -= 1
            self.wake()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end after the work that is queued; never waits."""
        for _ in range(self._size):
            self._jobs.put(_STOP)

    def _work(self) -> None:
        with suppress(Exception):  # a pool without threads would let its callers wait forever
            self._prepare()
        while True:
            if self._jobs.empty() and self._may_perform_low() and self._perform_low():
                continue
            item = self._jobs.get()
            if item is _STOP:
                while self._perform_low():
                    pass
                return
            # After a call to wake up, the thread looks for low-priority work again.
            if item is not _WAKE:
                _perform(*item)
            del item  # or the thread would keep the last job's data alive while it waits

    def wake(self) -> None:
        """Make all threads look for low-priority work again."""
        for _ in range(self._size):
            self._jobs.put(_WAKE)

    def _may_perform_low(self) -> bool:
        if len(self._running_low) >= max(1, self._size - 1) and self._keeps_one_free():
            return False
        return not self._early_series or not self._waiting["early"].empty()

    def _perform_low(self) -> bool:
        """Perform the first job of low priority. Returns False without one."""
        for queue in self._waiting.values():
            with suppress(Empty):
                job = queue.get_nowait()
                self._running_low.append(None)
                _perform(*job)
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
    _caller.low_priority = kind
    try:
        yield
    finally:
        _caller.low_priority = None


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


_in_progress: set[object] = set()
"""The turns that are being prepared or evaluated."""


def turn_begins(turn: object) -> None:
    """Announce that a turn will need models. Several turns at a time keep one model thread free of late work."""
    _in_progress.add(turn)


def turn_ends(turn: object) -> None:
    """Tell that a turn that :func:`turn_begins` announced needs models no more at once."""
    _in_progress.discard(turn)
    if not _are_several_in_progress() and model_executor.cache_info().currsize:
        model_executor().wake()


def _are_several_in_progress() -> bool:
    return len(_in_progress) > 1


@cache
def model_executor() -> DaemonExecutor:
    """Return the process's pool for forward passes of models; each pass takes one core.

    Few threads, so that the application keeps the other cores. Threads of our own, because PyTorch has a pool of
    workers for each thread that calls it, and such a pool does not survive a fork: a child that continues to use it
    hangs.
    """
    return DaemonExecutor(_MODEL_THREADS, "rageval-model", partial(_compute_on, 1), _are_several_in_progress)


@cache
def slow_model_executor() -> DaemonExecutor:
    """Return the process's one thread for models whose forward pass takes seconds.

    On the thread of :func:`model_executor` such a pass would hold up the embedder, for which callers wait.
    """
    return DaemonExecutor(1, "rageval-slow-model", partial(_compute_on, _SLOW_MODEL_CORES))


def _compute_on(cores: int) -> None:
    """Let PyTorch use at most some cores on this thread.

    PyTorch's threads wait for one another by spinning. On a busy machine a pass on several cores takes more CPU time
    than on one, and takes the cores from the application: passes of all-MiniLM-L6-v2 on two cores each took half as
    much again as two passes side by side on one core each.

    ``torch.set_num_threads`` would not do: it also sets the number of all threads that start later.
    """
    import torch
    from threadpoolctl import ThreadpoolController

    # PyTorch sets its usual number when a thread first asks for it, and would set it over ours later.
    if torch.get_num_threads() > cores:
        ThreadpoolController().limit(limits=cores, user_api="openmp")


run_in_child(
    _in_progress.clear,
    inline_executor.cache_clear,
    deferred_executor.cache_clear,
    prepare_executor.cache_clear,
    embed_ahead_executor.cache_clear,
    model_executor.cache_clear,
    slow_model_executor.cache_clear,
)
