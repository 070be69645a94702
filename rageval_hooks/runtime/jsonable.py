"""Plain data: values of any framework as data that round-trips through JSON."""

from __future__ import annotations

import datetime
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import MemberDescriptorType
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from rageval_hooks.runtime.interrupts import raise_interrupt

_MAX_DEPTH = 8
_MAX_BITS = 63
"""Of an integer. Larger ones become texts: Phoenix answers 500 to them, and other readers of JSON round them."""


def clean_text(text: str) -> str:
    """Return ``text`` with surrogate pairs joined, and with U+FFFD for lone surrogates and for U+0000.

    A lone surrogate cannot be encoded as UTF-8, and PostgreSQL stores no U+0000, which texts of PDF files may have. One
    of them in a single attribute would lose a whole batch of spans.
    """
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Only for texts with surrogates, for example "\\ud83d" without its second half.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as JSON-able data (None, bool, int, float, str, list, dict with str keys).

    Dates become ISO strings, bytes are decoded, NaN and infinities become strings, a dataclass becomes its fields, and
    any other object its ``str``. Objects that raise when inspected, such as unbound proxies, are shown by their class.
    """
    # The frequent types come first: this runs for every value of every document.
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind is int:
        return value if value.bit_length() <= _MAX_BITS else string_of(value)
    if kind is float:
        return value if math.isfinite(value) else str(value)
    # Deeper values are rare, and cycles have no end.
    if depth >= _MAX_DEPTH:
        return string_of(value)
    try:
        # Methods of the base types: those of a subclass, or of another mapping, may read a disk, or never end.
        if issubclass(kind, dict):
            return {_key(key): plain_value(item, depth + 1) for key, item in dict.items(value)}
        for many in (list, tuple, set, frozenset):
            if issubclass(kind, many):
                return [plain_value(item, depth + 1) for item in many.__iter__(value)]
        if issubclass(kind, (datetime.date, datetime.time)):
            return value.isoformat()
        if issubclass(kind, (bytes, bytearray)):
            return clean_text(bytes(value).decode("utf-8", "replace"))
        # Subclasses, such as enums with values, become the plain type. Booleans have no subclasses.
        for plain in (int, float):
            if issubclass(kind, plain):
                return plain_value(plain(value))
        if issubclass(kind, str):
            return clean_text(str.__str__(value))
        if kind.__module__ == "numpy" and value.ndim == 0:
            return plain_value(value.item(), _MAX_DEPTH)
        if is_dataclass(kind) and _has_generated_text(kind):
            return {name: plain_value(item, depth + 1) for name, item in _shown_fields(value).items()}
    except Exception as error:
        raise_interrupt(error)
        return string_of(value)
    return string_of(value)


def _has_generated_text(kind: Any) -> bool:
    """Return False for a dataclass whose text the application wrote, or turned off: it may hide a secret."""
    return hasattr(kind.__repr__, "__wrapped__") and kind.__str__ is object.__str__


def _shown_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that its text shows. No code of its class runs."""
    kind = type(value)
    own = object.__getattribute__(value, "__dict__") if kind.__dictoffset__ else {}
    members = {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}
    names = [field.name for field in fields(kind) if field.repr]
    # @dataclass(slots=True)
    slots = {name: members[name] for name in names if isinstance(members.get(name), MemberDescriptorType)}
    return {name: own[name] if name in own else slots[name].__get__(value) for name in names}


def plain_mapping(mapping: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return ``mapping`` as a new JSON-able dict; empty for None."""
    if not mapping:
        return {}
    plain: dict[str, Any] = {}
    for key, item in mapping.items():
        name = key if type(key) is str and key.isascii() and "\0" not in key else _key(key)
        # Most values are short texts. Calling a function for each would take longer than the rest.
        is_plain = type(item) is str and item.isascii() and "\0" not in item
        plain[name] = item if is_plain else plain_value(item, 1)
    return plain


def json_text(value: Any, default: Callable[[Any], Any]) -> str:
    """Return any value as JSON.

    Args:
        value: the value.
        default: converts objects that JSON does not know. If it fails, or the value is not JSON for another reason
            (keys that are not strings, cycles, thousands of levels), the value is converted by :func:`plain_value`.
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=default)
    except Exception as error:
        raise_interrupt(error)
        return json.dumps(plain_value(value), ensure_ascii=False)


def string_of(value: Any) -> str:
    """Return a value's ``str``; its class in angle brackets if it has none, or if that is code of the application."""
    try:
        return clean_text(str(value)) if _has_known_text(type(value)) else f"<{type(value).__name__}>"
    except Exception as error:
        raise_interrupt(error)
        return f"<{type(value).__name__}>"


_KNOWN = frozenset(sys.stdlib_module_names) - {"unittest"} | {"bson", "numpy", "pandas", "pydantic", "pydantic_core"}
"""Packages whose objects tell what they are without side effects. A mock counts its calls."""


def _has_known_text(kind: type) -> bool:
    """Return True if a class of these packages defines the text of a value; an exception always has a text."""
    named = [base for base in kind.__mro__ if "__str__" in vars(base) or "__repr__" in vars(base)]
    return issubclass(kind, BaseException) or (
        named[0] is not object and named[0].__module__.partition(".")[0] in _KNOWN
    )


def _text(value: Any) -> Any:
    # Most texts need no change, and this test takes a third of the time of the rest.
    if type(value) is str and value.isascii() and "\0" not in value:
        return value
    # A subclass of str becomes a plain string.
    return clean_text(str.__str__(value)) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_text)]
"""A string that can be encoded as UTF-8 and that PostgreSQL stores."""

Metadata = Annotated[dict[str, Any], BeforeValidator(plain_mapping)]
"""A mapping of JSON-able values."""


class Data(BaseModel):
    """Base of the plain data types: frozen, without undocumented fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _key(key: Any) -> str:
    return clean_text(key) if type(key) is str else string_of(key)
