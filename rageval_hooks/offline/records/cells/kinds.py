"""The kinds of values in cells."""

from __future__ import annotations

from typing import Any, TypeGuard

from rageval_hooks.text.wording import with_article

__all__ = ["is_missing", "is_number", "is_present", "is_text", "kind_of"]

_NAMES = {dict: "object", list: "list", bool: "boolean", int: "number", float: "number", str: "text"}


def is_missing(value: Any) -> bool:
    """Return True for an empty cell: None, blank text, or the NaN of a table."""
    if isinstance(value, str):
        return not value.strip()
    # Only NaN differs from itself. pandas writes it for an empty cell.
    return value is None or value != value


def is_present(value: Any) -> bool:
    """Return True for a cell that is not empty."""
    return not is_missing(value)


def is_number(value: Any) -> bool:
    """Return True for a number that is neither a boolean nor NaN."""
    # A boolean is an int in Python, but `"score": true` is not a similarity of 1.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return value == value


def is_text(value: Any) -> TypeGuard[str]:
    """Return True for a string, also a blank one."""
    return isinstance(value, str)


def kind_of(value: Any) -> str:
    """Return the kind of a value, for messages: ``a list``."""
    return with_article(_NAMES.get(type(value), type(value).__name__))
