"""Finds the answer in what a chain returns, and puts another one in its place, whatever its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final

from rageval_hooks.guard.options import GuardDecision
from rageval_hooks.runtime.narrowing import mapping_or_empty, text_or_empty

DECISION_KEY: Final = "rageval_guard"
"""The key of the decision in a message's ``response_metadata`` and in a mapping."""

_MESSAGES: Final = "messages"
"""The key of the conversation in the state of an agent; its last message is the answer."""


def text_in(value: Any) -> str | None:
    """Return the text of an answer: a string, or a message's content. None if there is no text."""
    if isinstance(value, str):
        return value
    content = getattr(value, "content", None)
    if isinstance(content, str):
        return content
    return "".join(map(_block_text, content)) if isinstance(content, list) else None


def _block_text(block: object) -> str:
    # "text", or {"type": "text", "text": "…"}; other blocks are reasoning, images and tool calls.
    if isinstance(block, str):
        return block
    fields = mapping_or_empty(block)
    return text_or_empty(fields.get("text")) if fields.get("type") == "text" else ""


def answer_in(value: Any, keys: Sequence[str]) -> str | None:
    """Return the answer in the output of a chain; None without one.

    Args:
        value: a string, a message, a mapping with one of the keys, or the state of an agent with ``messages``.
        keys: the keys of an answer, in order.
    """
    return text_in(_part(value, keys))


def question_in(value: Any, keys: Sequence[str]) -> str:
    """Return the question in the input or output of a chain; empty without one."""
    if isinstance(value, str):
        return value
    fields = mapping_or_empty(value)
    return next((text for key in keys if (text := text_in(fields.get(key))) is not None), "")


def _place(value: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the key under which a mapping has its answer."""
    for key in keys:
        if text_in(value.get(key)) is not None:
            return key
    messages = value.get(_MESSAGES)
    return _MESSAGES if isinstance(messages, list) and messages else None


def _part(value: Any, keys: Sequence[str]) -> Any:
    """Return the string or message with the answer: the value itself, or a part of a mapping."""
    if not isinstance(value, Mapping):
        return value
    place = _place(value, keys)
    if place is None:
        return None
    return value[place][-1] if place == _MESSAGES else value[place]


def _with_part(value: Any, keys: Sequence[str], part: Any, *, bare: bool = False) -> Any:
    """Return a copy of the output of a chain with another string or message as its answer.

    Args:
        value: the output, which has an answer.
        keys: the keys of an answer, in order.
        part: the new answer.
        bare: True for a mapping with the answer and nothing else.
    """
    if not isinstance(value, Mapping):
        return part
    place = _place(value, keys)
    changed: Any = copy(value)  # of the same class: LangChain adds up chunks of AddableDict
    if bare:
        changed.clear()
    changed[place] = [*([] if bare else value[_MESSAGES][:-1]), part] if place == _MESSAGES else part
    return changed


def _with_text(part: Any, text: str) -> Any:
    """Return a string or a message with another text. A message keeps its id, its usage and everything else."""
    return text if isinstance(part, str) else part.model_copy(update={"content": text})


def with_decision(value: Any, keys: Sequence[str], decision: GuardDecision) -> Any:
    """Return the output of a chain with what the guard hands on. The value itself is not changed.

    A string is a string afterwards. A message has the decision in ``response_metadata``, and a mapping has it under
    ``rageval_guard``.
    """
    part = _part(value, keys)
    # An answer that passes keeps its blocks.
    changed = _with_text(part, decision.answer) if decision.blocked else part
    if not isinstance(changed, str):
        metadata = {**getattr(changed, "response_metadata", {}), DECISION_KEY: decision.summary()}
        changed = changed.model_copy(update={"response_metadata": metadata})
    changed = _with_part(value, keys, changed)
    if isinstance(value, Mapping):
        changed[DECISION_KEY] = decision.summary()
    return changed


# --------------------------------------------------------------------------- chunks of a stream


def split_chunk(chunk: Any, keys: Sequence[str], at: int) -> tuple[list[Any], Any]:
    """Split a chunk after some characters of its text.

    Returns:
        The first part, in a list, and the rest. The list is empty if nothing is before the position, or if the chunk
        cannot be split: then the rest is the whole chunk.
    """
    part = _part(chunk, keys)
    # Whole messages, unlike their chunks, cannot be added up again.
    can_split = isinstance(part, str) or (
        type(part).__name__.endswith("MessageChunk") and isinstance(part.content, str)
    )
    text = text_in(part)
    if not at or text is None or not can_split:
        return [], chunk
    return [bare_chunk(chunk, keys, text[:at])], _with_part(chunk, keys, _with_text(part, text[at:]))


def bare_chunk(chunk: Any, keys: Sequence[str], text: str) -> Any:
    """Return a chunk of the same form with another text and nothing else but its id.

    Chunks are added up: of two parts of a message, only one may have its usage and its metadata.
    """
    part = _part(chunk, keys)
    if isinstance(part, str):
        return _with_part(chunk, keys, text, bare=True)
    role = {"role": part.role} if hasattr(part, "role") else {}
    return _with_part(chunk, keys, type(part)(content=text, id=part.id, **role), bare=True)
