"""What happens in a forked child: threads are gone, and locks that they held would stay locked."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["Forkable", "reset_in_child"]


class Forkable(Protocol):
    """An object with state that a forked child must not inherit."""

    def reset_after_fork(self) -> None:
        """Replace locks and forget what only the parent's threads can finish."""


# One registration for all: `os.register_at_fork` has no way to take a registration back.
_objects: weakref.WeakSet[Forkable] = weakref.WeakSet()


def reset_in_child(instance: Forkable) -> None:
    """Call an object's ``reset_after_fork`` in each child that this process forks, as long as the object lives."""
    _objects.add(instance)


def _reset_all() -> None:
    for instance in list(_objects):
        instance.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
