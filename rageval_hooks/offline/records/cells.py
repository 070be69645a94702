"""Values of cells: text, lists as other programs write them into a cell, chat messages."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.runtime.jsonable import plain_mapping, plain_value
from rageval_hooks.text.wording import with_article

__all__ = [
    "chat_text",
    "citations_in",
    "error_in",
    "is_missing",
    "is_number",
    "kind_of",
    "metadata_in",
    "query_in",
    "reference_in",
    "response_in",
    "run_in",
    "text_in",
    "unpacked",
]

_ROLES = {"user": frozenset({"human", "user"}), "assistant": frozenset({"ai", "assistant", "model", "bot", "gpt"})}
# An item of a list, and white space before the next one where numpy writes no comma: "['a' 'b']" has two items.
_ITEM = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[}\])])(\s+(?=["'{\[A-Z]))?""", re.DOTALL)
_NO_ERROR = frozenset({"false", "0", "0.0", "no", "none", "null"})
_KINDS = {dict: "object", list: "list", bool: "boolean", int: "number", float: "number", str: "text"}


def is_missing(value: Any) -> bool:
    """Return True for an empty cell: None, blank text, or the NaN of a table."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or value != value


def is_number(value: Any) -> bool:
    """Return True for a number that is neither a boolean nor NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def kind_of(value: Any) -> str:
    """Return what a value is, for messages: ``a list``."""
    return with_article(_KINDS.get(type(value), type(value).__name__))


def unpacked(value: Any) -> Any:
    """Return the list or object that a text holds as JSON or as Python writes it; any other value unchanged."""
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    for read in (json.loads, _python_value):
        try:
            found = read(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, (list, dict)) else value
    return value


def _python_value(text: str) -> Any:
    """Return the value of a Python expression without running it.

    Lists may have white space between items, as numpy writes them. Calls become objects of their arguments, so that
    ``[Document(page_content='...')]`` is readable.

    Raises:
        ValueError: the text is something else; likewise SyntaxError.
    """
    with_commas = _ITEM.sub(lambda item: item[1] + ("," if item[2] else ""), text.strip())
    return _node_value(ast.parse(with_commas, mode="eval").body)


def _node_value(node: ast.AST) -> Any:
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_node_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(_node_value(key)): _node_value(value) for key, value in pairs if key is not None}
    if isinstance(node, ast.Call):
        return _call_value(node)
    if isinstance(node, ast.Name):  # nan, or a name such as `array` without a call
        return None
    return ast.literal_eval(node)


def _call_value(call: ast.Call) -> Any:
    """Return the arguments of a call: ``Document(page_content='a')`` is an object, ``array(['a'])`` its list."""
    named = {argument.arg: _node_value(argument.value) for argument in call.keywords if argument.arg is not None}
    values = [_node_value(argument) for argument in call.args]
    if values and isinstance(values[0], list):
        return values[0]
    return named or values


def text_in(value: Any, name: str) -> str:
    """Return a cell as text; empty if it is missing.

    Raises:
        TurnError: it is a list or an object.
    """
    if is_missing(value):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return str(value)
    raise TurnError(f"the {name} is {kind_of(value)}, not a text")


def error_in(value: Any) -> str:
    """Return the error that a cell names; empty for values such as ``false`` that say that there was none."""
    if not value or is_missing(value):
        return ""
    if isinstance(value, str) and value.strip().lower() in _NO_ERROR:
        return ""
    return json.dumps(plain_value(value)) if isinstance(value, Mapping) else text_in(value, "error")


def query_in(value: Any) -> str:
    """Return the question; of a conversation, the last message of the user.

    Raises:
        TurnError: there is none.
    """
    if is_missing(value):
        raise TurnError("the query is missing")
    value = value if isinstance(value, str) and not _holds_messages(value) else unpacked(value)
    if isinstance(value, list):
        text = chat_text(value, "user") or _single_text(value)
        if not text:
            raise TurnError("the query is a list without a message of the user")
        return text
    return text_in(value, "query")


def _holds_messages(value: str) -> bool:
    return value.lstrip().startswith("[{")


def _single_text(value: Sequence[Any]) -> str:
    return value[0] if len(value) == 1 and isinstance(value[0], str) else ""


