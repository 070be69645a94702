"""What an application may change once its call has returned, kept as it is now for a turn that is built later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.prompt_values import ChatPromptValue

from rageval_hooks.integrations.recorder import Run

__all__ = ["SealedDocument", "SealedMessage", "SealedResult", "seal"]

_STEP_KINDS = frozenset({"retriever", "llm", "tool"})
_ATOMS = frozenset({str, int, float, bool, type(None)})
_DEPTH = 6
"""Containers within containers: a state's lists of messages, a tool's answer."""


class SealedDocument:
    """What a turn has of a document."""

    __slots__ = ("id", "metadata", "page_content")

    def __init__(self, document: Document) -> None:
        self.page_content = document.page_content
        self.id = document.id
        self.metadata = _plain(document.metadata or {})


class SealedMessage:
    """What a turn has of a message that a model was given, or wrote."""

    __slots__ = ("content", "response_metadata", "tool_calls", "type", "usage_metadata")

    def __init__(self, message: BaseMessage) -> None:
        self.type = message.type
        self.content = _plain(message.content)
        self.response_metadata = _plain(message.response_metadata)
        self.tool_calls = _plain(getattr(message, "tool_calls", None))
        self.usage_metadata = _plain(getattr(message, "usage_metadata", None))


class SealedResult:
    """What a turn has of a model's result: its first generation."""

    __slots__ = ("llm_output", "message", "text")

    def __init__(self, result: LLMResult) -> None:
        generation = result.generations[0][0] if result.generations and result.generations[0] else None
        message = getattr(generation, "message", None)
        self.message = SealedMessage(message) if isinstance(message, BaseMessage) else None
        self.text: str = getattr(generation, "text", None) or ""
        self.llm_output = result.llm_output


def seal(runs: Iterable[Run], every_step: bool) -> None:
    """Put copies into the records of whatever a turn is read from and the application holds too; let go of the rest.

    Copied are dictionaries and lists, documents and messages. Texts stay the same objects, and nothing is formatted.
    What lies between the steps, and is not read, would only keep memory from the application and work the garbage
    collector.

    Args:
        runs: the records.
        every_step: whether chains, prompts and parsers are read too, not only the root and what makes a turn.
    """
    seen: dict[int, Any] = {}
    for run in runs:
        if every_step or run.kind in _STEP_KINDS or run.parent is None or _hands_documents_over(run.output):
            run.input = _prompts(run.input) if _is_model_call(run) else _copy(run.input, _DEPTH, seen)
            run.output = _copy(run.output, _DEPTH, seen)
        else:
            run.input = run.output = None


def _is_model_call(run: Run) -> bool:
    return run.kind == "llm" and run.parent is not None


def _prompts(prompts: Any) -> Any:
    """Copy the prompts that a model was given: texts, or lists of messages."""
    if not isinstance(prompts, (list, tuple)):
        return prompts
    return [
        [SealedMessage(message) for message in prompt if isinstance(message, BaseMessage)]
        if isinstance(prompt, (list, tuple))
        else prompt
        for prompt in prompts
    ]


def _hands_documents_over(output: Any) -> bool:
    return isinstance(output, list) and bool(output) and isinstance(output[0], Document)


def _copy(value: Any, depth: int, seen: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is str or value is None or not depth:
        return value
    found = seen.get(id(value))
    if found is None:
        found = seen[id(value)] = _new(value, kind, depth, seen)
    return found


def _new(value: Any, kind: type, depth: int, seen: dict[int, Any]) -> Any:
    if kind is Document:
        return SealedDocument(value)
    if kind is list and value and all(type(item) is Document for item in value):
        return [SealedDocument(item) for item in value]
    if kind is list or kind is tuple:
        return kind([_copy(item, depth - 1, seen) for item in value])
    if isinstance(value, BaseMessage):
        return _message(value)
    if isinstance(value, LLMResult):
        return SealedResult(value)
    if isinstance(value, Mapping):
        return {key: _copy(item, depth - 1, seen) for key, item in value.items()}
    if isinstance(value, Document):  # of a class of its own, with perhaps a score
        return value.model_copy(update={"metadata": _plain(value.metadata or {})})
    if isinstance(value, ChatPromptValue):
        return value.model_copy(update={"messages": [_message(message) for message in value.messages]})
    return value


def _message(message: BaseMessage) -> BaseMessage:
    copied = message.model_copy()
    for name, value in vars(copied).items():
        if value and type(value) in (list, dict):  # blocks of content, tool calls, what the provider said
            vars(copied)[name] = _plain(value)
    return copied


def _plain(value: Any) -> Any:
    """Copy dictionaries and lists all the way down; what else there is stays the same."""
    if isinstance(value, dict):
        return {key: item if type(item) in _ATOMS else _plain(item) for key, item in value.items()}
    return [item if type(item) in _ATOMS else _plain(item) for item in value] if isinstance(value, list) else value
