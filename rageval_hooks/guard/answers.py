"""Finds the answer in what a chain returns, and puts another one in its place, whatever its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final

from rageval_hooks.guard.options import GuardDecision
from rageval_hooks.runtime.narrowing import mapping_or_empty, text_or_empty

__all__ = ["DECISION_KEY", "answer_in", "bare_chunk", "question_in", "split_chunk", "text_in", "with_answer"]

DECISION_KEY: Final = "rageval_guard"
"""The key of the decision in a message's ``response_metadata`` and in a mapping."""

_MESSAGES = "messages"
"""The key of the conversation in the state of an agent; its last message is the answer."""


def text_in(value: Any) -> str | None:
    """Return the text of an answer: a string, or a message's content. None if there is no text."""
    if isinstance(value, str):
        return value
    content = getattr(value, "content", None)
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(map(_block_text, content))
    return None


def _block_text(block: object) -> str:
    # "text", or {"type": "text", "text": "…"}; other blocks are reasoning, images, calls of tools.
    if isinstance(block, str):
        return block
    fields = mapping_or_empty(block)
    if fields.get("type") != "text":
        return ""
    return text_or_empty(fields.get("text"))


def _answer_key(value: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((key for key in keys if text_in(value.get(key)) is not None), None)


def answer_in(value: Any, keys: Sequence[str]) -> str | None:
    """Return the answer in the output of a chain; None without one.

    Args:
        value: a string, a message, a mapping with one of the keys, or the state of an agent with ``messages``.
        keys: the keys of an answer, in order.
    """
    if not isinstance(value, Mapping):
        return text_in(value)
    key = _answer_key(value, keys)
    if key is not None:
        return text_in(value[key])
    messages = value.get(_MESSAGES)
    if not isinstance(messages, list) or not messages:
        return None
    return text_in(messages[-1])


def question_in(value: Any, keys: Sequence[str]) -> str:
    """Return the question in the input or output of a chain; empty without one."""
    if isinstance(value, str):
        return value
    fields = mapping_or_empty(value)
    key = _answer_key(fields, keys)
    if key is None:
        return ""
    return text_in(fields[key]) or ""


def with_answer(value: Any, keys: Sequence[str], decision: GuardDecision) -> Any:
    """Return the output of a chain with what the guard hands on. The value itself is not changed.

    A string is a string afterwards. A message has the decision in ``response_metadata``, and a mapping has it under
    ``rageval_guard``.
    """
    if isinstance(value, str):
        return decision.answer
    if not isinstance(value, Mapping):
        return _message_with_decision(value, decision)
    changed: Any = copy(value)  # of the same class: LangChain adds up chunks of AddableDict
    changed[DECISION_KEY] = decision.summary()
    key = _answer_key(value, keys)
    if key is not None:
        if decision.blocked:
            changed[key] = _with_text(value[key], decision.answer)
        return changed
    *earlier, last = value[_MESSAGES]
    changed[_MESSAGES] = [*earlier, _message_with_decision(last, decision)]
    return changed


def _message_with_decision(message: Any, decision: GuardDecision) -> Any:
    changed = _with_text(message, decision.answer) if decision.blocked else message
    metadata = {**getattr(message, "response_metadata", {}), DECISION_KEY: decision.summary()}
    return changed.model_copy(update={"response_metadata": metadata})


def _with_text(value: Any, text: str) -> Any:
    """Return a string or a message with another text. A message keeps its id, its usage and everything else."""
    return text if isinstance(value, str) else value.model_copy(update={"content": text})


# --------------------------------------------------------------------------- chunks of a stream

_ONCE: Final[Mapping[str, Any]] = {
    "usage_metadata": None,
    "response_metadata": {},
    "additional_kwargs": {},
    "tool_call_chunks": [],
    "tool_calls": [],
    "invalid_tool_calls": [],
    "chunk_position": None,
}
"""The fields of a message's chunk besides its text. Chunks are added up, so only one of two parts may have it."""


def split_chunk(chunk: Any, keys: Sequence[str], at: int) -> tuple[list[Any], Any]:
    """Split a chunk behind some characters of its text.

    Returns:
        The first part, in a list, and the rest. The list is empty if nothing is before the position, or if the chunk
        cannot be split: then the rest is the whole chunk.
    """
    text = answer_in(chunk, keys)
    if not at or text is None or not _can_split(chunk, keys):
        return [], chunk
    return [bare_chunk(chunk, keys, text[:at])], _rest_of_chunk(chunk, keys, text[at:])


def _can_split(chunk: Any, keys: Sequence[str]) -> bool:
    if isinstance(chunk, Mapping):
        key = _answer_key(chunk, keys)
        return key is not None and _can_split(chunk[key], keys)
    if isinstance(chunk, str):
        return True
    # Whole messages cannot be added up again.
    return type(chunk).__name__.endswith("MessageChunk") and isinstance(chunk.content, str)


def _rest_of_chunk(chunk: Any, keys: Sequence[str], text: str) -> Any:
    key = _answer_key(chunk, keys) if isinstance(chunk, Mapping) else None
    if key is None:
        return _with_text(chunk, text)
    changed: Any = copy(chunk)
    changed[key] = _with_text(chunk[key], text)
    return changed


def bare_chunk(chunk: Any, keys: Sequence[str], text: str) -> Any:
    """Return a chunk of the same form with another text and nothing else."""
    if isinstance(chunk, str):
        return text
    if not isinstance(chunk, Mapping):
        known = {name: value for name, value in _ONCE.items() if name in type(chunk).model_fields}
        return chunk.model_copy(update={**known, "content": text})
    bare: Any = copy(chunk)
    bare.clear()
    key = _answer_key(chunk, keys)
    if key is not None:
        bare[key] = bare_chunk(chunk[key], keys, text)
    else:
        bare[_MESSAGES] = [bare_chunk(chunk[_MESSAGES][-1], keys, text)]
    return bare
