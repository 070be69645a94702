"""Thread pools that live as long as the interpreter, and locks; both are made anew after a fork."""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any, TypeVar

__all__ = ["DaemonExecutor", "ForkSafeLock", "InProgress", "inline_executor", "model_executor"]

T = TypeVar("T")


class DaemonExecutor(ThreadPoolExecutor):
    """A thread pool whose daemon threads exist from the start and work on until the very end of the interpreter.

    The standard pool refuses work once the interpreter begins to exit, and an event loop resolves host names on one:
    requests that drain at exit would fail. It derives from the standard pool because event loops insist on that.

    Made at exit, when no thread can be started any more (Python 3.12 on), it works on the thread that submits.
    """

    def __init__(self, threads: int, name: str, prepare: Callable[[], object] = lambda: None) -> None:
        super().__init__(max_workers=threads, thread_name_prefix=name)
        self._prepare = prepare
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._size = 0
        for index in range(threads):
            with suppress(RuntimeError):
                threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True).start()
                self._size += 1

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run ``fn`` on one of the threads."""
        future: Future[T] = Future()
        if self._size:
            self._jobs.put((future, lambda: fn(*args, **kwargs)))
        else:
            _perform(future, lambda: fn(*args, **kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end after the work that is queued; never waits."""
        for _ in range(self._size):
            self._jobs.put(None)

    def _work(self) -> None:
        with suppress(Exception):  # without this thread, whoever waits for its work would wait for ever
            self._prepare()
        while (item := self._jobs.get()) is not None:
            _perform(*item)
            del item


def _perform(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)


class ForkSafeLock:
    """A lock that is free in a forked child, whoever held it in the parent: that thread does not exist there.

    Attributes:
        lock: the lock of this process, for where time matters: ``with it.lock:`` takes a third of ``with it:``.
    """

    def __init__(self) -> None:
        self._renew()
        _locks.add(self)

    def _renew(self) -> None:
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        """Take the lock."""
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self.lock.release()


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_locks() -> None:
    for lock in list(_locks):
        lock._renew()


class InProgress:
    """What is being done on several threads, so that others can wait for its end."""

    def __init__(self) -> None:
        self._numbers = count()
        self._threads: dict[int, int] = {}
        _in_progress.add(self)

    def begin(self) -> int:
        """Note that something begins on this thread; returns its number."""
        number = next(self._numbers)
        self._threads[number] = threading.get_ident()
        return number

    def end(self, number: int) -> None:
        """Note that it has ended."""
        self._threads.pop(number, None)

    def wait(self, timeout: float) -> bool:
        """Wait for what is in progress now; returns False if that takes longer than ``timeout`` seconds.

        Called by something that is in progress itself, it does not wait: two of these would wait for each other.
        """
        end = time.monotonic() + timeout
        begun = dict(self._threads)
        if threading.get_ident() in begun.values():
            return True
        while any(number in self._threads for number in begun):
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK)
        return True

    def forget(self) -> None:
        """Forget everything: in a forked child, the threads that do it are not there."""
        self._threads.clear()


_LOOK = 0.005
_in_progress: weakref.WeakSet[InProgress] = weakref.WeakSet()


def _forget_the_parents_work() -> None:
    for work in list(_in_progress):
        work.forget()


@cache
def inline_executor() -> DaemonExecutor:
    """Return the process's pool for scoring beside an application's event loop."""
    return DaemonExecutor(min(4, os.cpu_count() or 1), "rageval-inline")


@cache
def model_executor() -> DaemonExecutor:
    """Return the process's one thread for model forward passes.

    One, because PyTorch has a pool of workers for each thread that calls it: many request threads would each bring
    their own. And of its own, because such a pool does not survive a fork: a forked child that goes on with the pool
    of its only thread hangs, while a thread that is new in the child gets a new pool.
    """
    return DaemonExecutor(1, "rageval-model", _compute_on_few_cores)


_MODEL_CORES = 2


def _compute_on_few_cores() -> None:
    """Let PyTorch use at most two cores on this thread.

    Its threads wait for one another by spinning: with one for each core of a busy machine, a forward pass takes up to
    twenty times as long as with two, and takes the cores from the application.

    The number belongs to a thread, but to set it is to set it for all threads to come as well. So it is put back from a
    thread that has no other purpose.
    """
    import torch

    usual = torch.get_num_threads()
    if usual > _MODEL_CORES:
        torch.set_num_threads(_MODEL_CORES)
        restorer = threading.Thread(target=torch.set_num_threads, args=(usual,), name="rageval-restore", daemon=True)
        restorer.start()
        restorer.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
    os.register_at_fork(after_in_child=_forget_the_parents_work)
    os.register_at_fork(after_in_child=inline_executor.cache_clear)
    os.register_at_fork(after_in_child=model_executor.cache_clear)
