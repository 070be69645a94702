"""Bounds on the values of metric attributes: each combination of values is a time series that a backend keeps."""

from __future__ import annotations

import re
from collections.abc import Mapping

from opentelemetry.util.types import AttributeValue

__all__ = ["OTHER", "BoundedAttributes", "reason_class"]

OTHER = "other"
"""Replaces a value once an attribute has too many."""

_MOST_VALUES = 100
_LONGEST_VALUE = 100

# Amounts differ from turn to turn: "2,048" in "more than 2,048 passages", "0.5" in "after 0.5 seconds".
_NUMBER = re.compile(r"\d[\d.,]*\d|\d")


class BoundedAttributes:
    """Keeps the first values of each attribute and replaces the rest by ``other``.

    Names of scores come from metrics, and models from replies: an application may have any number of them.

    Args:
        limit: values per attribute.
    """

    def __init__(self, limit: int = _MOST_VALUES) -> None:
        self._limit = limit
        self._seen: dict[str, set[str]] = {}

    def of(self, attributes: Mapping[str, str | None]) -> dict[str, AttributeValue]:
        """Return attributes within the bounds. Those that are None are omitted."""
        return {name: self._bounded(name, value) for name, value in attributes.items() if value is not None}

    def _bounded(self, name: str, value: str) -> str:
        value = value[:_LONGEST_VALUE]
        seen = self._seen.setdefault(name, set())
        if value not in seen:
            if len(seen) >= self._limit:
                return OTHER
            seen.add(value)
        return value


def reason_class(reason: str) -> str:
    """Return a reason without its details: "the queue is full: 2048 turns wait" becomes "the queue is full"."""
    return _NUMBER.sub("N", reason.split(":", 1)[0].strip())
