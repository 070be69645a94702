"""The fields of LlamaIndex's values by name: of mappings, dataclasses, pydantic models and workflow events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rageval_hooks.integrations.capture.host_values import is_a
from rageval_hooks.runtime.narrowing import mapping_or_empty

__all__ = ["fields_of", "is_mapping", "only_string", "private_attributes", "text_under"]


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a mapping, a dataclass, a pydantic model or a workflow event, by name."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    found = dict(getattr(value, "__dict__", {}))
    private = private_attributes(value)
    # Event(topic="piers") keeps {"topic": "piers"} in _data.
    found.update(private.get("_data") or {})
    # StopEvent(result="In 1869.") keeps "In 1869." in _result.
    if "_result" in private:
        found["result"] = private["_result"]
    return found


def private_attributes(value: Any) -> Mapping[str, Any]:
    """Return the private attributes of a pydantic model: a workflow's event keeps its own fields there."""
    return mapping_or_empty(getattr(value, "__pydantic_private__", None))


def is_mapping(value: Any) -> bool:
    """Return True for a mapping, and for a workflow's event, which may have any fields."""
    return isinstance(value, Mapping) or "_data" in private_attributes(value)


def only_string(fields: Mapping[str, Any]) -> str:
    """Return the string among some fields if there is exactly one that is not empty; else an empty string."""
    strings = [item for item in fields.values() if is_a(item, str)]
    texts = list(filter(None, strings))
    return texts[0] if len(texts) == 1 else ""


def text_under(fields: Mapping[str, Any], keys: Iterable[str], read: Callable[[Any], str]) -> str | None:
    """Return the first text that is found under some keys; empty if they have no text, None without such a key.

    Args:
        fields: the fields.
        keys: the keys, the preferred one first.
        read: returns the text in a value.
    """
    known = [fields[key] for key in keys if key in fields]
    if not known:
        return None
    return next(filter(None, map(read, known)), "")
