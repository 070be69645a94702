"""Words for numbers."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 question``, ``2 questions``."""
    return f"{number} {noun}{'s' if number != 1 else ''}"
