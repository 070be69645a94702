"""Whether what runs now is our own work, which must be neither traced nor evaluated: judges, metrics, callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["is_suppressed", "suppress", "suppressed"]

_suppressed: ContextVar[bool] = ContextVar("rageval_hooks_muted", default=False)


is_suppressed: Callable[[], bool] = _suppressed.get
"""Whether the current context belongs to our own work. Integrations ignore every event in it."""


def suppress() -> None:
    """Mark the current context, and what is started from it, as our own work. There is no way back: use a new one."""
    _suppressed.set(True)


@contextmanager
def suppressed() -> Iterator[None]:
    """Mark what runs in a block, on this thread, as our own work."""
    token = _suppressed.set(True)
    try:
        yield
    finally:
        _suppressed.reset(token)
