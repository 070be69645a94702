"""Finding a value under one of several names, in mappings and in objects of frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["field_of", "first_key", "first_present"]


def first_key(row: Mapping[str, Any], names: Iterable[str], accepts: Callable[[Any], bool]) -> str | None:
    """Return the first of some names whose value is accepted; None if no value is.

    Args:
        row: values by name.
        names: where to look, the preferred name first.
        accepts: decides on a value; it receives None for a name that is absent.
    """
    for name in names:
        if accepts(row.get(name)):
            return name
    return None


def first_present(value: Any, names: Iterable[str]) -> Any:
    """Return the first field that is neither None nor an empty text; None if there is no such field.

    Args:
        value: a mapping or an object.
        names: where to look, the preferred name first.
    """
    for name in names:
        found = field_of(value, name)
        # Compared by type, because `numpy.array([]) == ""` is not a boolean.
        if found is not None and not (isinstance(found, str) and not found):
            return found
    return None


def field_of(value: Any, name: str) -> Any:
    """Return an entry of a mapping, or an attribute of an object; None if it has neither."""
    if isinstance(value, Mapping):
        return value.get(name)
    found = getattr(value, name, None)
    # Methods share names with fields: `Path.name` is a text, `Document.text` of other libraries is a method.
    return None if callable(found) else found
