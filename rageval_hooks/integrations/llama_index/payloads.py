"""Reading LlamaIndex's inputs and outputs: the question, the answer, a tool's arguments, streamed answers.

By attribute names: the classes are not imported, because importing llama-index-core takes seconds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rageval_hooks.integrations.capture.values import is_a, or_else
from rageval_hooks.integrations.llama_index.messages import as_json, is_message, message_text, role_of

__all__ = [
    "Streamed",
    "answer_of",
    "arguments_of",
    "fields_of",
    "is_generator",
    "query_of",
    "streamed_in",
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
"""Names of arguments and fields that hold a question, the most specific first."""

_ANSWER_KEYS = ("result", "response", "response_txt", "answer", "output", "message", "text", "content")
_DEPTH = 5


# --------------------------------------------------------------------------- questions


def arguments_of(bound: Any) -> dict[str, Any]:
    """Return the arguments of a call by name. An operation without a call has a dict already."""
    return bound if isinstance(bound, dict) else getattr(bound, "arguments", None) or {}


@or_else("")
def query_of(value: Any, depth: int = 0) -> str:
    """Return the user's question from the input of a component; empty if it has none."""
    if isinstance(value, str):
        return value
    if value is None or depth > _DEPTH:
        return ""
    query = getattr(value, "query_str", None)  # of a QueryBundle
    if isinstance(query, str):
        return query
    if is_message(value):
        return message_text(value)
    if isinstance(value, (list, tuple)):
        return _query_in_list(value, depth)
    return _query_in_fields(value, depth)


def _query_in_list(values: Sequence[Any], depth: int) -> str:
    user_messages = [item for item in values if is_message(item) and role_of(item) == "user"]
    if user_messages:
        return message_text(user_messages[-1])
    return query_of(values[0], depth + 1) if len(values) == 1 else ""


def _query_in_fields(value: Any, depth: int) -> str:
    fields = fields_of(value)
    for key in _QUERY_KEYS:
        found = query_of(fields.get(key), depth + 1)
        if found:
            return found
    # The arguments of the root and the fields of an event may have any name.
    if depth == 0:
        return _only_string(fields)
    has_known_key = any(key in fields for key in _QUERY_KEYS)
    return _only_string(fields) if _is_mapping(value) and not has_known_key else ""


# --------------------------------------------------------------------------- answers


@or_else("")
def answer_of(value: Any, depth: int = 0) -> str:
    """Return the answer from the output of a component; empty if it has none."""
    if isinstance(value, str):
        return value
    if value is None or depth > _DEPTH or isinstance(value, (list, tuple, bool, int, float)):
        return ""
    is_tool_output = isinstance(getattr(value, "content", None), str)
    if is_message(value) or is_tool_output:
        return message_text(value)
    return _answer_in_fields(value, depth)


def _answer_in_fields(value: Any, depth: int) -> str:
    fields = fields_of(value)
    for key in _ANSWER_KEYS:
        found = answer_of(fields.get(key), depth + 1)
        if found:
            return found
    if any(key in fields for key in _ANSWER_KEYS):
        return ""
    if depth > 0 and hasattr(value, "model_dump"):
        return as_json(value)  # a structured answer
    return _only_string(fields) if _is_mapping(value) else ""


# --------------------------------------------------------------------------- fields


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a mapping, a dataclass, a pydantic model or a workflow event, by name."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    found = dict(getattr(value, "__dict__", {}))
    private = _private(value)
    found.update(private.get("_data") or {})
    if "_result" in private:  # of a workflow's StopEvent
        found["result"] = private["_result"]
    return found


def _only_string(fields: Mapping[str, Any]) -> str:
    strings = [item for item in fields.values() if is_a(item, str) and item]
    return strings[0] if len(strings) == 1 else ""


def _is_mapping(value: Any) -> bool:
    """Return True for a mapping, and for a workflow's event, which may have any fields."""
    return isinstance(value, Mapping) or "_data" in _private(value)


def _private(value: Any) -> dict[str, Any]:
    """Return the private attributes of a pydantic model: a workflow's event keeps its own fields there."""
    private = getattr(value, "__pydantic_private__", None)
    return private if isinstance(private, dict) else {}


# --------------------------------------------------------------------------- tools


def tool_input(bound: Any) -> str:
    """Return a tool's arguments as text: a single text unchanged, anything else as JSON."""
    arguments = arguments_of(bound)
    named = {key: value for key, value in arguments.items() if key not in ("args", "kwargs")}
    named.update(arguments.get("kwargs") or {})
    values = [*(arguments.get("args") or ()), *named.values()]
    if len(values) == 1 and is_a(values[0], str):
        return str.__str__(values[0])
    return as_json(named or values)


# --------------------------------------------------------------------------- streamed answers


@or_else(False)
def is_generator(value: Any) -> bool:
    """Return True for a generator, synchronous or asynchronous."""
    return isinstance(value, (Generator, AsyncGenerator))


@dataclass(frozen=True)
class Streamed:
    """The place of a streamed answer in a record.

    The record must not keep the answer alive: a stream that its reader drops is to end.

    Attributes:
        of: the ``id`` of the response or of the generator.
    """

    of: int


@or_else(())
def streamed_in(result: Any) -> Sequence[Any]:
    """Return the generators in the result of a span, and the responses whose text comes from a generator.

    A workflow's result is inside its last event. The streamed answer of a chat engine is not included: a thread or
    task of the engine reads it.
    """
    inner = _private(result).get("_result")
    values = (result,) if inner is None else (result, inner)
    return [value for value in values if _is_streamed(value)]


def _is_streamed(value: Any) -> bool:
    fields = getattr(value, "__dict__", None)
    has_generator = fields is not None and fields.get("response_gen") is not None
    return has_generator or is_generator(value)
