"""Words for numbers."""

from __future__ import annotations

__all__ = ["counted", "with_article"]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 question``, ``2 questions``."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


def with_article(noun: str) -> str:
    """Return a noun with its article: ``a list``, ``an object``."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
