"""Finding the user's question in the input of the root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue

from rageval_hooks.integrations.capture.fields import question_among
from rageval_hooks.integrations.capture.host_values import is_a, or_else
from rageval_hooks.integrations.langchain.payloads import fields_by_name, message_text

_QUERY_KEYS = ("input", "question", "query", "user_input", "prompt", "text")
"""Keys of the usual inputs, for example {"input": "…", "chat_history": […]} of a conversational chain."""

_DEPTH = 4
"""Mappings within mappings that are searched: LangServe and agents wrap inputs, {"input": {"question": "…"}}."""

MESSAGE_KEYS = ("messages", "chat_history", "history")
"""Keys under which mappings have a conversation."""


@or_else("")
def query_of(value: Any, depth: int = _DEPTH) -> str:
    """Return the user's question in the input of the root; empty if it has no question.

    Args:
        value: the input.
        depth: mappings and lists within others that are searched: one may contain itself.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, PromptValue):
        value = value.to_messages()
    if isinstance(value, BaseMessage):
        return message_text(value)
    if isinstance(value, (list, tuple)):
        return _query_in_list(value, depth)
    if not depth:
        return ""
    # Command(resume="yes", update={"question": "…"}) resumes a graph. What the person said to it is not the question.
    if type(value).__name__ == "Command":
        value = getattr(value, "update", None)
    fields: Mapping[Any, Any] = fields_by_name(value)
    for key in _QUERY_KEYS:
        if text := query_of(fields.get(key), depth - 1):
            return str(text)
    return _query_under_other_key(fields)


def _query_in_list(values: Sequence[Any], depth: int) -> str:
    """Return the question in a conversation: what the user said last."""
    if depth and len(values) == 1:
        # A model that is called by itself gets a batch of one conversation: [[HumanMessage("…")]] or ["…"].
        [only] = values
        if isinstance(only, (str, list)):
            return query_of(only, depth - 1)
    return last_human_text(values)


def _query_under_other_key(fields: Mapping[Any, Any]) -> str:
    """Return the question in a mapping that has it under no known key: in a conversation, or next to one."""
    conversations = {key: as_messages(fields.get(key), key) for key in MESSAGE_KEYS}
    texts = {key: last_human_text(messages) for key, messages in conversations.items()}
    for key, text in texts.items():
        # A conversation under "messages" ends with the question; a history that ends with an answer lies before it.
        if text and (key == "messages" or not _is_answered(conversations[key])):
            return text

    # For example {"topic": "When was the pier opened?", "chat_history": [question, answer]}.
    others = {key: item for key, item in fields.items() if key not in MESSAGE_KEYS}
    if any(strings_in(others)):
        return question_among(others)
    return next(filter(None, texts.values()), "")


def strings_in(fields: Mapping[Any, Any]) -> list[str]:
    """Return the strings of a mapping, without conversations that are given as text."""
    return [item for key, item in fields.items() if is_a(item, str) and key not in MESSAGE_KEYS]


def as_messages(value: Any, key: str) -> Sequence[Any]:
    """Return the messages under a key. A string is one only under ``messages``; elsewhere it is a history as text."""
    if is_a(value, (list, tuple)):
        return list(value)
    if value is None:
        return ()
    # For example {"chat_history": "Human: Hello\nAI: Hello"}.
    if key != "messages" and is_a(value, str):
        return ()
    return (value,)


@or_else(False)
def _is_answered(messages: Sequence[Any]) -> bool:
    """Return True if a conversation ends with an answer."""
    [last] = convert_to_messages(messages[-1:])
    # A message with tool calls asks for something first: AIMessage(content="", tool_calls=[{"name": "search", …}]).
    return isinstance(last, AIMessage) and not last.tool_calls


@or_else("")
def last_human_text(messages: Sequence[Any]) -> str:
    """Return what the user said last."""
    for message in reversed(messages):
        human = _as_human(message)
        if human is not None:
            return message_text(human)
    return ""


@or_else(None)
def _as_human(message: Any) -> HumanMessage | None:
    if not isinstance(message, BaseMessage):
        # The other forms of a message: "Hello", ("user", "Hello") or {"role": "user", "content": "Hello"}.
        [message] = convert_to_messages([message])
    return message if isinstance(message, HumanMessage) else None
