"""Calls that may hang, with a time limit: they run on a daemon thread that is left behind when time is up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

from rageval_hooks.runtime.executors import DaemonExecutor
from rageval_hooks.runtime.threads import Signal, start_daemon_thread

__all__ = ["prepare_for_exit", "within"]

T = TypeVar("T")


def within(call: Callable[[], T], timeout: float) -> T:
    """Run a function on a daemon thread and return its result.

    Raises:
        TimeoutError: it took longer than ``timeout`` seconds. It continues on its thread.
    """
    outcome = _Outcome(call)
    try:
        start_daemon_thread(outcome.run, "rageval-limited")
    except RuntimeError:  # the interpreter is exiting, and Python 3.12 and later start no threads then
        _reserve().submit(outcome.run)
    if not outcome.done.wait(timeout):
        raise TimeoutError(f"no result within {timeout:.1f} seconds")
    if outcome.error is not None:
        raise outcome.error
    [result] = outcome.results
    return result


class _Outcome(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self.done = Signal()
        self.error: BaseException | None = None
        self.results: list[T] = []

    def run(self) -> None:
        try:
            self.results.append(self._call())
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()


@cache
def _reserve() -> DaemonExecutor:
    return DaemonExecutor(2, "rageval-exit")


def prepare_for_exit() -> None:
    """Start the threads that :func:`within` uses once the interpreter exits. Call this before the exit."""
    if sys.version_info >= (3, 12):  # earlier versions start threads during the exit
        _reserve()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reserve.cache_clear)
