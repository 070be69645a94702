"""Reading messages, tool calls and arguments of LlamaIndex.

By attribute names: the classes are not imported, because importing llama-index-core takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rageval_hooks.integrations.capture.host_values import attribute_text, or_else
from rageval_hooks.runtime.jsonable import json_text, string_of
from rageval_hooks.runtime.narrowing import (
    entry_or_attribute,
    items_or_empty,
    mapping_or_empty,
    text_or_none,
)
from rageval_hooks.turn import Message, ToolCall

# Roles of LlamaIndex's MessageRole, and the roles of model APIs.
_ROLES = {"chatbot": "assistant", "model": "assistant", "developer": "system", "function": "tool"}


def arguments_of(bound: Any) -> dict[str, Any]:
    """Return the arguments of a call by name. An operation without a call has a dict already."""
    if isinstance(bound, dict):
        return bound
    # LlamaIndex's spans carry an inspect.BoundArguments.
    return getattr(bound, "arguments", None) or {}


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


def tool_fields(tool: Any) -> dict[str, Any]:
    """Return a tool's description of itself: its description and the schema of its parameters."""
    return {"description": _description(tool), "tool_schema": _schema(tool)}


@or_else(None)
def _description(tool: Any) -> str | None:
    return tool.metadata.description or None


@or_else(None)
def _schema(tool: Any) -> str | None:
    return as_json(tool.metadata.get_parameters_dict())
