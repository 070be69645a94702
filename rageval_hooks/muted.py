"""Whether what runs now is our own work, which must be neither traced nor evaluated: the calls of our own judges."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

__all__ = ["is_muted", "mute"]

_muted: ContextVar[bool] = ContextVar("rageval_hooks_muted", default=False)


is_muted: Callable[[], bool] = _muted.get
"""Whether the current context belongs to a call of our own judge. Integrations ignore every event in it."""


def mute() -> None:
    """Mark the current context, and what is started from it, as our own work. There is no way back: use a new one."""
    _muted.set(True)
