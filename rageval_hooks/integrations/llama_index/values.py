"""Reading LlamaIndex's values: the question, the answer, nodes, prompts and token counts in whatever shape.

By their attributes and without their classes, which are not imported here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture import first_string
from rageval_hooks.turn import Message, Passage

__all__ = [
    "Snapshot",
    "answer_of",
    "arguments_of",
    "as_json",
    "as_text",
    "is_stream",
    "message_text",
    "messages_of",
    "model_of",
    "passages_of",
    "query_of",
    "snapshot",
    "tool_calls_of",
    "tool_input",
]

_QUERY_KEYS = (
    "str_or_query_bundle",
    "query_bundle",
    "query",
    "query_str",
    "question",
    "user_msg",
    "message",
    "input",
    "prompt",
    "text",
    "messages",
    "chat_history",
    "start_event",
    "kwargs",
    "args",
)
_ANSWER_KEYS = ("result", "response", "answer", "output", "message", "text", "content")
_STREAM_KEYS = ("response_gen", "chat_stream", "achat_stream")
_ROLES = {"chatbot": "assistant", "model": "assistant", "developer": "system", "function": "tool"}
_DEPTH = 5

Snapshot = tuple[tuple[Any, Any, str], ...]
"""Nodes as they were at one moment: (node, score, text). Rerankers and postprocessors change them in place."""


# --------------------------------------------------------------------------- questions and answers


def arguments_of(bound: Any) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    return getattr(bound, "arguments", None) or {}


def query_of(value: Any, depth: int = 0) -> str:
    """Return the user's question in whatever went into a component; empty if there is none to be seen."""
    if isinstance(value, str):
        return value
    if value is None or depth > _DEPTH:
        return ""
    if isinstance(getattr(value, "query_str", None), str):
        return str(value.query_str)
    if _is_message(value):
        return message_text(value)
    if isinstance(value, (list, tuple)):
        asked = [item for item in value if _is_message(item) and _role(item) == "user"]
        return message_text(asked[-1]) if asked else query_of(value[0], depth + 1) if len(value) == 1 else ""
    fields = _fields(value)
    for key in _QUERY_KEYS:
        found = query_of(fields.get(key), depth + 1)
        if found:
            return found
    return _only_string(fields)


def answer_of(value: Any, depth: int = 0) -> str:
    """Return the answer in whatever came out of a component; empty if there is none to be seen."""
    if isinstance(value, str):
        return value
    if value is None or depth > _DEPTH or isinstance(value, (list, tuple, bool, int, float)):
        return ""
    if _is_message(value):
        return message_text(value)
    if is_stream(value) and not getattr(value, "response", None):
        return str(getattr(value, "response_txt", None) or "")
    fields = _fields(value)
    for key in _ANSWER_KEYS:
        found = answer_of(fields.get(key), depth + 1)
        if found:
            return found
    # A structured answer is its own JSON, wherever it hangs: in a response, in an agent's output, in a stop event.
    return _only_string(fields) or (as_json(fields) if depth and fields and not _is_content(fields) else "")


def _is_content(fields: Mapping[str, Any]) -> bool:
    return any(key in fields for key in (*_ANSWER_KEYS, *_STREAM_KEYS))


def _only_string(fields: Mapping[str, Any]) -> str:
    strings = [item for item in fields.values() if isinstance(item, str) and item]
    return strings[0] if len(strings) == 1 else ""


