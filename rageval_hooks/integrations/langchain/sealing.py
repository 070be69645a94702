"""What an application may change once its call has returned, kept as it is now for a turn that is built later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from rageval_hooks.integrations.recorder import Run

__all__ = ["seal"]

_DEPTH = 3
"""Containers within containers: a state's lists of messages, a model's lists of prompts."""


def seal(runs: Iterable[Run]) -> None:
    """Put copies into the records of whatever a turn is read from and the application holds too.

    Those are dictionaries and lists, documents and messages. Texts stay the same objects, and nothing is formatted.
    """
    seen: dict[int, Any] = {}
    for run in runs:
        run.input = _copy(run.input, _DEPTH, seen)
        run.output = _copy(run.output, _DEPTH, seen)


def _copy(value: Any, depth: int, seen: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is str or value is None:
        return value
    found = seen.get(id(value))
    if found is None:
        found = seen[id(value)] = _new(value, kind, depth, seen)
    return found


def _new(value: Any, kind: type, depth: int, seen: dict[int, Any]) -> Any:
    if kind is list or kind is tuple:
        return kind(_copy(item, depth - 1, seen) for item in value) if depth else value
    if kind is dict:
        return {key: _copy(item, depth - 1, seen) for key, item in value.items()} if depth else value
    if isinstance(value, Document):
        return value.model_copy(update={"metadata": dict(value.metadata or {})})
    if isinstance(value, BaseMessage):
        return value.model_copy()
    if isinstance(value, LLMResult):
        return _copy_result(value, seen)
    return value


def _copy_result(result: LLMResult, seen: dict[int, Any]) -> LLMResult:
    generation = result.generations[0][0] if result.generations and result.generations[0] else None
    if not isinstance(generation, ChatGeneration):
        return result
    message = _copy(generation.message, 0, seen)
    return result.model_copy(update={"generations": [[generation.model_copy(update={"message": message})]]})
