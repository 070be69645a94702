"""Reading LlamaIndex's values: the question, the answer, nodes, prompts and token counts in whatever shape.

By their attributes and without their classes, which are not imported here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from rageval_hooks.integrations.capture.values import finite, first_string, is_a, or_else
from rageval_hooks.runtime.jsonable import json_text
from rageval_hooks.turn import Message, Passage

__all__ = [
    "Made",
    "Snapshot",
    "Streamed",
    "answer_of",
    "arguments_of",
    "as_json",
    "is_generator",
    "message_text",
    "messages_of",
    "model_of",
    "passages_of",
    "query_of",
    "snapshot",
    "streamed_in",
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
    "prompt_args",
    "kwargs",
    "args",
)
_ANSWER_KEYS = ("result", "response", "response_txt", "answer", "output", "message", "text", "content")
_ROLES = {"chatbot": "assistant", "model": "assistant", "developer": "system", "function": "tool"}
_DEPTH = 5

Snapshot = tuple[tuple[Any, Any, str], ...]
"""Nodes as they were at one moment: (node, score, text). Rerankers and postprocessors change them in place."""

Made = dict[tuple[int, Union[float, None], str], Passage]
"""Passages by the identity of their node, score and text."""


# --------------------------------------------------------------------------- questions and answers


def arguments_of(bound: Any) -> dict[str, Any]:
    """Return the arguments of a call by name; of an operation without a call, what is known of it."""
    return bound if isinstance(bound, dict) else getattr(bound, "arguments", None) or {}


@or_else("")
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
    if depth == 0:
        return _only_string(fields)
    return _only_string(fields) if _is_mapping(value) and not any(key in fields for key in _QUERY_KEYS) else ""


@or_else("")
def answer_of(value: Any, depth: int = 0) -> str:
    """Return the answer in whatever came out of a component; empty if there is none to be seen."""
    if isinstance(value, str):
        return value
    if value is None or depth > _DEPTH or isinstance(value, (list, tuple, bool, int, float)):
        return ""
    if _is_message(value) or isinstance(getattr(value, "content", None), str):  # or a tool's output
        return message_text(value)
    fields = _fields(value)
    for key in _ANSWER_KEYS:
        found = answer_of(fields.get(key), depth + 1)
        if found:
            return found
    if any(key in fields for key in _ANSWER_KEYS):
        return ""
    if depth > 0 and hasattr(value, "model_dump"):
        return as_json(value)  # a structured answer
    return _only_string(fields) if _is_mapping(value) else ""


def _only_string(fields: Mapping[str, Any]) -> str:
    strings = [item for item in fields.values() if is_a(item, str) and item]
    return strings[0] if len(strings) == 1 else ""


def _is_mapping(value: Any) -> bool:
    """Whether it is a mapping, or a workflow's event, which is like one."""
    return isinstance(value, Mapping) or "_data" in _private(value)


def _private(value: Any) -> dict[str, Any]:
    """Return what a workflow's event holds beside its fields."""
    private = getattr(value, "__pydantic_private__", None)
    return private if isinstance(private, dict) else {}


def _fields(value: Any) -> dict[str, Any]:
    """Return an object's fields by name: a mapping's, a dataclass's, a pydantic model's, a workflow event's."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    found = dict(getattr(value, "__dict__", {}))
    private = _private(value)
    if _is_mapping(value):
        found.update(private["_data"])
    if "_result" in private:  # of a workflow's StopEvent
        found["result"] = private["_result"]
    return found


@or_else(False)
def is_generator(value: Any) -> bool:
    """Whether it is a generator, a plain or an asynchronous one."""
    return isinstance(value, (Generator, AsyncGenerator))


@dataclass(frozen=True)
class Streamed:
    """Stands in a record for an answer that is streamed, and does not keep it alive: dropped, it is to end.

    Attributes:
        of: the ``id`` of the response or of the generator.
    """

    of: int


@or_else(())
def streamed_in(result: Any) -> Sequence[Any]:
    """Return the generators in what a span returned, and the responses whose text comes from a generator.

    A workflow's is in its last event. A chat engine's is not among them: it is written down beside its readers.
    """
    inner = _private(result).get("_result")
    values = (result,) if inner is None else (result, inner)
    return [value for value in values if _is_streamed(value)]


def _is_streamed(value: Any) -> bool:
    fields = getattr(value, "__dict__", None)  # which generators have not
    return is_generator(value) if fields is None else fields.get("response_gen") is not None or is_generator(value)


# --------------------------------------------------------------------------- messages


@or_else(False)
def _is_message(value: Any) -> bool:
    # Not by hasattr: a PydanticResponse has every attribute, each None.
    return getattr(value, "role", None) is not None and (hasattr(value, "blocks") or hasattr(value, "content"))


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


def passages_of(nodes: Iterable[tuple[Any, Any, str]], made: Made | None = None) -> list[Passage]:
    """Return nodes as passages, with ids, metadata and scores.

    Args:
        nodes: the nodes, their scores and texts.
        made: passages that were made of nodes of the same turn: several stages see the same ones.
    """
    made = {} if made is None else made
    found = []
    for node, score, text in nodes:
        key = (id(node), finite(score), text)
        passage = made.get(key)
        if passage is None:
            passage = made[key] = Passage(
                text=text,
                id=first_string({"id": getattr(node, "node_id", None)}, ("id",)),
                score=key[1],
                metadata=getattr(node, "metadata", None) or {},
            )
        found.append(passage)
    return found


# --------------------------------------------------------------------------- models and tools


@or_else(None)
def model_of(response: Any, asked: Mapping[str, Any]) -> str | None:
    """Return the model's name: as the provider reported it, else as it was asked for.

    Args:
        response: the model's response.
        asked: the model's description in the event of its start.
    """
    raw = getattr(response, "raw", None)
    reported = raw if isinstance(raw, Mapping) else {key: getattr(raw, key, None) for key in ("model", "model_version")}
    name = first_string(
        {key: value for key, value in reported.items() if is_a(value, str)}, ("model", "model_version", "modelId")
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
    if len(values) == 1 and is_a(values[0], str):
        return str.__str__(values[0])
    return as_json(named if named else values)


def as_json(value: Any) -> str:
    """Return any value as JSON; what JSON does not know becomes its ``str``."""
    return json_text(value, _jsonable)


def _jsonable(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return dump(mode="json")
        except Exception:
            pass  # a model may hold what has no JSON
    return str(value)
