"""Messages as the GenAI conventions write them: JSON in ``gen_ai.input.messages`` and its neighbours."""

from __future__ import annotations

from collections.abc import Iterable

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.otel.attributes import Attributes, json_string
from rageval_hooks.turn import Message

__all__ = ["add_input_messages", "add_output_message"]

_INSTRUCTION_ROLES = frozenset({"system", "developer"})


def add_input_messages(attributes: Attributes, messages: Iterable[Message]) -> None:
    """Set the prompt: system messages as instructions, the others as input.

    Example:
        ``[{"role": "user", "parts": [{"type": "text", "content": "When was the pier opened?"}]}]``
    """
    instructions = []
    inputs = []
    for message in messages:
        part = {"type": "text", "content": message.content}
        # The conventions keep instructions apart from the conversation.
        if message.role in _INSTRUCTION_ROLES:
            instructions.append(part)
        else:
            inputs.append({"role": message.role, "parts": [part]})
    if inputs:
        attributes[semconv.INPUT_MESSAGES] = json_string(inputs)
    if instructions:
        attributes[semconv.SYSTEM_INSTRUCTIONS] = json_string(instructions)


def add_output_message(attributes: Attributes, text: str, *, complete: bool) -> None:
    """Set what the model answered. The conventions require a reason for the end; one that is known is ``stop``."""
    message = {
        "role": "assistant",
        "parts": [{"type": "text", "content": text}],
        "finish_reason": "stop" if complete else "error",
    }
    attributes[semconv.OUTPUT_MESSAGES] = json_string([message])
