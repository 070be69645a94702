"""Loads that are in progress when the process ends: the exit first waits for them, and then ends them.

Loads need thread pools: transformers reads weights with one, and scikit-learn imports ``concurrent.futures.process``.
Both fail from the moment on when the main thread ends, before any exit handler runs. So the exit has to wait earlier.

A daemon thread that imports PyTorch during the interpreter's last steps crashes the process, or leaves it waiting for
the lock of an import forever. Nothing can stop a thread from outside, but each of its next imports can fail.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rageval_hooks.runtime.fork import run_in_child
from rageval_hooks.runtime.threads import current_thread_id, wait_until

__all__ = ["LoadAbandonedError", "abandon_loads", "call_before_pools_end", "is_abandoned", "is_loading", "loading"]

_threads: set[int] = set()
"""The threads that load something, by id."""


# Libraries catch `Exception` around imports that they can do without.
class LoadAbandonedError(BaseException):
    """The process exits, so that nothing needs what is being loaded."""


@contextmanager
def loading() -> Iterator[None]:
    """Let :func:`abandon_loads` end what this thread does in the block.

    Raises:
        LoadAbandonedError: the process exits.
    """
    thread = current_thread_id()
    _threads.add(thread)
    try:
        # Asked after the thread was added: `abandon_loads` counts after it has said so.
        if is_abandoned():
            raise LoadAbandonedError
        yield
    finally:
        _threads.discard(thread)


def is_abandoned() -> bool:
    """Return True if :func:`abandon_loads` was called."""
    return _NO_IMPORTS in sys.meta_path


def is_loading() -> bool:
    """Return True if a thread loads something."""
    return bool(_threads)


def call_before_pools_end(function: Callable[[], object]) -> None:
    """Call a function when the main thread ends, as long as thread pools take work.

    It is not called if the main thread has ended already, or on an interpreter that cannot do it.
    """
    # `concurrent.futures` stops its pools by the same registration, and the last one registered is called first.
    # Neither module can be imported any more when the function is called.
    with suppress(ImportError, AttributeError, RuntimeError):
        import concurrent.futures.process
        import concurrent.futures.thread  # noqa: F401

        threading._register_atexit(function)  # type: ignore[attr-defined]


def abandon_loads(timeout: float) -> bool:
    """End the loads of other threads at their next import, and wait for that. Call this when the process exits.

    Args:
        timeout: seconds to wait. A load that imports nothing more goes on to its end.

    Returns:
        False if a load still goes on.
    """
    sys.meta_path.insert(0, _NO_IMPORTS)
    return wait_until(lambda: not _threads, timeout)


class _NoImports:
    """A finder of modules: fails imports of threads that load something, and leaves all others to other finders."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if current_thread_id() in _threads:
            raise LoadAbandonedError


_NO_IMPORTS = _NoImports()

run_in_child(_threads.clear)
