"""Plain data: whatever a framework hands over, as values that go to JSON and back without loss."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

__all__ = ["Data", "Metadata", "Text", "clean_text", "plain_mapping", "plain_value"]

_MAX_DEPTH = 8


def clean_text(text: str) -> str:
    """Return ``text`` with surrogate pairs joined and lone surrogates replaced by U+FFFD.

    A lone surrogate cannot be encoded as UTF-8: one of them in one attribute would lose a whole batch of spans.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as JSON-able data (None, bool, int, float, str, list, dict with str keys).

    Dates become ISO strings, bytes are decoded, NaN and infinities become strings, anything else becomes its ``str``.
    """
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind is int:
        return value
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if depth >= _MAX_DEPTH:
        return _as_text(value)
    if isinstance(value, Mapping):
        return {_key(key): plain_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(item, depth + 1) for item in value]
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return _other(value)


def plain_mapping(mapping: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return ``mapping`` as a new JSON-able dict; empty for None."""
    if not mapping:
        return {}
    return {
        key if type(key) is str and key.isascii() else _key(key): item
        if (type(item) is str and item.isascii()) or type(item) is int or item is None
        else plain_value(item, 1)
        for key, item in mapping.items()
    }


def _text(value: Any) -> Any:
    if type(value) is str and value.isascii():
        return value
    return clean_text(str.__str__(value)) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_text)]
"""A string that can be encoded as UTF-8."""

Metadata = Annotated[dict[str, Any], BeforeValidator(plain_mapping)]
"""A mapping of JSON-able values."""


class Data(BaseModel):
    """Base of the plain data types: frozen, and nothing beside the documented fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _key(key: Any) -> str:
    return clean_text(key) if type(key) is str else _as_text(key)


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return clean_text(str.__str__(value))
    item = getattr(value, "item", None)  # a numpy scalar
    if callable(item) and getattr(value, "ndim", None) == 0:
        return plain_value(item(), _MAX_DEPTH)
    return _as_text(value)


def _as_text(value: Any) -> str:
    try:
        return clean_text(str(value))
    except Exception:
        return f"<{type(value).__name__}>"
