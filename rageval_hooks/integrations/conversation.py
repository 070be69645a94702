"""Conversations without a framework: lists of chat messages and of contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.integrations.capture.passages import TEXT_KEYS, PassageLike, passage_of
from rageval_hooks.turn import Passage, Turn

Context = Sequence[PassageLike]
"""The documents that were retrieved for one answer: texts, passages, mappings with ``text``, documents or nodes."""

_USER = frozenset({"user", "human", "customer"})
_ASSISTANT = frozenset({"assistant", "ai", "bot", "chatbot", "ai/chatbot", "model", "system/ai"})
_MESSAGE_KEYS = ("content", "message", "text", "page_content")


def turns_from_conversation(messages: Sequence[Mapping[str, Any]], contexts: Sequence[Context] | Context) -> list[Turn]:
    """Build one turn for each answer of a conversation.

    Args:
        messages: mappings with a ``role`` (``user`` or ``assistant``, or other names for them) and a ``content``
            (or ``message``, or ``text``), in their order. An answer's query is the last user message before it.
        contexts: one context per answer, in their order; or, where every item is a passage and not a list of passages,
            one context for all of them.

    Raises:
        TurnError: a message has no role or text, an answer has no question, or there are not as many contexts as
            answers.
    """
    pairs = _pairs(messages)
    shared = all(passage_of(context) is not None for context in contexts)
    per_answer: Sequence[Any] = [contexts] * len(pairs) if shared else contexts
    if len(per_answer) != len(pairs):
        raise TurnError(
            f"{len(pairs)} answers but {len(per_answer)} contexts: give one list of passages for each answer, "
            "or one flat list of passages for all"
        )
    return [
        Turn(id=str(number), query=query, response=response, passages=tuple(_passage(item, number) for item in context))
        for number, ((query, response), context) in enumerate(zip(pairs, per_answer, strict=True), 1)
    ]


def _pairs(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    pairs = []
    question: str | None = None
    for number, message in enumerate(messages, 1):
        role = str(message.get("role", "")).strip().lower()
        text = _text_of(message, number)
        if role in _USER:
            question = text
        elif role in _ASSISTANT:
            if question is None:
                continue  # a greeting
            pairs.append((question, text))
            question = None
        elif role != "system":
            raise TurnError(f"message {number} has the role {message.get('role')!r}; it must be user or assistant")
    return pairs


def _text_of(message: Mapping[str, Any], number: int) -> str:
    for key in _MESSAGE_KEYS:
        text = message.get(key)
        if isinstance(text, str):
            return text
    raise TurnError(f"message {number} has no text: give it under one of {', '.join(_MESSAGE_KEYS)}")


def _passage(item: Any, number: int) -> Passage:
    passage = passage_of(item)
    if passage is not None:
        return passage
    if isinstance(item, Mapping):
        raise TurnError(
            f"a passage of answer {number} has no text: give it under a key such as {', '.join(TEXT_KEYS[:4])}"
        )
    raise TurnError(
        f"a passage of answer {number} is a {type(item).__name__}; give a text, a Passage, a mapping, a document of "
        "LangChain or a node of LlamaIndex"
    )
