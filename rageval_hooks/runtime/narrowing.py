"""Values of unknown type (from JSON, tables, frameworks): narrowed to the type that a caller can use, and measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard


def is_integer(value: object) -> TypeGuard[int]:
    """Return True for an integer that is not a boolean."""
    # bool derives from int, but `"passage": true` does not mean passage 1.
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return True for an integer or a float that is not a boolean. It may be infinite."""
    return isinstance(value, float) or is_integer(value)


def is_missing(value: object) -> bool:
    """Return True for an empty cell of a table: None, blank text, or NaN."""
    if isinstance(value, str):
        return not value.strip()
    # Only NaN differs from itself. pandas writes it for an empty cell.
    return value is None or value != value


def mapping_or_empty(value: object) -> Mapping[str, Any]:
    """Return a dictionary unchanged, and an empty one for anything else: another mapping may read a disk."""
    return value if isinstance(value, dict) else {}


def items_or_empty(value: object) -> Sequence[Any]:
    """Return a list or tuple unchanged, and an empty one for anything else."""
    return value if isinstance(value, (list, tuple)) else ()


def mappings_in(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings in a list; an empty list for anything else."""
    return [item for item in items_or_empty(value) if isinstance(item, Mapping)]


def text_or_empty(value: object) -> str:
    """Return a string unchanged, and an empty one for anything else."""
    return value if isinstance(value, str) else ""


def text_or_none(value: object) -> str | None:
    """Return a string unchanged; None for an empty one and for anything else."""
    return text_or_empty(value) or None


def first_text(values: Iterable[object]) -> str | None:
    """Return the first non-empty string; None without one."""
    return next(filter(None, map(text_or_empty, values)), None)


def content_text(content: object) -> str:
    """Return the text of a chat message's content: a string, or a list of blocks. Empty for anything else."""
    if isinstance(content, str):
        return str.__str__(content)  # LangChain's ``message.text`` is a subclass of str
    texts = []
    # Claude and the Responses API of OpenAI answer in blocks: [{"type": "text", "text": "It opened in 1869."}].
    # Images and tool calls have no text. OpenAI also has {"type": "refusal", "refusal": "I cannot help with that."}.
    for block in items_or_empty(content):
        if isinstance(block, Mapping):
            block = block.get("refusal" if block.get("type") == "refusal" else "text")
        texts.append(str.__str__(text_or_empty(block)))
    return "".join(texts)


def entry_or_attribute(value: object, name: str) -> Any:
    """Return an entry of a mapping, or an attribute of another object; None if it has neither."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


_OBJECT_BYTES = 50
_MAX_OBJECTS = 5_000
"""Objects that are counted, some milliseconds of work. The rest is taken to be like them."""


def size_of(value: Any) -> int:
    """Return about how many bytes a value takes, to bound queues: its texts, and a little for each of its objects.

    Takes no locks and runs no code of the objects, so it may be called anywhere. An object that is reached twice counts
    once.
    """
    size = 0
    seen: set[int] = set()
    todo = [value]
    while todo and len(seen) < _MAX_OBJECTS:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        size += _OBJECT_BYTES
        # Methods of the base types: a subclass may have its own for what is read here.
        kind = type(item)
        if issubclass(kind, (str, bytes)):
            size += (str if issubclass(kind, str) else bytes).__len__(item)
        elif issubclass(kind, dict):
            todo += [*dict.keys(item), *dict.values(item)]
        elif issubclass(kind, (list, tuple)):
            todo += (list if issubclass(kind, list) else tuple).__iter__(item)
        # A function holds its module, and with it most of the program.
        elif not issubclass(kind, type) and not any("__call__" in base.__dict__ for base in kind.__mro__):
            try:
                todo.append(object.__getattribute__(item, "__dict__"))
            except AttributeError:
                continue
    return size * (len(seen) + len(todo)) // max(1, len(seen))
