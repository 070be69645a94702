"""Suppression: while our own code runs (judges, metrics, callbacks), integrations ignore all events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["is_suppressed", "suppress", "suppressed"]

_suppressed: ContextVar[bool] = ContextVar("rageval_hooks_muted", default=False)


is_suppressed: Callable[[], bool] = _suppressed.get
"""Return True if the current context belongs to our own code. Integrations ignore every event in it."""


def suppress() -> None:
    """Suppress events in the current context and in what starts from it. This cannot be undone: use a new context."""
    _suppressed.set(True)


@contextmanager
def suppressed() -> Iterator[None]:
    """Suppress events of what runs in a block, on this thread."""
    token = _suppressed.set(True)
    try:
        yield
    finally:
        _suppressed.reset(token)
