"""Whether what runs now is our own work, which must be neither traced nor evaluated: judges, metrics, callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["is_muted", "mute", "muted"]

_muted: ContextVar[bool] = ContextVar("rageval_hooks_muted", default=False)


is_muted: Callable[[], bool] = _muted.get
"""Whether the current context belongs to our own work. Integrations ignore every event in it."""


def mute() -> None:
    """Mark the current context, and what is started from it, as our own work. There is no way back: use a new one."""
    _muted.set(True)


@contextmanager
def muted() -> Iterator[None]:
    """Mark what runs in a block, on this thread, as our own work."""
    token = _muted.set(True)
    try:
        yield
    finally:
        _muted.reset(token)
