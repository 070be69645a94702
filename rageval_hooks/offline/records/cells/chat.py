"""Text in chat messages, in the formats of OpenAI, LangChain and ShareGPT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rageval_hooks.runtime.narrowing import items_or_empty, mapping_or_empty, mappings_in

__all__ = ["chat_text"]

_ROLES = {"user": frozenset({"human", "user"}), "assistant": frozenset({"ai", "assistant", "model", "bot", "gpt"})}


def chat_text(value: Any, role: str) -> str:
    """Return the text of the last message of a role; empty if no message has it.

    Args:
        value: messages, an object with ``messages``, or the ``choices`` of a chat completion.
        role: ``user`` or ``assistant``.
    """
    if isinstance(value, Mapping):
        # A chat completion: `{"choices": [{"message": {...}}]}`.
        choices = mappings_in(value.get("choices"))
        if choices:
            return _content(choices[0].get("message"))
        value = value.get("messages")
    messages = items_or_empty(value)
    # LangChain's dumps have a list of messages per prompt: `[[{"type": "human", ...}]]`.
    if messages and isinstance(messages[0], list):
        messages = messages[0]
    roles = _ROLES.get(role, frozenset())
    # The newest message counts: the earlier ones are the history of the conversation.
    for message in reversed(mappings_in(messages)):
        if _role(message) in roles:
            return _content(message)
    return ""


def _role(message: Mapping[str, Any]) -> str:
    """Return the role under its name in OpenAI's, LangChain's or ShareGPT's format."""
    return str(message.get("role") or message.get("type") or message.get("from")).lower()


def _content(message: Any) -> str:
    """Return a message's text, which may be in parts: ``[{"type": "text", "text": "..."}]``."""
    fields = mapping_or_empty(message)
    content = fields.get("content", fields.get("value"))
    if isinstance(content, str):
        return content
    # Parts without a text are pictures or calls of tools.
    return "".join(str(part["text"]) for part in mappings_in(content) if "text" in part)