def _fields(value: Any) -> dict[str, Any]:
    """Return an object's fields by name: a mapping's, a dataclass's, a pydantic model's, a workflow event's."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    found = dict(getattr(value, "__dict__", {}))
    found.update(getattr(value, "__pydantic_extra__", None) or {})
    for private in (getattr(value, "__pydantic_private__", None) or {}).items():
        if private[0] == "_data" and isinstance(private[1], dict):  # what a workflow event holds beside its fields
            found.update(private[1])
        elif private[0] == "_result":
            found["result"] = private[1]
    return {key: item for key, item in found.items() if not key.startswith("_")}


def is_stream(value: Any) -> bool:
    """Whether a response is still to be streamed when its span ends."""
    return any(getattr(value, key, None) is not None for key in _STREAM_KEYS[1:]) or (
        "response_gen" in getattr(value, "__dict__", {})
    )


# --------------------------------------------------------------------------- messages


def _is_message(value: Any) -> bool:
    return hasattr(value, "role") and (hasattr(value, "blocks") or hasattr(value, "content"))


def _role(message: Any) -> str:
    role = str(getattr(message.role, "value", message.role))
    return _ROLES.get(role, role)


def message_text(message: Any) -> str:
    """Return the text of a message."""
    content = getattr(message, "content", None)
    return content if isinstance(content, str) else ""


def tool_calls_of(response: Any) -> list[Any]:
    """Return the tool calls that a model asked for."""
    message = getattr(response, "message", None)
    kwargs = getattr(message, "additional_kwargs", None)
    calls = kwargs.get("tool_calls") if isinstance(kwargs, dict) else None
    blocks = [block for block in getattr(message, "blocks", ()) if getattr(block, "block_type", "") == "tool_call"]
    return list(calls) if isinstance(calls, (list, tuple)) and calls else blocks


def messages_of(prompt: Any) -> tuple[Message, ...]:
    """Return a model call's prompt: a text, or a list of chat messages."""
    if isinstance(prompt, str):
        return (Message(role="user", content=prompt),)
    if not isinstance(prompt, Sequence):
        return ()
    return tuple(_prompt_message(message) for message in prompt if _is_message(message))


def _prompt_message(message: Any) -> Message:
    text = message_text(message)
    if not text:
        calls = tool_calls_of(_Answer(message))
        text = as_json(calls) if calls else ""
    return Message(role=_role(message), content=text)


class _Answer:
    """A message as the response that it once was."""

    def __init__(self, message: Any) -> None:
        self.message = message


# --------------------------------------------------------------------------- nodes


def snapshot(nodes: Any) -> Snapshot:
    """Return nodes with their scores and texts of this moment; what is not a node is left out. Formats nothing."""
    found = []
    for item in nodes if isinstance(nodes, (list, tuple)) else ():
        node = getattr(item, "node", None)
        if node is not None:
            found.append((node, getattr(item, "score", None), _node_text(node)))
    return tuple(found)


def _node_text(node: Any) -> str:
    text = getattr(node, "text", None)
    if isinstance(text, str):
        return text
    content = node.get_content() if hasattr(node, "get_content") else ""
    return content if isinstance(content, str) else ""


def passages_of(nodes: Iterable[tuple[Any, Any, str]]) -> list[Passage]:
    """Return nodes as passages, with ids, metadata and scores."""
    return [
        Passage(
            text=text,
            id=first_string({"id": getattr(node, "node_id", None)}, ("id",)),
            score=_finite(score),
            metadata=getattr(node, "metadata", None) or {},
        )
        for node, score, text in nodes
    ]


def _finite(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number - number == 0 else None


# --------------------------------------------------------------------------- models and tools


def model_of(response: Any, asked: Mapping[str, Any]) -> str | None:
    """Return the model's name: as the provider reported it, else as it was asked for.

    Args:
        response: the model's response.
        asked: the model's description in the event of its start.
    """
    raw = getattr(response, "raw", None)
    reported = raw if isinstance(raw, Mapping) else {key: getattr(raw, key, None) for key in ("model", "model_version")}
    name = first_string(
        {key: value for key, value in reported.items() if isinstance(value, str)}, ("model", "model_version", "modelId")
    )
    if name is None:
        name = first_string(asked, ("model_name", "model"))
    return None if name == "unknown" else name


def tool_input(bound: Any) -> str:
    """Return a tool's arguments as text: the only one as it is if it is a text, else all as JSON."""
    arguments = arguments_of(bound)
    named = {key: value for key, value in arguments.items() if key not in ("args", "kwargs")}
    named.update(arguments.get("kwargs") or {})
    values = [*(arguments.get("args") or ()), *named.values()]
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return as_json(named if named else values)


def as_text(value: Any) -> str:
    """Return any input or output as text: as it is, or as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return answer_of(value) or as_json(value)


def as_json(value: Any) -> str:
    """Return any value as JSON; what JSON does not know becomes its ``str``."""
    return json.dumps(value, ensure_ascii=False, default=_jsonable)


def _jsonable(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return dump(mode="json")
        except Exception:  # a model may hold what has no JSON
            return str(value)
    return str(value)
