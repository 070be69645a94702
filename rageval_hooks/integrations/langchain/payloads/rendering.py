"""LangChain's values as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue

from rageval_hooks.integrations.capture.host_values import is_a, or_else
from rageval_hooks.integrations.langchain.payloads.copying import DocumentSnapshot, MessageSnapshot
from rageval_hooks.integrations.langchain.payloads.states import is_structured_answer
from rageval_hooks.runtime.jsonable import json_text
from rageval_hooks.runtime.narrowing import mapping_or_empty, text_or_empty

__all__ = ["as_json", "as_text", "content_text", "is_content", "message_text", "role_of", "tool_text"]

# LangChain's names of message types, and the roles of model APIs. Chunks of a stream are named after their class.
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user"}


def role_of(message_type: str) -> str:
    """Return the usual name of a message type, for example ``user`` for LangChain's ``human``."""
    return _ROLES.get(message_type, message_type)


def content_text(content: Any) -> str:
    """Return the text of a message's content, which may be a list of blocks."""
    if isinstance(content, str):
        return str.__str__(content)  # LangChain's ``message.text`` is a subclass of str
    if not isinstance(content, (list, tuple)):
        return ""
    # Claude and the Responses API of OpenAI answer in blocks: [{"type": "text", "text": "It opened in 1869."}].
    return "".join(map(_block_text, content))


def _block_text(block: Any) -> str:
    """Return the text of a block: a string, or {"type": "text", "text": "…"}. Images and tool calls have no text."""
    text = block
    if is_a(block, Mapping):
        # The Responses API of OpenAI: {"type": "refusal", "refusal": "I cannot help with that."}
        text = block.get("refusal" if block.get("type") == "refusal" else "text")
    return str.__str__(text) if is_a(text, str) else ""


def message_text(message: BaseMessage | MessageSnapshot) -> str:
    """Return the text of a message. If it has none, the refusal of the model, for which OpenAI has a separate field."""
    text = content_text(message.content)
    return text or text_or_empty(mapping_or_empty(message.additional_kwargs).get("refusal"))


@or_else(False)
def is_content(value: Any) -> bool:
    """Return True if a value is the content of a message as blocks, with some text."""
    # [{"type": "reasoning", "summary": []}, {"type": "text", "text": "It opened in 1869."}]
    if not isinstance(value, (list, tuple)) or not content_text(value):
        return False
    return all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in value)


def tool_text(output: Any) -> str:
    """Return the text that a tool returned to the model."""
    return message_text(output) if is_a(output, BaseMessage) else as_text(output)


def as_text(value: Any) -> str:
    """Return any input or output as text; objects become JSON."""
    if value is None:
        return ""
    if is_a(value, str):
        return str.__str__(value)
    if is_a(value, BaseMessage):
        return message_text(value)
    if is_a(value, PromptValue):
        return str(value.to_string())
    return as_json(value)


def as_json(value: Any) -> str:
    """Return any value as JSON; what JSON cannot express becomes its ``str``."""
    return json_text(value, _jsonable)


def _jsonable(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return {"role": role_of(value.type), "content": value.content}
    if isinstance(value, (Document, DocumentSnapshot)):
        return {"id": value.id, "page_content": value.page_content, "metadata": value.metadata}
    if is_structured_answer(value):
        # No warnings: the fields of an object made by `model_construct` may have values of other types.
        return value.model_dump(mode="json", warnings=False)
    return str(value)