def response_in(value: Any, packed: bool) -> str:
    """Return the answer.

    Args:
        value: a text; chat messages, of which the last of the assistant counts; a list with one text; or
            open-rag-eval's parts, each with its citations.
        packed: True if lists may be written as text.

    Raises:
        TurnError: it is none of these.
    """
    parts = unpacked(value)
    needed = {"text"} if packed or isinstance(value, list) else {"text", "citations"}
    if _are_parts(parts, needed):
        return " ".join(_part_text(part) for part in parts)
    if isinstance(value, list):
        if text := chat_text(value, "assistant") or _single_text(value):
            return text
        raise TurnError(
            f"the response is a list of {len(value)} items, not a text: --map response='COLUMN[0]' takes one"
        )
    if isinstance(value, Mapping) and (text := chat_text(value, "assistant")):
        return text
    return text_in(value, "response")


def _are_parts(parts: Any, needed: set[str]) -> bool:
    if not isinstance(parts, list) or not parts:
        return False
    return all(isinstance(part, Mapping) and needed <= part.keys() for part in parts)


def _part_text(part: Mapping[str, Any]) -> str:
    return " ".join([str(part["text"]), *map(str, part.get("citations") or ())])


def chat_text(value: Any, role: str) -> str:
    """Return the text of the last message of a role; empty if there is none.

    Args:
        value: messages, an object with ``messages``, or the ``choices`` of a chat completion.
        role: ``user`` or ``assistant``.
    """
    if isinstance(value, Mapping):
        choices = value.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
            return _content(choices[0].get("message"))
        value = value.get("messages")
    if not isinstance(value, list):
        return ""
    # LangChain's dumps have a list of messages per prompt.
    messages = value[0] if value and isinstance(value[0], list) else value
    roles = _ROLES.get(role, frozenset())
    for message in reversed(messages):
        if isinstance(message, Mapping) and _role(message) in roles:
            return _content(message)
    return ""


def _role(message: Mapping[str, Any]) -> str:
    """Return the role under its name in OpenAI's, LangChain's or ShareGPT's format."""
    return str(message.get("role") or message.get("type") or message.get("from")).lower()


def _content(message: Any) -> str:
    """Return a message's text, which may be in parts: ``[{"type": "text", "text": "..."}]``."""
    content = message.get("content", message.get("value")) if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part["text"]) for part in parts if isinstance(part, Mapping) and "text" in part)


def reference_in(value: Any, packed: bool) -> str | None:
    """Return the reference answer; several are joined by line breaks.

    Args:
        value: a text, a list of texts, or SQuAD's ``{"text": [...], "answer_start": [...]}``.
        packed: True if lists may be written as text.

    Raises:
        TurnError: it is something else.
    """
    found = unpacked(value) if packed else value
    if isinstance(found, Mapping) and isinstance(found.get("text"), list):
        found = found["text"]
    if isinstance(found, Sequence) and not isinstance(found, str):
        texts = [_reference_text(item) for item in found]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(dict.fromkeys(str(text) for text in texts)) or None
        found = value
    return text_in(found if not isinstance(value, str) else value, "reference") or None


def _reference_text(item: Any) -> Any:
    return item.get("text") or item.get("answer") if isinstance(item, Mapping) else item


def run_in(value: Any) -> int:
    """Return the number of the repetition.

    Raises:
        TurnError: it is not a whole number from 1.
    """
    if is_missing(value):
        return 1
    try:
        number = int(str(value).removesuffix(".0"))
    except ValueError:
        number = 0
    if number < 1:
        raise TurnError(f"the run is {value!r}: give a whole number from 1")
    return number


def metadata_in(value: Any) -> dict[str, Any]:
    """Return metadata as plain data.

    Raises:
        TurnError: it is not an object.
    """
    value = unpacked(value)
    if is_missing(value):
        return {}
    if not isinstance(value, Mapping):
        raise TurnError(f"the metadata is {kind_of(value)}, not an object")
    return plain_mapping(value)


def citations_in(value: Any) -> Any:
    """Return citations as the metric reads them; a bare id becomes a citation without a position."""
    value = plain_value(unpacked(value))
    if not isinstance(value, list):
        return value
    return [{"id": item} if isinstance(item, str) else item for item in value]
