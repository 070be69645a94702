"""Nouns with their numbers and articles, for messages."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 question``, ``2 questions``."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


def with_article(noun: str) -> str:
    """Return a noun with its article: ``a list``, ``an object``."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def listed(items: Sequence[str], most: int = 5) -> str:
    """Return items with commas between them; only the first few of very many, and how many more there are."""
    text = ", ".join(items[:most])
    return f"{text} and {len(items) - most} more" if len(items) > most else text
