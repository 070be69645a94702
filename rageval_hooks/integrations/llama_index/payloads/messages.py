"""Reading prompts, model responses and tool arguments of LlamaIndex.

By attribute names: the classes are not imported, because importing llama-index-core takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.host_values import attribute_text, first_string, or_else
from rageval_hooks.messages import Message, ToolCall
from rageval_hooks.runtime.jsonable import json_text, string_of
from rageval_hooks.runtime.narrowing import (
    entry_or_attribute,
    first_text,
    items_or_empty,
    mapping_or_empty,
    text_or_none,
)

__all__ = [
    "as_json",
    "is_message",
    "message_text",
    "messages_of",
    "model_of",
    "refusal_of",
    "requested_model_in",
    "response_id_of",
    "role_of",
    "tool_call",
    "tool_calls_of",
]

# Roles of LlamaIndex's MessageRole, and the roles of model APIs.
_ROLES = {"chatbot": "assistant", "model": "assistant", "developer": "system", "function": "tool"}
_MODEL_KEYS = ("model", "model_version", "modelId")
_RESPONSE_ID_KEYS = ("id", "response_id", "responseId")


@or_else(False)
def is_message(value: Any) -> bool:
    """Return True for a chat message."""
    # A PydanticResponse has every attribute, each None, so that hasattr alone says nothing.
    if getattr(value, "role", None) is None:
        return False
    return hasattr(value, "blocks") or hasattr(value, "content")


def role_of(message: Any) -> str:
    """Return the role of a chat message, by the names that turns use."""
    role = str(getattr(message.role, "value", message.role))
    return _ROLES.get(role, role)


def message_text(message: Any) -> str:
    """Return the text of a message."""
    return attribute_text(message, "content") or ""


def tool_calls_of(response: Any) -> list[Any]:
    """Return the tool calls that a model asked for."""
    return _tool_calls_in(getattr(response, "message", None))


def _tool_calls_in(message: Any) -> list[Any]:
    # Older model classes: ChatMessage(additional_kwargs={"tool_calls": [{"function": {"name": "search", …}}]}).
    kwargs = mapping_or_empty(getattr(message, "additional_kwargs", None))
    calls = items_or_empty(kwargs.get("tool_calls"))
    if calls:
        return list(calls)
    # ChatMessage(blocks=[TextBlock(…), ToolCallBlock(tool_name="search", …)])
    blocks = getattr(message, "blocks", ())
    return [block for block in blocks if getattr(block, "block_type", "") == "tool_call"]


def messages_of(prompt: Any) -> tuple[Message, ...]:
    """Return the prompt of a model call, which is a text or a list of chat messages."""
    if isinstance(prompt, str):
        return (Message(role="user", content=prompt),)
    if not isinstance(prompt, Sequence):
        return ()
    return tuple(_prompt_message(message) for message in prompt if is_message(message))


def _prompt_message(message: Any) -> Message:
    text = message_text(message)
    calls = _tool_calls_in(message)
    if not text and calls:
        text = as_json(calls)
    return Message(
        role=role_of(message),
        content=text,
        tool_calls=tuple(map(tool_call, calls)),
        tool_call_id=_text_option(message, "tool_call_id"),
        name=_text_option(message, "name"),
    )


@or_else(None)
def _text_option(message: Any, name: str) -> str | None:
    """Return an option of a message, such as the id of the call that it answers: {"tool_call_id": "call_1"}."""
    return text_or_none(message.additional_kwargs.get(name))


def tool_call(call: Any) -> ToolCall:
    """Return a tool call.

    LlamaIndex has ``tool_id``, ``tool_name`` and ``tool_kwargs``, or a block with ``tool_call_id``; providers have
    ``id`` and ``function`` with ``name`` and ``arguments``, as objects or mappings.
    """
    function = entry_or_attribute(call, "function") or call
    arguments = _first_field(function, ("tool_kwargs", "arguments", "input"))
    return ToolCall(
        name=string_of(_first_field(function, ("tool_name", "name"))),
        arguments=arguments if isinstance(arguments, str) else as_json(arguments or {}),
        id=_first_field(call, ("tool_id", "tool_call_id", "id")),
    )


def _first_field(value: Any, names: Sequence[str]) -> Any:
    for name in names:
        found = entry_or_attribute(value, name)
        if found is not None:
            return found
    return None


@or_else(None)
def model_of(response: Any) -> str | None:
    """Return the model's name as the provider reported it in ``raw``, an object or a mapping."""
    name = _reported(response, _MODEL_KEYS)
    return None if name == "unknown" else name


@or_else("")
def refusal_of(response: Any) -> str:
    """Return the words in which a model refused, for which OpenAI has a separate field; empty if it did not."""
    choice = next(iter(items_or_empty(entry_or_attribute(getattr(response, "raw", None), "choices"))), None)
    places = (entry_or_attribute(choice, "message"), getattr(response, "additional_kwargs", None))
    return first_text(entry_or_attribute(place, "refusal") for place in places) or ""


@or_else(None)
def response_id_of(response: Any) -> str | None:
    """Return the provider's id of a completion, for example ``chatcmpl-…``."""
    return _reported(response, _RESPONSE_ID_KEYS)


def _reported(response: Any, keys: tuple[str, ...]) -> str | None:
    """Return the first text under some keys of the provider's own response, an object or a mapping."""
    raw = getattr(response, "raw", None)
    return first_text(entry_or_attribute(raw, key) for key in keys)


@or_else(None)
def requested_model_in(description: Mapping[str, Any] | None) -> str | None:
    """Return the model's name in the event of a call's start, for example {"model_name": "gpt-4.1", "num_output": 256}.

    Models without a name are called "unknown" there.
    """
    name = first_string(description, ("model_name", "model"))
    return None if name == "unknown" else name


def as_json(value: Any) -> str:
    """Return any value as JSON. A value that JSON does not know becomes its ``str``."""
    return json_text(value, _jsonable)


def _jsonable(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return dump(mode="json", warnings=False)
        except Exception:
            pass  # a field of the model has no JSON form: its text has to do
    return str(value)
