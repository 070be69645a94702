"""A span's attributes, in the order of their importance."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import to_json

from rageval_hooks.exporters import semconv

Value = str | bool | int | float | Sequence[str] | Sequence[float]


class Attributes(dict[str, Value]):
    """Span attributes, the most important first: what exceeds the provider's limit is cut from the end and counted."""

    def put(self, name: str, value: Value | None) -> None:
        """Set an attribute, unless its value is None."""
        if value is not None:
            self[name] = value

    def within(self, limit: int | None) -> dict[str, Value]:
        """Return at most ``limit`` attributes; if some do not fit, one of these says how many."""
        if limit is None or len(self) <= limit:
            return self
        # The SDK would drop the oldest entries, which are the important ones.
        kept = dict(list(self.items())[: max(0, limit - 1)])
        kept[semconv.DROPPED_ATTRIBUTES] = len(self) - len(kept)
        return kept


def json_string(value: object) -> str:
    """Return a value as JSON."""
    return to_json(value).decode()
