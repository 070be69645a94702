"""A span's attributes: their order, and messages and tools as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from pydantic_core import from_json, to_json

from rageval_hooks.exporters import semconv
from rageval_hooks.messages import Message, ToolCall

__all__ = [
    "Attributes",
    "Value",
    "add_input_messages",
    "add_output_message",
    "add_tool_definitions",
    "chat_request",
    "chat_response",
    "indexed",
    "is_json",
    "json_string",
    "text_beside",
]

Value = str | bool | int | float | Sequence[str] | Sequence[float]


class Attributes(dict[str, Value]):
    """Span attributes, the most important first: what exceeds the provider's limit is cut from the end and counted."""

    def put(self, name: str, value: Value | None) -> None:
        """Set an attribute, unless its value is None."""
        if value is not None:
            self[name] = value

    def within(self, limit: int | None) -> dict[str, Value]:
        """Return at most ``limit`` attributes; if some do not fit, one of these says how many."""
        if limit is None or len(self) <= limit:
            return self
        # The SDK would drop the oldest entries, which are the important ones.
        kept = dict(list(self.items())[: max(0, limit - 1)])
        kept[semconv.DROPPED_ATTRIBUTES] = len(self) - len(kept)
        return kept


@lru_cache(maxsize=4096)
def indexed(template: str, index: int, field: str) -> str:
    """Return the name of an attribute of one of several things; formatting is the larger part of the cost."""
    return template.format(index=index, field=field)


def json_string(value: object) -> str:
    """Return a value as JSON."""
    return to_json(value).decode()


def is_json(text: str) -> bool:
    """Return True if a text is a JSON object or array, and not one that begins with a citation such as ``[1]``."""
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return False
    try:
        from_json(text)
    except ValueError:
        return False
    return True


# --------------------------------------------------------------------------- messages: GenAI's form, and OpenAI's


_INSTRUCTION_ROLES = frozenset({"system", "developer"})


def add_input_messages(attributes: Attributes, messages: Iterable[Message]) -> None:
    """Set the prompt: system messages as instructions, the others as input.

    Example:
        ``[{"role": "user", "parts": [{"type": "text", "content": "When was the pier opened?"}]}]``
    """
    instructions = []
    inputs = []
    for message in messages:
        # The conventions keep instructions apart from the conversation.
        if message.role in _INSTRUCTION_ROLES:
            instructions.append(_text_part(message.content))
        else:
            inputs.append({"role": message.role, "parts": _parts(message)})
    if inputs:
        attributes[semconv.INPUT_MESSAGES] = json_string(inputs)
    if instructions:
        attributes[semconv.SYSTEM_INSTRUCTIONS] = json_string(instructions)


def add_output_message(attributes: Attributes, text: str, calls: Sequence[ToolCall], reason: str) -> None:
    """Set what the model answered.

    Args:
        attributes: get the message.
        text: the answer; empty if the model asked for tools only.
        calls: the tool calls that the model asked for.
        reason: why the model stopped. The conventions require it.
    """
    parts = [_text_part(text)] if text else []
    parts += map(_call_part, calls)
    message = {"role": "assistant", "parts": parts, "finish_reason": reason}
    attributes[semconv.OUTPUT_MESSAGES] = json_string([message])


def add_tool_definitions(attributes: Attributes, tools: Iterable[str]) -> None:
    """Set the tools that the model could call.

    Example:
        ``[{"type": "function", "name": "search", "description": "…", "parameters": {…}}]``
    """
    definitions = []
    for tool in tools:
        schema = _parsed(tool)
        # OpenAI's form has the definition inside: {"type": "function", "function": {"name": "search", …}}.
        definition = schema.get("function", schema) if isinstance(schema, dict) else {"name": tool}
        definitions.append({"type": "function", **definition})
    if definitions:
        attributes[semconv.TOOL_DEFINITIONS] = json_string(definitions)


def chat_request(messages: Iterable[Message]) -> str:
    """Return a prompt as the body of an OpenAI request.

    Example:
        ``{"messages": [{"role": "user", "content": "When was the pier opened?"}]}``
    """
    return json_string({"messages": [_chat_message(message) for message in messages]})


def chat_response(text: str, calls: Sequence[ToolCall], reason: str) -> str:
    """Return what the model answered as the body of an OpenAI response.

    Example:
        ``{"choices": [{"message": {"role": "assistant", "content": "In 2019."}, "finish_reason": "stop", …}]}``
    """
    message = _chat_message(Message(role="assistant", content=text, tool_calls=tuple(calls)))
    return json_string({"choices": [{"index": 0, "message": message, "finish_reason": reason}]})


def text_beside(text: str, calls: Sequence[ToolCall]) -> str:
    """Return the text of a message with tool calls; empty if the text is only the calls as JSON."""
    return "" if calls and is_json(text) else text


def _parsed(text: str) -> Any:
    """Return the value of a JSON text; a text that is not JSON is returned unchanged."""
    try:
        return from_json(text)
    except ValueError:
        return text


def _chat_message(message: Message) -> dict[str, Any]:
    text = text_beside(message.content, message.tool_calls)
    chat: dict[str, Any] = {"role": message.role, "content": text if text or not message.tool_calls else None}
    if message.tool_calls:
        chat["tool_calls"] = [_chat_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        chat["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        chat["name"] = message.name
    return chat


def _chat_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _parts(message: Message) -> list[dict[str, Any]]:
    if message.tool_call_id is not None:
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}]
    text = text_beside(message.content, message.tool_calls)
    parts = [_text_part(text)] if text or not message.tool_calls else []
    parts += map(_call_part, message.tool_calls)
    return parts


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _call_part(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": _parsed(call.arguments)}
