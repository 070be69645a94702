"""LangChain's values: states and messages are read, documents become passages, and all are copied for a later build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from langchain_core.documents import Document
from langchain_core.load.serializable import Serializable
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from rageval_hooks.integrations.capture.passages import passage_key, passage_of
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import is_a, or_else
from rageval_hooks.integrations.langchain.runs import LangChainRun
from rageval_hooks.runtime.interrupts import raise_interrupt
from rageval_hooks.runtime.jsonable import json_text, plain_value, string_of
from rageval_hooks.runtime.narrowing import content_text, mapping_or_empty, text_or_empty
from rageval_hooks.turn import Passage

# --------------------------------------------------------------------------- states


@or_else({})
def fields_by_name(value: Any) -> Mapping[Any, Any]:
    """Return the items of a mapping, or the fields of a state that is a dataclass or a pydantic model."""
    if isinstance(value, dict):
        return value if type(value) is dict else dict.copy(value)
    # LangGraph accepts both as the class of a graph's state.
    if is_dataclass(value) or is_structured_answer(value):
        fields: dict[str, Any] = vars(value)
        return fields
    return {}


@or_else(False)
def is_command(value: Any) -> bool:
    """Return True for a LangGraph ``Command(update={"documents": […]}, goto="answer")``, which a node may return."""
    # By name: LangGraph may not be installed.
    return type(value).__name__ == "Command" and hasattr(value, "update")


@or_else(False)
def is_structured_answer(value: Any) -> bool:
    """Return True if a value is an instance of a pydantic class of the application."""
    if not isinstance(value, BaseModel):
        return False
    # LangChain's own classes are pydantic classes too.
    return not isinstance(value, (Serializable, LLMResult))


# --------------------------------------------------------------------------- texts


# LangChain's names of message types, and the roles of model APIs. Chunks of a stream are named after their class.
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user"}


def role_of(message_type: str) -> str:
    """Return the usual name of a message type, for example ``user`` for LangChain's ``human``."""
    return _ROLES.get(message_type, message_type)


def message_text(message: BaseMessage) -> str:
    """Return the text of a message. If it has none, the refusal of the model, for which OpenAI has a separate field."""
    text = content_text(message.content)
    return text or text_or_empty(mapping_or_empty(message.additional_kwargs).get("refusal"))


@or_else(False)
def is_content(value: Any) -> bool:
    """Return True if a value is the content of a message as blocks, with some text."""
    # [{"type": "reasoning", "summary": []}, {"type": "text", "text": "It opened in 1869."}]
    if not isinstance(value, (list, tuple)) or not content_text(value):
        return False
    return all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in value)


def as_text(value: Any) -> str:
    """Return any input or output as text; objects become JSON."""
    if value is None:
        return ""
    if is_a(value, str):
        return str.__str__(value)
    if is_a(value, BaseMessage):
        return message_text(value)
    if is_a(value, PromptValue):
        return str(value.to_string())
    return as_json(value)


def as_json(value: Any) -> str:
    """Return any value as JSON; what JSON cannot express becomes its ``str``."""
    return json_text(value, _jsonable)


