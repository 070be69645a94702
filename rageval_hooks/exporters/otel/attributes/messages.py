"""Messages and tools as the GenAI conventions write them: JSON in ``gen_ai.input.messages`` and its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import from_json

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.otel.attributes.ordering import Attributes, is_json, json_string
from rageval_hooks.messages import Message, ToolCall

__all__ = ["add_input_messages", "add_output_message", "add_tool_definitions", "parsed", "text_beside"]

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
        schema = parsed(tool)
        # OpenAI's form has the definition inside: {"type": "function", "function": {"name": "search", …}}.
        definition = schema.get("function", schema) if isinstance(schema, dict) else {"name": tool}
        definitions.append({"type": "function", **definition})
    if definitions:
        attributes[semconv.TOOL_DEFINITIONS] = json_string(definitions)


def text_beside(text: str, calls: Sequence[ToolCall]) -> str:
    """Return the text of a message with tool calls; empty if the text is only the calls as JSON."""
    return "" if calls and is_json(text) else text


def parsed(text: str) -> Any:
    """Return what a JSON text says; a text that is not JSON is returned unchanged."""
    try:
        return from_json(text)
    except ValueError:
        return text


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
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": parsed(call.arguments)}
