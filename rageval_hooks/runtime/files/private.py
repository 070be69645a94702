"""Files with texts: only their owner may read them."""

from __future__ import annotations

import os

__all__ = ["open_private"]


def open_private(path: str, flags: int) -> int:
    """Open a file; a new one can only be read by its owner. For the argument ``opener`` of :func:`open`."""
    return os.open(path, flags, 0o600)
