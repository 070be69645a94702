"""Ends loads that are in progress when the interpreter exits.

A daemon thread that imports PyTorch during the interpreter's last steps crashes the process, or leaves it waiting for
the lock of an import forever. Nothing can stop a thread from outside, but each of its next imports can fail.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rageval_hooks.runtime.fork import run_in_child
from rageval_hooks.runtime.threads import current_thread_id, wait_until

__all__ = ["LoadAbandonedError", "abandon_loads", "loading"]

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
        if _NO_IMPORTS in sys.meta_path:
            raise LoadAbandonedError
        yield
    finally:
        _threads.discard(thread)


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
