"""Finds the answer in what a chain returns, and puts another one in its place, whatever its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final

from rageval_hooks.guard.options import GuardDecision
from rageval_hooks.runtime.narrowing import content_text, mapping_or_empty

DECISION_KEY: Final = "rageval_guard"
"""The key of the decision in a message's ``response_metadata`` and in a mapping."""

_MESSAGES: Final = "messages"
"""The key of the conversation in the state of an agent; its last message is the answer."""


def text_in(value: Any) -> str | None:
    """Return the text of an answer: a string, or a message's content. None if there is no text."""
    if isinstance(value, str):
        return value
    content = getattr(value, "content", None)
    return content_text(content) if isinstance(content, (str, list)) else None


def question_in(value: Any, keys: Sequence[str]) -> str:
    """Return the question in the input or output of a chain; empty without one."""
    if isinstance(value, str):
        return value
    fields = mapping_or_empty(value)
    return next((text for key in keys if (text := text_in(fields.get(key))) is not None), "")


def _place_and_part(value: Any, keys: Sequence[str]) -> tuple[str | None, Any]:
    """Return the key under which a mapping has its answer, and the string or message with the answer."""
    if not isinstance(value, Mapping):
        return None, value
    for key in keys:
        if text_in(value.get(key)) is not None:
            return key, value[key]
    messages = value.get(_MESSAGES)
    return (_MESSAGES, messages[-1]) if isinstance(messages, list) and messages else (None, None)


def answer_in(value: Any, keys: Sequence[str]) -> str | None:
    """Return the answer in the output of a chain; None without one.

    Args:
        value: a string, a message, a mapping with one of the keys, or the state of an agent with ``messages``.
        keys: the keys of an answer, in order.
    """
    return text_in(_place_and_part(value, keys)[1])


def with_decision(value: Any, keys: Sequence[str], decision: GuardDecision) -> Any:
    """Return the output of a chain with what the guard hands on. The value itself is not changed.

    A string is a string afterwards. A message has the decision in ``response_metadata``, and keeps its id, its usage
    and, if it passes, its blocks. A mapping has the decision under ``rageval_guard``.
    """
    place, part = _place_and_part(value, keys)
    if isinstance(part, str):
        part = decision.answer
    else:
        metadata = {**getattr(part, "response_metadata", {}), DECISION_KEY: decision.summary()}
        content = {"content": decision.answer} if decision.blocked else {}
        part = part.model_copy(update={**content, "response_metadata": metadata})
    if not isinstance(value, Mapping):
        return part
    changed: Any = copy(value)  # of the same class: LangChain adds up chunks of AddableDict
    changed[place] = [*value[_MESSAGES][:-1], part] if place == _MESSAGES else part
    changed[DECISION_KEY] = decision.summary()
    return changed


def ending_chunk(chunk: Any, keys: Sequence[str], text: str) -> Any:
    """Return a chunk of a stream in the form of another one, with a text and nothing else but the id.

    Chunks are added up: of two parts of a message, only one may have its usage and its metadata.
    """
    place, part = _place_and_part(chunk, keys)
    made: Any = text
    if not isinstance(part, str):
        role = {"role": part.role} if hasattr(part, "role") else {}
        made = type(part)(content=text, id=part.id, **role)
    if not isinstance(chunk, Mapping):
        return made
    changed: Any = copy(chunk)
    changed.clear()
    changed[place] = [made] if place == _MESSAGES else made
    return changed
