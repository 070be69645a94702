"""What an application may change once its call has returned, kept as it is now for a turn that is built later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

from langchain_core.documents import Document
from langchain_core.load.serializable import Serializable
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
from pydantic import BaseModel

from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import is_a, or_else

__all__ = [
    "DocumentSnapshot",
    "MessageSnapshot",
    "ResultSnapshot",
    "fields_of",
    "is_structured_answer",
    "snapshot_documents",
    "snapshot_runs",
]

_STEP_KINDS = frozenset({"retriever", "llm", "tool"})
_ATOMS: frozenset[type] = frozenset({str, int, float, bool, type(None)})
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
"""Classes of which it is known where they have what."""

_SEARCH_DEPTH = 4
"""Containers within containers that are searched for documents."""

_SEARCHED_ITEMS = 8
"""Of a list: lists of documents have them at the beginning."""

_DEPTH = 6
"""Containers within containers: a state's lists of messages, a tool's answer."""


class DocumentSnapshot:
    """What a turn has of a document."""

    __slots__ = ("id", "metadata", "page_content")

    def __init__(self, document: Document) -> None:
        self.page_content = document.page_content
        self.id = document.id
        self.metadata = _plain(document.metadata or {})


class MessageSnapshot:
    """The parts of a message, to or from a model, that a turn is read from."""

    __slots__ = (
        "artifact",
        "content",
        "id",
        "name",
        "response_metadata",
        "tool_call_id",
        "tool_calls",
        "type",
        "usage_metadata",
    )

    def __init__(self, message: BaseMessage) -> None:
        fields: dict[str, Any]
        if type(message) not in _USUAL_MESSAGES or message.__pydantic_extra__:
            fields = {name: getattr(message, name, None) for name in self.__slots__}
        else:
            fields = vars(message)  # pydantic takes microseconds to say that a message has no such attribute
        self.type: str = fields["type"]
        content = fields["content"]
        self.content = content if type(content) is str else _plain(content)
        self.response_metadata = _plain(fields["response_metadata"])
        self.tool_calls = _plain(fields.get("tool_calls"))
        self.usage_metadata = _plain(fields.get("usage_metadata"))
        self.id = fields.get("id")
        self.name = fields.get("name")
        self.tool_call_id = fields.get("tool_call_id")
        artifact = fields.get("artifact")
        self.artifact = None if artifact is None else _copy(artifact, _DEPTH, {})


class ResultSnapshot:
    """What a turn has of a model's result: its first generation."""

    __slots__ = ("llm_output", "message", "text")

    def __init__(self, result: LLMResult) -> None:
        generation = result.generations[0][0] if result.generations and result.generations[0] else None
        message: Any = getattr(generation, "message", None)
        self.message: MessageSnapshot | None = MessageSnapshot(message) if _is_message(message) else None
        self.text: str = getattr(generation, "text", None) or ""
        self.llm_output = result.llm_output


def snapshot_documents(documents: Any) -> Any:
    """Return what a retriever found, as it is now: an application may cut documents in place before the prompt."""
    if type(documents) is not list:
        return documents
    try:
        return [DocumentSnapshot(item) if type(item) is Document else _copy(item, 1, {}) for item in documents]
    except Exception:
        return list(documents)  # a class that cannot be copied


def snapshot_runs(runs: Iterable[Run], every_step: bool) -> None:
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
        if every_step or run.kind in _STEP_KINDS or run.parent is None or _handles_documents(run):
            run.input = _prompts(run.input) if _is_model_call(run) else _copy(run.input, _DEPTH, seen)
            run.output = _copy(run.output, _DEPTH, seen)
            if run.parent is None:
                run.output = _structured(run.output)
        else:
            run.input = run.output = None


def _is_model_call(run: Run) -> bool:
    return run.kind == "llm" and run.parent is not None


def _prompts(prompts: Any) -> Any:
    """Copy the prompts that a model was given: texts, or lists of messages."""
    if not isinstance(prompts, (list, tuple)):
        return prompts
    return [
        [MessageSnapshot(message) for message in prompt if _is_message(message)]
        if isinstance(prompt, (list, tuple))
        else prompt
        for prompt in prompts
    ]


def _is_message(value: Any) -> bool:
    return type(value) in _USUAL_MESSAGES or isinstance(value, BaseMessage)


