"""Copies of what an application may change after its call has returned, for a turn that is built later.

An application may append to the list of messages that it passed, or cut documents in place. Copying takes
microseconds; building the turn takes longer, and happens on another thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from rageval_hooks.integrations.capture.fields.keys import names_search, names_search_results
from rageval_hooks.integrations.capture.host_values import is_a, or_else
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import (
    ATOMS,
    DEPTH,
    DocumentSnapshot,
    MessageSnapshot,
    copy_value,
    fields_by_name,
    fields_of,
    is_command,
    is_message,
    is_structured_answer,
    plain,
)
from rageval_hooks.runtime.jsonable import string_of

__all__ = ["snapshot_documents", "snapshot_runs"]

_STEP_KINDS = frozenset({"retriever", "llm", "tool"})

_SEARCH_DEPTH = 4
"""Containers within containers that are searched for documents."""

_SEARCHED_ITEMS = 8
"""Only so many items of a list are searched: a list of documents has them at the beginning."""


def snapshot_documents(documents: Any) -> Any:
    """Return what a retriever found, as it is now: an application may cut documents in place before the prompt."""
    if type(documents) is not list:
        return documents
    try:
        return [_snapshot_item(item) for item in documents]
    except Exception:
        return list(documents)  # a class that cannot be copied


def _snapshot_item(item: Any) -> Any:
    # The usual class first: this runs in the host's own call of the retriever.
    return DocumentSnapshot(item) if type(item) is Document else copy_value(item, 1, {})


def snapshot_runs(runs: Iterable[Run], every_step: bool) -> None:
    """Replace the inputs and outputs of runs by copies, and release those that a turn does not need.

    Dictionaries, lists, documents and messages are copied. Texts stay the same objects, and nothing is formatted.
    The values between the steps are not needed; keeping them would cost memory and work for the garbage collector.

    Args:
        runs: the records.
        every_step: keep the values of chains, prompts and parsers too, not only of the root and the usual steps.
    """
    seen: dict[int, Any] = {}
    errors: dict[int, Exception] = {}
    for run in runs:
        if run.error is not None:
            # An exception that leaves a node also ends the runs around it.
            run.error = errors.setdefault(id(run.error), _without_frames(run.error))
        if _is_needed(run, every_step):
            _snapshot_run(run, seen)
        elif run.kind == "prompt":
            # The values of the template's variables.
            run.input, run.output = copy_value(run.input, DEPTH, seen), None
        else:
            run.input = run.output = None


def _without_frames(error: BaseException) -> Exception:
    """Return an exception with the same name and message that keeps nothing of the application alive.

    The traceback of an exception refers to the frames of the application, and so to everything in them.
    """
    kind: type[Exception] = type(type(error).__name__, (Exception,), {})
    return kind(string_of(error))


def _is_needed(run: Run, every_step: bool) -> bool:
    if every_step or run.parent is None:
        return True
    return run.kind in _STEP_KINDS or _handles_documents(run) or _may_hold_text_results(run)


@or_else(False)
def _may_hold_text_results(run: Run) -> bool:
    """Return True if a function or a graph node returned a text whose name says that it is a search result."""
    if type(run.output) in (str, list, tuple):
        return names_search(run.name)
    state = run.output.update if is_command(run.output) else run.output
    return any(
        type(item) in (str, list, tuple) and names_search_results(key) for key, item in fields_by_name(state).items()
    )


def _snapshot_run(run: Run, seen: dict[int, Any]) -> None:
    is_root = run.parent is None
    # A decision model has the input of a chain.
    has_prompts = run.kind == "llm" and not is_root and isinstance(run.input, (list, tuple))
    run.input = _prompts(run.input) if has_prompts else copy_value(run.input, DEPTH, seen)
    run.output = copy_value(run.output, DEPTH, seen)
    if is_root:
        run.output = _structured(run.output)


def _prompts(prompts: Sequence[Any]) -> list[Any]:
    """Copy the prompts that a model was given: texts, or lists of messages."""
    # ["When was …"] of a text model, [[SystemMessage("…"), HumanMessage("When was …")]] of a chat model.
    return list(map(_prompt_copy, prompts))


def _prompt_copy(prompt: Any) -> Any:
    if not isinstance(prompt, (list, tuple)):
        return prompt
    return [MessageSnapshot(message) for message in prompt if is_message(message)]


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
    return any(_has_document(item, depth - 1) for item in _items_in(value))


def _items_in(value: Any) -> Sequence[Any]:
    """Return what may hold documents in a list, a tuple or a state."""
    if is_a(value, (list, tuple)):
        items: Sequence[Any] = value[:_SEARCHED_ITEMS]
        return items
    return fields_of(value)


def _structured(output: Any) -> Any:
    """Copy an answer that is a pydantic object, or the pydantic objects in a mapping."""
    if type(output) is not dict:
        return _model(output)
    return {key: _model(value) for key, value in output.items()}


def _model(value: Any) -> Any:
    if not is_structured_answer(value):
        return value
    copied = value.model_copy()
    vars(copied).update({name: plain(item) for name, item in vars(copied).items()})
    return copied
