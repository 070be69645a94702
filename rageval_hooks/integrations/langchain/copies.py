"""Copies of what an application may change after its call has returned, for a turn that is built later.

An application may append to the list of messages that it passed, or cut documents in place. Copying takes
microseconds; building the turn takes longer, and happens on another thread. Nothing is formatted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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

from rageval_hooks.integrations.capture.fields import names_search, names_search_results
from rageval_hooks.integrations.capture.host_values import is_a, or_else
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.states import fields_by_name, fields_of, is_command, is_structured_answer

__all__ = [
    "DocumentSnapshot",
    "MessageSnapshot",
    "ResultSnapshot",
    "copy_value",
    "is_message",
    "plain",
    "snapshot_documents",
    "snapshot_runs",
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
        # One list per prompt, with one generation per candidate (n=2). A call that failed may have none.
        generation = next(iter(next(iter(result.generations), ())), None)
        message: Any = getattr(generation, "message", None)
        self.message: MessageSnapshot | None = MessageSnapshot(message) if is_message(message) else None
        self.text: str = getattr(generation, "text", None) or ""
        self.llm_output = result.llm_output


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
    if kind in ATOMS or kind is DocumentSnapshot:
        return value
    if id(value) in seen:
        return seen[id(value)]
    if kind in _COPIERS:
        copied = _COPIERS[kind](value)
    elif isinstance(value, (Mapping, list, tuple)):
        if not depth:
            return value
        if isinstance(value, Mapping):
            copied = {key: copy_value(item, depth - 1, seen) for key, item in value.items()}
        else:
            items = [copy_value(item, depth - 1, seen) for item in value]
            copied = tuple(items) if isinstance(value, tuple) else items
    elif is_message(value):
        copied = _message(value)
    elif isinstance(value, Document):
        # A subclass may have further fields, for example a score.
        copied = value.model_copy(update={"metadata": plain(value.metadata or {})})
    elif is_command(value):
        copied = replace(value, update=copy_value(value.update, DEPTH, {}))
    else:
        return value
    seen[id(value)] = copied
    return copied


def _prompt(prompt: ChatPromptValue) -> ChatPromptValue:
    return prompt.model_copy(update={"messages": [_message(message) for message in prompt.messages]})


def _message(message: BaseMessage) -> BaseMessage:
    copied = message.model_copy()
    for name, value in vars(copied).items():
        if value and type(value) in (list, dict):  # blocks of content, tool calls, what the provider said
            vars(copied)[name] = copy_value(value, DEPTH, {}) if name == "artifact" else plain(value)
    return copied


_COPIERS: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys(_USUAL_MESSAGES, _message),
    Document: DocumentSnapshot,
    LLMResult: ResultSnapshot,
    ChatPromptValue: _prompt,
}
"""The function that copies a value of a usual class. A look-up is faster than isinstance checks that fail."""


def plain(value: Any) -> Any:
    """Copy dictionaries and lists all the way down. Other values stay the same objects."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if ATOMS.issuperset(map(type, value.values())):
        return dict(value)  # most metadata is flat, and this is faster
    return {key: plain(item) for key, item in value.items()}


# --------------------------------------------------------------------------- the runs of a turn


_SEARCH_DEPTH = 4
"""Containers within containers that are searched for documents."""

_SEARCHED_ITEMS = 8
"""Only so many items of a list are searched: a list of documents has them at the beginning."""


def snapshot_documents(documents: Any) -> Any:
    """Return what a retriever found, as it is now: an application may cut documents in place before the prompt."""
    if type(documents) is not list:
        return documents
    try:
        return [copy_value(item, 1, {}) for item in documents]
    except Exception:
        return list(documents)  # a class that cannot be copied


def snapshot_runs(runs: Iterable[Run], every_step: bool) -> None:
    """Replace the inputs and outputs of runs by copies, and release those that a turn does not need.

    Dictionaries, lists, documents and messages are copied. Texts stay the same objects, and nothing is formatted.
    The values between the steps are not needed; keeping them would cost memory and work for the garbage collector.

    Args:
        runs: the records.
        every_step: keep the values of chains, prompts and parsers too, not only of the root and the usual steps.
    """
    seen: dict[int, Any] = {}
    for run in runs:
        is_root = run.parent is None
        is_step = run.kind in ("retriever", "llm", "tool")
        if every_step or is_root or is_step or _handles_documents(run) or _may_hold_text_results(run):
            # A decision model has the input of a chain.
            has_prompts = run.kind == "llm" and not is_root and isinstance(run.input, (list, tuple))
            run.input = list(map(_prompt_copy, run.input)) if has_prompts else copy_value(run.input, DEPTH, seen)
            run.output = copy_value(run.output, DEPTH, seen)
            if is_root:
                run.output = _structured(run.output)
        elif run.kind == "prompt":
            # The values of the template's variables.
            run.input, run.output = copy_value(run.input, DEPTH, seen), None
        else:
            # A parser's text says whether a stream was read to its end.
            is_text = run.kind == "parser" and is_a(run.output, str)
            run.input, run.output = None, run.output if is_text else None


def _prompt_copy(prompt: Any) -> Any:
    """Copy a prompt: a text, or a list of messages."""
    if not isinstance(prompt, (list, tuple)):
        return prompt
    return [MessageSnapshot(message) for message in prompt if is_message(message)]


@or_else(False)
def _may_hold_text_results(run: Run) -> bool:
    """Return True if a function or a graph node returned a text whose name says that it is a search result."""
    if type(run.output) in (str, list, tuple):
        return names_search(run.name)
    state = run.output.update if is_command(run.output) else run.output
    fields = fields_by_name(state).items()
    return any(type(item) in (str, list, tuple) and names_search_results(key) for key, item in fields)


def _handles_documents(run: Run) -> bool:
    """Return True if a chain, a graph node or a prompt template received or returned documents."""
    return _has_document(run.output, _SEARCH_DEPTH) or _has_document(run.input, _SEARCH_DEPTH)


@or_else(False)
def _has_document(value: Any, depth: int) -> bool:
    if type(value) in ATOMS:
        return False
    if is_a(value, (Document, DocumentSnapshot)):
        return True
    # A message has documents only as the artifact of a tool, and tools are steps.
    if depth == 0 or is_a(value, BaseMessage):
        return False
    items: Sequence[Any] = value[:_SEARCHED_ITEMS] if is_a(value, (list, tuple)) else fields_of(value)
    return any(_has_document(item, depth - 1) for item in items)


def _structured(value: Any) -> Any:
    """Copy an answer that is a pydantic object, or the pydantic objects in a mapping."""
    if type(value) is dict:
        return {key: _structured(item) for key, item in value.items()}
    if not is_structured_answer(value):
        return value
    copied = value.model_copy()
    vars(copied).update({name: plain(item) for name, item in vars(copied).items()})
    return copied
