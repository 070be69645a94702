"""Conversations without a framework: lists of chat messages and of contexts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.integrations.capture.passages import TEXT_KEYS, PassageLike, passage_of
from rageval_hooks.runtime.narrowing import content_text
from rageval_hooks.turn import Passage, Turn

Context = Sequence[PassageLike] | PassageLike | None
"""The documents that were retrieved for one answer: a list of texts, passages, mappings with ``text``, documents or
nodes; one of them; or None."""

_logger = logging.getLogger(__name__)

_USER = frozenset({"user", "human", "customer"})
_ASSISTANT = frozenset({"assistant", "ai", "bot", "chatbot", "ai/chatbot", "model", "system/ai", "gpt", "agent"})
_TOOL = frozenset({"tool", "function"})
_INSTRUCTIONS = frozenset({"system", "developer"})
_ROLE_KEYS = ("role", "type", "from", "speaker")
_MESSAGE_KEYS = ("content", "message", "text", "value", "page_content")


def turns_from_conversation(messages: Sequence[Mapping[str, Any]], contexts: Sequence[Context] | Context) -> list[Turn]:
    """Build one turn for each question of a conversation that has an answer.

    Args:
        messages: mappings with a ``role`` and a ``content``, in their order; see :func:`exchanges`.
        contexts: one context per answer, in their order; or, where every item is a passage and not a list of passages,
            one context for all of them. A text or a mapping is one passage for all.

    Raises:
        TurnError: a message has no role or text, or there are not as many contexts as answers.
    """
    for number, message in enumerate(messages, 1):
        if role_of(message) not in _USER | _ASSISTANT | _TOOL | _INSTRUCTIONS:
            raise TurnError(f"message {number} has the role {_role(message)!r}; it must be user or assistant")
        # An answer that only calls tools has no text.
        if role_of(message) in _USER and not any(key in message for key in _MESSAGE_KEYS):
            raise TurnError(f"message {number} has no text: give it under one of {', '.join(_MESSAGE_KEYS)}")
    pairs = exchanges(messages)
    items = _as_list(contexts)
    # None, an empty text and a list are what was retrieved for one answer.
    is_per_answer = any(_is_missing(item) or _is_list(item) for item in items)
    if is_per_answer and len(items) != len(pairs):
        raise TurnError(
            f"{len(pairs)} answers but {len(items)} contexts: give one list of passages for each answer, "
            "or one flat list of passages for all"
        )
    if is_per_answer:
        passages = [_passages(_as_list(item), f"answer {number}") for number, item in enumerate(items, 1)]
    else:
        passages = [_passages(items, "all answers")] * len(pairs)
    return [
        Turn(id=str(number), query=query, response=response, passages=found)
        for number, ((query, response), found) in enumerate(zip(pairs, passages, strict=True), 1)
    ]


def exchanges(messages: Sequence[Any]) -> list[tuple[str, str]]:
    """Return each question of a conversation with its own answer; a question without an answer is left out.

    A question is the last message of the user before an answer. An answer is what the assistant says after it, in one
    message or several; a text next to a call of a tool, or before its result, is none. Messages of the system, of
    tools, and of unknown roles are passed over.

    Args:
        messages: of OpenAI, LangChain or ShareGPT: mappings with a role under ``role``, ``type``, ``from`` or
            ``speaker``, and a text, or blocks of content, under ``content``, ``message``, ``text`` or ``value``.
    """
    pairs = []
    question, answer = "", list[str]()
    for message in (*messages, {"role": "user"}):
        role = role_of(message)
        if role in _USER:
            if question and answer:
                pairs.append((question, "\n\n".join(answer)))
                question = ""
            question, answer = message_text(message) or question, []
        elif role in _TOOL:
            answer = []
        elif role in _ASSISTANT:
            calls = message.get("tool_calls") or message.get("function_call")
            answer += [] if calls else filter(str.strip, [message_text(message)])
    return pairs


def ends_with_question(messages: Sequence[Any]) -> bool:
    """Return True if no answer follows the last message of the user."""
    roles = [role for role in map(role_of, messages) if role in _USER | _ASSISTANT]
    return bool(roles) and roles[-1] in _USER


def role_of(message: Any) -> str:
    """Return the role of a message in lower case; empty for what is no message."""
    return str(_role(message) or "").strip().lower()


def is_from_user(message: Any) -> bool:
    """Return True for a message of the user."""
    return role_of(message) in _USER


def is_from_assistant(message: Any) -> bool:
    """Return True for a message of the assistant."""
    return role_of(message) in _ASSISTANT


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message; empty if it has none."""
    return next((text for key in _MESSAGE_KEYS if (text := content_text(message.get(key)))), "")


def _role(message: Any) -> Any:
    if not isinstance(message, Mapping):
        return None
    return next((message[key] for key in _ROLE_KEYS if message.get(key)), None)


def _as_list(context: Any) -> list[Any]:
    """Return what was retrieved as a list: a text, a mapping or a document is one passage."""
    if _is_missing(context):
        return []
    return list(context) if _is_list(context) else [context]


def _is_missing(item: Any) -> bool:
    return item is None or (isinstance(item, str) and not item.strip())


def _is_list(item: Any) -> bool:
    # A pair of a text and its score is one passage.
    return isinstance(item, Sequence) and not isinstance(item, str) and passage_of(item) is None


def _passages(items: Sequence[Any], whose: str) -> tuple[Passage, ...]:
    given = [item for item in items if not _is_missing(item)]
    found = []
    for item in given:
        passage = passage_of(item)
        if passage is not None:
            found.append(passage)
        elif isinstance(item, Mapping):
            # Vector stores list what they found, sometimes without the text.
            _logger.warning(
                "rageval-hooks: a passage of %s has no text and is not used: give it under a key such as %s "
                "[RAGEVAL-610]", whose, ", ".join(TEXT_KEYS[:4])
            )  # fmt: skip
        else:
            raise TurnError(
                f"a passage of {whose} is a {type(item).__name__}; give a text, a Passage, a mapping, a "
                "document of LangChain or a node of LlamaIndex"
            )
    if given and not found:
        raise TurnError(f"no passage of {whose} has a text: give it under a key such as {TEXT_KEYS[0]}")
    return tuple(found)
