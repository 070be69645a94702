"""A span's attributes, ordered by importance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pydantic_core import from_json, to_json

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.turn import ErrorInfo

__all__ = ["Attributes", "Value", "error_event", "indexed", "is_json", "json_string"]

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


def error_event(error: ErrorInfo, policy: ContentPolicy) -> dict[str, Value]:
    """Return the attributes of the event for an exception. Its message may quote any text."""
    return {
        semconv.EXCEPTION_TYPE: error.type,
        semconv.EXCEPTION_MESSAGE: policy.quote(error.message, policy.everything),
    }


@lru_cache(maxsize=4096)
def indexed(template: str, index: int, field: str) -> str:
    """Return the name of an attribute of one of several things; formatting is the larger part of the cost."""
    return template.format(index=index, field=field)


def json_string(value: object) -> str:
    """Return a value as JSON."""
    return to_json(value).decode()


def is_json(text: str) -> bool:
    """Return True if a text is a JSON object or array, and not one that begins with a citation such as ``[1]``."""
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return False
    try:
        from_json(text)
    except ValueError:
        return False
    return True
