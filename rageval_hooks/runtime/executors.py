"""Shims, until the models call :func:`rageval_hooks.runtime.pool.running_pass` themselves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.runtime.pool import running_pass

__all__ = ["ForkSafeLock", "model_executor", "slow_model_executor"]

T = TypeVar("T")


class _Here:
    def submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        future: Future[T] = Future()
        with running_pass():
            future.set_result(function(*args))
        return future


def model_executor() -> _Here:
    """Return an executor that runs a function at once, on the calling thread."""
    return _Here()


slow_model_executor = model_executor
