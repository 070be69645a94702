"""Values of cells: missing ones, lists and objects that a program wrote as text, chat messages."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rageval_hooks.text.wording import with_article

__all__ = ["chat_text", "field_of", "first_present", "is_missing", "is_number", "kind_of", "unpacked"]

_KINDS = {dict: "object", list: "list", bool: "boolean", int: "number", float: "number", str: "text"}
_ROLES = {"user": frozenset({"human", "user"}), "assistant": frozenset({"ai", "assistant", "model", "bot", "gpt"})}

# An item of a list, and white space before the next one where numpy writes no comma: "['a' 'b']" has two items.
# A quote after a backslash begins no item. Otherwise a long run of escaped quotes would take quadratic time.
_ITEM = re.compile(r"""((?<!\\)"(?:[^"\\]|\\.)*"|(?<!\\)'(?:[^'\\]|\\.)*'|[}\])])(\s+(?=["'{\[A-Z]))?""", re.DOTALL)


def is_missing(value: Any) -> bool:
    """Return True for an empty cell: None, blank text, or the NaN of a table."""
    if isinstance(value, str):
        return not value.strip()
    # Only NaN differs from itself. pandas writes it for an empty cell.
    return value is None or value != value


def is_number(value: Any) -> bool:
    """Return True for a number that is neither a boolean nor NaN."""
    # A boolean is an int in Python, but `"score": true` is not a similarity of 1.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def kind_of(value: Any) -> str:
    """Return the kind of a value, for messages: ``a list``."""
    return with_article(_KINDS.get(type(value), type(value).__name__))


def field_of(value: Any, name: str) -> Any:
    """Return an entry of a mapping, or an attribute of an object; None if it has neither."""
    if isinstance(value, Mapping):
        return value.get(name)
    found = getattr(value, name, None)
    # Methods share names with fields: `Path.name` is a text, `Document.text` of other libraries is a method.
    return None if callable(found) else found


def first_present(value: Any, names: Iterable[str]) -> Any:
    """Return the first field of a mapping or an object that is neither None nor an empty text; None without one."""
    for name in names:
        found = field_of(value, name)
        # Compared by type, because `numpy.array([]) == ""` is not a boolean.
        if found is not None and not (isinstance(found, str) and not found):
            return found
    return None


def unpacked(value: Any) -> Any:
    """Return the list or object that a text holds as JSON or as Python writes it; any other value unchanged."""
    # Most cells are prose, so a look at the first character saves two failing parsers for each.
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    # JSON comes first: it is stricter, and its `true` and `null` are not Python.
    for read in (json.loads, _python_value):
        try:
            found = read(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, (list, dict)) else value
    return value


def _python_value(text: str) -> Any:
    """Return the value of a Python expression without running it.

    Lists may have white space between items, as numpy writes them.

    Raises:
        ValueError: the text is something else; likewise SyntaxError.
    """
    with_commas = _ITEM.sub(lambda item: f"{item[1]}," if item[2] else item[1], text.strip())
    return _node_value(ast.parse(with_commas, mode="eval").body)


def _node_value(node: ast.AST) -> Any:
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return list(map(_node_value, items))
        case ast.Dict(keys=keys, values=values):
            # `{**defaults, "a": 1}` has no key for the part with the stars.
            pairs = zip(keys, values, strict=True)
            return {str(_node_value(key)): _node_value(value) for key, value in pairs if key is not None}
        case ast.Call(args=args, keywords=keywords):
            # `Document(page_content='a')` is an object, and `array(['a'])` its list.
            given = list(map(_node_value, args))
            if given and isinstance(given[0], list):
                return given[0]
            return {item.arg: _node_value(item.value) for item in keywords if item.arg is not None} or given
        case ast.Name():  # `nan`, or `array` without a call
            return None
    return ast.literal_eval(node)


def chat_text(value: Any, role: str) -> str:
    """Return the text of the last message of a role; empty if no message has it.

    Args:
        value: messages in the format of OpenAI, LangChain or ShareGPT, an object with ``messages``, or the ``choices``
            of a chat completion.
        role: ``user`` or ``assistant``.
    """
    if isinstance(value, Mapping):
        # A chat completion: `{"choices": [{"message": {...}}]}`.
        choices = value.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
            return _content(choices[0].get("message"))
        value = value.get("messages")
    if not isinstance(value, list):
        return ""
    # LangChain's dumps have a list of messages per prompt: `[[{"type": "human", ...}]]`.
    messages = value[0] if value and isinstance(value[0], list) else value
    # The newest message counts: the earlier ones are the history of the conversation.
    for message in reversed(messages):
        if isinstance(message, Mapping):
            said = str(message.get("role") or message.get("type") or message.get("from")).lower()
            if said in _ROLES[role]:
                return _content(message)
    return ""


def _content(message: Any) -> str:
    """Return a message's text, which may be in parts: ``[{"type": "text", "text": "..."}]``."""
    if not isinstance(message, Mapping):
        return ""
    content = message.get("content", message.get("value"))
    if isinstance(content, list):
        # Parts without a text are pictures or calls of tools.
        return "".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    return content if isinstance(content, str) else ""