@or_else(())
def fields_of(value: Any) -> Sequence[Any]:
    """Return what stands in a mapping, in a graph's command, or in a state of a class of the application's own."""
    state = value.update if _is_command(value) else value
    if is_a(state, Mapping):
        return list(state.values())
    return list(vars(state).values()) if is_dataclass(state) or is_structured_answer(state) else ()


@or_else(False)
def _is_command(value: Any) -> bool:
    """Whether a value is what a node of LangGraph returns that says where to go on, with a change of the state."""
    return type(value).__name__ == "Command" and hasattr(value, "update")


@or_else(False)
def is_structured_answer(value: Any) -> bool:
    """Whether a value is of a pydantic class of the application's own."""
    return isinstance(value, BaseModel) and not isinstance(value, (Serializable, LLMResult))


def _handles_documents(run: Run) -> bool:
    """Return True if a chain, a graph node or a prompt template received or returned documents."""
    return _has_document(run.output, _SEARCH_DEPTH) or _has_document(run.input, _SEARCH_DEPTH)


@or_else(False)
def _has_document(value: Any, depth: int) -> bool:
    if type(value) in _ATOMS:
        return False
    if is_a(value, (Document, DocumentSnapshot)):
        return True
    if depth == 0 or is_a(value, BaseMessage):
        return False
    items = value[:_SEARCHED_ITEMS] if is_a(value, (list, tuple)) else fields_of(value)
    return any(_has_document(item, depth - 1) for item in items)


def _structured(output: Any) -> Any:
    """Copy an answer of a pydantic class, or those that stand in a mapping."""
    return {key: _model(value) for key, value in output.items()} if type(output) is dict else _model(output)


def _model(value: Any) -> Any:
    if not is_structured_answer(value):
        return value
    copied = value.model_copy()
    vars(copied).update({name: _plain(item) for name, item in vars(copied).items()})
    return copied


def _copy(value: Any, depth: int, seen: dict[int, Any]) -> Any:
    kind = type(value)
    how = _HOW[kind] if kind in _HOW else _how(value)
    if how is None:
        return value
    found = seen.get(id(value))
    if found is None:
        if how not in _CONTAINERS:
            found = how(value)
        elif not depth:
            return value
        elif how is dict:
            found = {key: _copy(item, depth - 1, seen) for key, item in value.items()}
        else:
            found = how([_copy(item, depth - 1, seen) for item in value])
        seen[id(value)] = found
    return found


def _how(value: Any) -> Callable[[Any], Any] | None:
    """Return what copies a value, or the container whose items are copied; None for what stays the same."""
    if isinstance(value, Mapping):
        return dict
    for base, copier in (
        (LLMResult, ResultSnapshot),
        (BaseMessage, _message),
        (Document, _document),
        (ChatPromptValue, _prompt),
    ):
        if isinstance(value, base):
            return copier
    return _command if _is_command(value) else None


def _command(command: Any) -> Any:
    return replace(command, update=_copy(command.update, _DEPTH, {}))


def _document(document: Document) -> Document:
    """Copy a document of a class of its own, with perhaps a score."""
    return document.model_copy(update={"metadata": _plain(document.metadata or {})})


def _prompt(prompt: ChatPromptValue) -> ChatPromptValue:
    return prompt.model_copy(update={"messages": [_message(message) for message in prompt.messages]})


def _message(message: BaseMessage) -> BaseMessage:
    copied = message.model_copy()
    for name, value in vars(copied).items():
        if value and type(value) in (list, dict):  # blocks of content, tool calls, what the provider said
            vars(copied)[name] = _copy(value, _DEPTH, {}) if name == "artifact" else _plain(value)
    return copied


_CONTAINERS = (dict, list, tuple)
_HOW: dict[type, Callable[[Any], Any] | None] = {
    **dict.fromkeys(_ATOMS),
    **dict.fromkeys(_USUAL_MESSAGES, _message),
    **{container: container for container in _CONTAINERS},
    Document: DocumentSnapshot,
    DocumentSnapshot: None,
    LLMResult: ResultSnapshot,
    ChatPromptValue: _prompt,
}
"""By class: to find out whether a value is a message or a mapping takes longer than to copy it. Only classes of
langchain-core's, for those of an application may come and go."""


def _plain(value: Any) -> Any:
    """Copy dictionaries and lists all the way down; what else there is stays the same."""
    if isinstance(value, dict):
        if _ATOMS.issuperset(map(type, value.values())):
            return dict(value)
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
