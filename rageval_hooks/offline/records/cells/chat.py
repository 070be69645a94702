"""Text in chat messages, in the formats of OpenAI, LangChain and ShareGPT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["chat_text"]

_ROLES = {"user": frozenset({"human", "user"}), "assistant": frozenset({"ai", "assistant", "model", "bot", "gpt"})}


def chat_text(value: Any, role: str) -> str:
    """Return the text of the last message of a role; empty if no message has it.

    Args:
        value: messages, an object with ``messages``, or the ``choices`` of a chat completion.
        role: ``user`` or ``assistant``.
    """
    if isinstance(value, Mapping):
        if (choice := _first_choice(value)) is not None:
            return _content(choice.get("message"))
        value = value.get("messages")
    if not isinstance(value, list):
        return ""
    roles = _ROLES.get(role, frozenset())
    # The newest message counts: the earlier ones are the history of the conversation.
    for message in reversed(_messages(value)):
        if isinstance(message, Mapping) and _role(message) in roles:
            return _content(message)
    return ""


def _first_choice(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the first choice of a chat completion: ``{"choices": [{"message": {...}}]}``."""
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices:
        return None
    return choices[0] if isinstance(choices[0], Mapping) else None


def _messages(value: list[Any]) -> list[Any]:
    # LangChain's dumps have a list of messages per prompt: `[[{"type": "human", ...}]]`.
    nested = bool(value) and isinstance(value[0], list)
    return value[0] if nested else value


def _role(message: Mapping[str, Any]) -> str:
    """Return the role under its name in OpenAI's, LangChain's or ShareGPT's format."""
    return str(message.get("role") or message.get("type") or message.get("from")).lower()


def _content(message: Any) -> str:
    """Return a message's text, which may be in parts: ``[{"type": "text", "text": "..."}]``."""
    if not isinstance(message, Mapping):
        return ""
    content = message.get("content", message.get("value"))
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    # Parts without a text are pictures or calls of tools.
    texts = [str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part]
    return "".join(texts)