def _jsonable(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return {"role": role_of(value.type), "content": value.content}
    if isinstance(value, Document):
        return {"id": value.id, "page_content": value.page_content, "metadata": value.metadata}
    if is_structured_answer(value):
        # No warnings: the fields of an object made by `model_construct` may have values of other types.
        return value.model_dump(mode="json", warnings=False)
    return plain_value(value) if is_dataclass(value) else string_of(value)


# --------------------------------------------------------------------------- documents

_ATOMS: frozenset[type] = frozenset({str, int, float, bool, type(None)})
"""Classes of values that hold no documents. Most values of a state are of these. Some classes cannot be looked up."""

_DEPTH = 4
"""Containers within containers: a state, its field, a list of lists."""

_MAX_ITEMS = 1000
"""Of a long list only so many items are searched for documents."""


class DocumentReader:
    """Reads the documents in the values of a turn as passages, each value and each document once.

    Steps pass the same documents on, and several rules ask what a step received and returned.
    """

    def __init__(self) -> None:
        # By identity, with the value itself, so that its identity stays its own.
        self._lists: dict[int, tuple[Any, list[list[Passage]]]] = {}
        self._passages: dict[int, tuple[Any, Passage | None]] = {}

    def lists_in(self, value: Any) -> list[list[Passage]]:
        """Return the lists of documents in a value.

        A retriever's output is one list. A state or a mapping has one list per field with documents; a single document
        counts as a list, and lists of lists are joined. Documents may have a score next to them: ``(document, score)``.
        """
        known = self._lists.get(id(value))
        if known is None:
            known = value, [found for found in self._search(value, _DEPTH) if found]
            self._lists[id(value)] = known
        return known[1]

    def passages_in(self, value: Any) -> list[Passage]:
        """Return all documents in a value."""
        return list(chain.from_iterable(self.lists_in(value)))

    def new_lists(self, output: Any, given: Any) -> list[list[Passage]]:
        """Return the lists that a function or a graph node made, without those it only passed on.

        Args:
            output: what it returned.
            given: what it received.
        """
        made = self.lists_in(output)
        received = [list(map(passage_key, passages)) for passages in self.lists_in(given)] if made else []
        return [passages for passages in made if list(map(passage_key, passages)) not in received]

    @or_else(())
    def _search(self, value: Any, depth: int, *, in_list: bool = False) -> Sequence[list[Passage]]:
        if type(value) in _ATOMS:
            return ()
        passage = self._read(value)
        if passage is not None:
            return [[passage]]
        if depth == 0:
            return ()
        if isinstance(value, BaseMessage):
            # A tool with response_format="content_and_artifact" returns its documents as the artifact of its message. A
            # conversation has those of earlier turns, too. What the model saw of them is read from its prompt.
            return () if in_list else self._search(getattr(value, "artifact", None), depth - 1)
        if isinstance(value, (list, tuple)):
            inner = [self._search(item, depth - 1, in_list=True) for item in value[:_MAX_ITEMS]]
            return [list(chain.from_iterable(chain.from_iterable(inner)))]
        # A state, for example {"question": "…", "context": [Document(…), …]}, or a command that sets it.
        fields = fields_by_name(value.update if is_command(value) else value)
        return list(chain.from_iterable(self._search(field, depth - 1) for field in fields.values()))

    def _read(self, item: Any) -> Passage | None:
        """Return a document, or a pair of a document and its score, as a passage; None for anything else."""
        # Vector stores return (document, score), some rerankers (score, document). Two documents are a list of two.
        is_pair = isinstance(item, tuple) and len(item) == 2 and sum(isinstance(one, Document) for one in item) == 1
        if not is_pair and not isinstance(item, Document):
            return None
        known = self._passages.get(id(item))
        if known is None:
            known = self._passages[id(item)] = (item, passage_of(item))
        return known[1]


def passages_in(documents: Any) -> list[Passage]:
    """Return the documents in a value as passages."""
    return DocumentReader().passages_in(documents)


# --------------------------------------------------------------------------- copies


_COPY_DEPTH = 10
"""Values within values that are copied: a state, its list of messages, a message's blocks."""


def copy_values(runs: Sequence[Run]) -> None:
    """Replace the inputs and outputs of a turn's runs by copies, once.

    An application may append to the list of messages that it passed. Building the turn takes longer than copying, and
    happens on another thread. Texts stay the same objects, and nothing is formatted.
    """
    root = runs[0]
    if not isinstance(root, LangChainRun) or root.values_copied:
        return
    root.values_copied = True
    seen: dict[int, tuple[Any, Any]] = {}
    for run in runs:
        # Most steps pass on the documents of a retriever unchanged: they are copied, and later read, once.
        if isinstance(run, LangChainRun):
            for document, copy in zip(*run.found, strict=False):
                if _is_unchanged(document, copy):
                    seen[id(document)] = document, copy
            run.found = (), ()
    for run in runs:
        run.input = copied(run.input, seen)
        if run.kind != "retriever":  # copied at its end
            run.output = copied(run.output, seen)


def copy_found(run: Run, documents: Any) -> Any:
    """Return a copy of what a retriever returned: an application may cut documents in place before the prompt."""
    copies = copied(documents)
    if isinstance(run, LangChainRun) and isinstance(documents, list):
        run.found = documents, copies
    return copies


@or_else(False)
def _is_unchanged(document: Any, copy: Any) -> bool:
    return isinstance(document, Document) and vars(document) == vars(copy)


def copied(value: Any, seen: dict[int, tuple[Any, Any]] | None = None, depth: int = _COPY_DEPTH) -> Any:
    """Copy containers, messages, documents and other pydantic objects.

    Anything else stays the same object, and so does what cannot be copied: it is read as it is by then.

    Args:
        value: the value.
        seen: originals and copies so far, by the identity of the original: steps pass the same objects on.
        depth: values within values that are copied.
    """
    seen = {} if seen is None else seen
    try:
        kind: Any = type(value)
        if kind in _ATOMS or not depth:
            return value
        if id(value) in seen:
            return seen[id(value)][1]
        copy: Any = value
        # Most values inside are texts. Calling a function for each would take longer than the rest.
        if issubclass(kind, (list, tuple)):
            # Methods of the base types: those of a subclass may read a disk, or never end.
            many = (tuple if issubclass(kind, tuple) else list).__iter__(value)
            items = [item if type(item) is str else copied(item, seen, depth - 1) for item in many]
            # A named tuple is made again with its names.
            copy = getattr(kind, "_make", tuple)(items) if issubclass(kind, tuple) else items
        elif _is_data(kind):
            copy = value.model_copy()
            fields = vars(copy)
            for name, item in fields.items():
                if type(item) is not str:
                    fields[name] = copied(item, seen, depth - 1)
        elif issubclass(kind, dict):
            pairs = dict.items(value)
            copy = {key: item if type(item) is str else copied(item, seen, depth - 1) for key, item in pairs}
        elif is_command(value):
            copy = replace(value, update=copied(value.update, seen, depth - 1))
        seen[id(value)] = value, copy
        return copy
    except Exception as error:
        raise_interrupt(error)
        return value


@lru_cache(maxsize=1000)
def _is_data(kind: type) -> bool:
    """Return True for the class of a message, a document, a model's result or a state; False for a component."""
    return issubclass(kind, BaseModel) and not issubclass(kind, Runnable)
