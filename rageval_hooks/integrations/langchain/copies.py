"""Copies of what an application may change after its call has returned, for a turn that is built later.

An application may append to the list of messages that it passed, or cut documents in place. Building the turn takes
longer than copying, and happens on another thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable
from pydantic import BaseModel

from rageval_hooks.integrations.capture.host_values import or_else
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import is_command

__all__ = ["copy_documents", "copy_values"]

_ATOMS: frozenset[type] = frozenset({str, int, float, bool, type(None)})

_DEPTH = 10
"""Values within values that are copied: a state, its list of messages, a message's blocks."""


def copy_documents(documents: Any, details: dict[str, Any]) -> Any:
    """Copy what a retriever found: an application may cut documents in place before the prompt.

    Args:
        documents: the retriever's output.
        details: details of its run. The originals are kept there, so that other steps share the copies.
    """
    try:
        copied = _copy(documents, {}, _DEPTH)
    except Exception:
        return documents  # a class that cannot be copied
    if type(documents) is list:
        details["originals"] = list(documents)
    return copied


def copy_values(runs: Iterable[Run]) -> None:
    """Replace the inputs and outputs of runs by copies. Texts stay the same objects, and nothing is formatted."""
    seen: dict[int, tuple[Any, Any]] = {}
    for run in runs:
        if originals := run.details.pop("originals", None):
            pairs = zip(originals, run.output, strict=True)
            seen.update((id(original), (original, copied)) for original, copied in pairs if _is_same(original, copied))
        run.input = _copy(run.input, seen, _DEPTH)
        if run.kind != "retriever":  # copied at its end
            run.output = _copy(run.output, seen, _DEPTH)


@or_else(False)
def _is_same(original: Any, copied: Any) -> bool:
    """Return True if a document has not been changed since it was copied."""
    if not isinstance(original, Document):
        return False
    return original.page_content is copied.page_content and original.metadata == copied.metadata


def _copy(value: Any, seen: dict[int, tuple[Any, Any]], depth: int) -> Any:
    """Copy containers, messages, documents and other pydantic objects; anything else stays the same object.

    Args:
        value: the value.
        seen: originals and copies so far, by the identity of the original: steps pass the same objects on.
        depth: values within values that are copied.
    """
    kind: type = type(value)
    if kind in _ATOMS or not depth:
        return value
    if id(value) in seen:
        return seen[id(value)][1]
    copied: Any
    if isinstance(value, Mapping):
        copied = {key: _copy(item, seen, depth - 1) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        items = [_copy(item, seen, depth - 1) for item in value]
        copied = tuple(items) if isinstance(value, tuple) else items
    elif _is_data(kind):
        copied = value.model_copy()
        fields = vars(copied)
        for name, item in fields.items():
            if type(item) not in _ATOMS:
                fields[name] = _copy(item, seen, depth - 1)
    elif is_command(value):
        copied = replace(value, update=_copy(value.update, seen, depth - 1))
    else:
        return value
    seen[id(value)] = value, copied
    return copied


@lru_cache(maxsize=1000)
def _is_data(kind: type) -> bool:
    """Return True for the class of a message, a document, a model's result or a state; False for a component."""
    return issubclass(kind, BaseModel) and not issubclass(kind, Runnable)
