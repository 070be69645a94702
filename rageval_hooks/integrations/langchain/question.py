"""Finding the user's question in the input of the root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue

from rageval_hooks.integrations.capture.values import is_a, or_else
from rageval_hooks.integrations.langchain.rendering import content_text
from rageval_hooks.integrations.langchain.snapshots import is_structured_answer

__all__ = ["MESSAGE_KEYS", "as_messages", "fields_by_name", "last_human_text", "query_of", "strings_in"]

_QUERY_KEYS = ("input", "question", "query", "user_input", "prompt", "text")

_DEPTH = 4

MESSAGE_KEYS = ("messages", "chat_history", "history")
"""Keys under which mappings have a conversation."""


@or_else("")
def query_of(value: Any, depth: int = _DEPTH) -> str:
    """Return the user's question in the input of the root; empty if there is none.

    Args:
        value: the input.
        depth: mappings within mappings that are searched: one may contain itself.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, PromptValue):
        value = value.to_messages()
    if isinstance(value, BaseMessage):
        return content_text(value.content)
    if isinstance(value, (list, tuple)):
        return last_human_text(value)
    fields = fields_by_name(value)
    return _query_in_mapping(fields, depth - 1) if fields and depth else ""


@or_else({})
def fields_by_name(value: Any) -> Mapping[Any, Any]:
    """Return the items of a mapping, or the fields of a state that is a dataclass or a pydantic model."""
    if isinstance(value, Mapping):
        return value
    return vars(value) if is_dataclass(value) or is_structured_answer(value) else {}


def _query_in_mapping(fields: Mapping[Any, Any], depth: int) -> str:
    for key in _QUERY_KEYS:
        if text := query_of(fields.get(key), depth):
            return str(text)
    return _query_under_other_key(fields)


def _query_under_other_key(fields: Mapping[Any, Any]) -> str:
    """Return the question in a mapping that has it under no known key: in a conversation, or next to one."""
    asked = {key: last_human_text(as_messages(fields.get(key), key)) for key in MESSAGE_KEYS}

    # ``messages`` is the conversation to continue. A history that ends with an answer lies before the question.
    for key, text in asked.items():
        if text and (key == "messages" or not _is_answered(as_messages(fields.get(key), key))):
            return text

    strings = [text for text in strings_in(fields) if text]
    if len(strings) == 1:
        return strings[0]
    return "" if strings else next(filter(None, asked.values()), "")


def strings_in(fields: Mapping[Any, Any]) -> list[str]:
    """Return the strings of a mapping, without conversations that are given as text."""
    return [item for key, item in fields.items() if is_a(item, str) and key not in MESSAGE_KEYS]


def as_messages(value: Any, key: str) -> Sequence[Any]:
    """Return the messages under a key. A string is one only under ``messages``; elsewhere it is a history as text."""
    if is_a(value, (list, tuple)):
        return list(value)
    if value is None or (key != "messages" and is_a(value, str)):
        return ()
    return (value,)


@or_else(False)
def _is_answered(messages: Sequence[Any]) -> bool:
    """Return True if a conversation ends with an answer."""
    [last] = convert_to_messages(messages[-1:])
    return isinstance(last, AIMessage) and not last.tool_calls


@or_else("")
def last_human_text(messages: Sequence[Any]) -> str:
    """Return what the user said last."""
    for message in reversed(messages):
        said = _as_human(message)
        if said is not None:
            return content_text(said.content)
    return ""


@or_else(None)
def _as_human(message: Any) -> HumanMessage | None:
    if not isinstance(message, BaseMessage):
        [message] = convert_to_messages([message])
    return message if isinstance(message, HumanMessage) else None
