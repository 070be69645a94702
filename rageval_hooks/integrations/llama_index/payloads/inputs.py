"""The inputs of LlamaIndex's components: the arguments of a call, the user's question, a tool's arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rageval_hooks.integrations.capture.fields.keys import question_keys_in
from rageval_hooks.integrations.capture.host_values import is_a, or_else
from rageval_hooks.integrations.llama_index.payloads.fields import fields_of, is_mapping, only_string, text_under
from rageval_hooks.integrations.llama_index.payloads.messages import as_json, is_message, message_text, role_of

__all__ = ["arguments_of", "query_of", "tool_input"]

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

_DEPTH = 5
"""Values within values that are searched: {"kwargs": {"start_event": StartEvent(input="…")}} of a workflow."""


def arguments_of(bound: Any) -> dict[str, Any]:
    """Return the arguments of a call by name. An operation without a call has a dict already."""
    if isinstance(bound, dict):
        return bound
    # LlamaIndex's spans carry an inspect.BoundArguments.
    return getattr(bound, "arguments", None) or {}


@or_else("")
def query_of(value: Any, depth: int = 0) -> str:
    """Return the user's question from the input of a component; empty if it has none.

    Args:
        value: the input, or a value inside of it.
        depth: how deep inside of the input the value is.
    """
    if isinstance(value, str):
        return value
    if value is None or depth > _DEPTH:
        return ""
    # QueryBundle(query_str="When was the pier opened?", embedding=None)
    query = getattr(value, "query_str", None)
    if isinstance(query, str):
        return query
    if is_message(value):
        return message_text(value)
    if isinstance(value, (list, tuple)):
        return _query_in_list(value, depth)
    return _query_in_fields(value, depth)


def _query_in_list(values: Sequence[Any], depth: int) -> str:
    messages = filter(is_message, values)
    user_messages = [message for message in messages if role_of(message) == "user"]
    if user_messages:
        return message_text(user_messages[-1])
    # The positional arguments of a function: ("When was the pier opened?",).
    if len(values) == 1:
        return query_of(values[0], depth + 1)
    return ""


def _query_in_fields(value: Any, depth: int) -> str:
    fields = fields_of(value)
    found = text_under(fields, _QUERY_KEYS, partial(query_of, depth=depth + 1))
    if found:
        return found
    # The arguments of the root and the fields of an event may have any name.
    is_root = depth == 0
    has_own_names = found is None and is_mapping(value)
    if not (is_root or has_own_names):
        return ""
    return only_string(fields) or _named_question(fields)


def _named_question(fields: Mapping[str, Any]) -> str:
    """Return the one of several strings whose name says that it is the question; empty if none or several say so."""
    named = [key for key, item in fields.items() if item and is_a(item, str)]
    keys = question_keys_in(named)
    return fields[keys[0]] if len(keys) == 1 else ""


def tool_input(bound: Any) -> str:
    """Return a tool's arguments as text: a single text unchanged, anything else as JSON."""
    # A tool's method is called with {"args": ("pier",), "kwargs": {"limit": 3}}, or by the names of its parameters.
    named = dict(arguments_of(bound))
    positional = named.pop("args", None) or ()
    named.update(named.pop("kwargs", None) or {})

    values = [*positional, *named.values()]
    if len(values) == 1 and is_a(values[0], str):
        return str.__str__(values[0])
    return as_json(named or values)
