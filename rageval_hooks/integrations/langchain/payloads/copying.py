"""Copies of messages, documents, results and containers: shallow where nothing changes, and without formatting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langchain_core.outputs import LLMResult
from langchain_core.prompt_values import ChatPromptValue

from rageval_hooks.integrations.langchain.payloads.states import is_command

__all__ = [
    "ATOMS",
    "DEPTH",
    "DocumentSnapshot",
    "MessageSnapshot",
    "ResultSnapshot",
    "copy_value",
    "is_message",
    "plain",
]

ATOMS: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_USUAL_MESSAGES: frozenset[type] = frozenset(
    {
        AIMessage,
        AIMessageChunk,
        ChatMessage,
        FunctionMessage,
        HumanMessage,
        HumanMessageChunk,
        SystemMessage,
        SystemMessageChunk,
        ToolMessage,
        ToolMessageChunk,
    }
)
"""Classes whose attributes are known to be in the instance's ``__dict__``."""

DEPTH = 6
"""Containers within containers that are copied: a state, its list of messages, a message's blocks."""


class DocumentSnapshot:
    """The parts of a document that a turn needs."""

    __slots__ = ("id", "metadata", "page_content")

    def __init__(self, document: Document) -> None:
        self.page_content = document.page_content
        self.id = document.id
        self.metadata = plain(document.metadata or {})


class MessageSnapshot:
    """The parts of a message, to or from a model, that a turn needs."""

    __slots__ = (
        "additional_kwargs",
        "artifact",
        "content",
        "id",
        "name",
        "response_metadata",
        "status",
        "tool_call_id",
        "tool_calls",
        "type",
        "usage_metadata",
    )

    def __init__(self, message: BaseMessage) -> None:
        fields = _message_fields(message)
        self.type: str = fields["type"]
        content = fields["content"]
        self.content = content if type(content) is str else plain(content)
        self.additional_kwargs = plain(fields["additional_kwargs"])
        self.response_metadata = plain(fields["response_metadata"])
        self.tool_calls = plain(fields.get("tool_calls"))
        self.usage_metadata = plain(fields.get("usage_metadata"))
        self.id = fields.get("id")
        self.name = fields.get("name")
        self.tool_call_id = fields.get("tool_call_id")
        self.status = fields.get("status")
        artifact = fields.get("artifact")
        self.artifact = None if artifact is None else copy_value(artifact, DEPTH, {})


def _message_fields(message: BaseMessage) -> dict[str, Any]:
    """Return the fields of a message by name."""
    if type(message) in _USUAL_MESSAGES and not message.__pydantic_extra__:
        # Faster than getattr: pydantic takes microseconds to say that a message has no such attribute.
        return vars(message)
    # A subclass may have a property in place of a field.
    return {name: getattr(message, name, None) for name in MessageSnapshot.__slots__}


class ResultSnapshot:
    """The parts of a model's result that a turn needs: its first generation."""

    __slots__ = ("llm_output", "message", "text")

    def __init__(self, result: LLMResult) -> None:
        generation = _first_generation(result)
        message: Any = getattr(generation, "message", None)
        self.message: MessageSnapshot | None = MessageSnapshot(message) if is_message(message) else None
        self.text: str = getattr(generation, "text", None) or ""
        self.llm_output = result.llm_output


def _first_generation(result: LLMResult) -> Any:
    # One list per prompt, with one generation per candidate (n=2). A call that failed may have none.
    if result.generations and result.generations[0]:
        return result.generations[0][0]
    return None


def is_message(value: Any) -> bool:
    """Return True for a message, of LangChain's or of a subclass."""
    # The usual classes first: an isinstance check against an abstract class is slow if it fails.
    return type(value) in _USUAL_MESSAGES or isinstance(value, BaseMessage)


def copy_value(value: Any, depth: int, seen: dict[int, Any]) -> Any:
    """Copy a value, each object once: steps pass the same messages and documents on.

    Args:
        value: the value.
        depth: containers within containers that are copied.
        seen: the copies so far, by the identity of the original.
    """
    kind = type(value)
    how = _HOW[kind] if kind in _HOW else _how(value)
    if how is None:
        return value
    if id(value) in seen:
        return seen[id(value)]
    is_container = how in _CONTAINERS
    if is_container and not depth:
        return value
    copied = _copy_items(value, how, depth - 1, seen) if is_container else how(value)
    seen[id(value)] = copied
    return copied


def _copy_items(value: Any, container: Callable[[Any], Any], depth: int, seen: dict[int, Any]) -> Any:
    if container is dict:
        return {key: copy_value(item, depth, seen) for key, item in value.items()}
    return container([copy_value(item, depth, seen) for item in value])


def _how(value: Any) -> Callable[[Any], Any] | None:
    """Return what copies a value, or the container whose items are copied; None for a value that is not copied."""
    if isinstance(value, Mapping):
        return dict
    # Subclasses, for example a document with a score or a message of an application.
    for base, copier in _COPIERS:
        if isinstance(value, base):
            return copier
    return _command if is_command(value) else None


def _command(command: Any) -> Any:
    return replace(command, update=copy_value(command.update, DEPTH, {}))


def _document(document: Document) -> Document:
    """Copy a document of a subclass, which may have further fields, for example a score."""
    return document.model_copy(update={"metadata": plain(document.metadata or {})})


def _prompt(prompt: ChatPromptValue) -> ChatPromptValue:
    return prompt.model_copy(update={"messages": [_message(message) for message in prompt.messages]})


def _message(message: BaseMessage) -> BaseMessage:
    copied = message.model_copy()
    for name, value in vars(copied).items():
        if value and type(value) in (list, dict):  # blocks of content, tool calls, what the provider said
            vars(copied)[name] = copy_value(value, DEPTH, {}) if name == "artifact" else plain(value)
    return copied


_COPIERS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (LLMResult, ResultSnapshot),
    (BaseMessage, _message),
    (Document, _document),
    (ChatPromptValue, _prompt),
)
_CONTAINERS = (dict, list, tuple)
_HOW: dict[type, Callable[[Any], Any] | None] = {
    **dict.fromkeys(ATOMS),
    **dict.fromkeys(_USUAL_MESSAGES, _message),
    **{container: container for container in _CONTAINERS},
    Document: DocumentSnapshot,
    DocumentSnapshot: None,
    LLMResult: ResultSnapshot,
    ChatPromptValue: _prompt,
}
"""The function that copies a value, by the value's class.

A look-up is faster than isinstance checks against messages and mappings, which take longer than copying.

Only classes of langchain-core are listed. Classes of an application may be garbage collected.
"""


def plain(value: Any) -> Any:
    """Copy dictionaries and lists all the way down. Other values stay the same objects."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if ATOMS.issuperset(map(type, value.values())):
        return dict(value)  # most metadata is flat, and this is faster
    return {key: plain(item) for key, item in value.items()}
