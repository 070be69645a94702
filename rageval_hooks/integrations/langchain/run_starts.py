"""Reads the event for the start of a run: the name, the enclosing run, details, and the sampling decision."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from uuid import UUID

from opentelemetry import context as otel_context

from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.framework import key_of, running_retriever, surrounding_run
from rageval_hooks.integrations.langchain.resuming import earlier_sampling
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.runtime.selecting import entries_under

__all__ = ["class_name", "details_of", "parent_key", "selection_of_first_half"]

_recorder = shared_recorder()

_TOOL_DETAILS = ("description", "is_search", "tool_call_id")


def class_name(serialized: dict[str, Any] | None) -> Any:
    """Return the name of a component, for example from {"name": "ChatOpenAI", "id": ["langchain", …]}."""
    return (serialized or {}).get("name")


def parent_key(parent_run_id: UUID | None) -> Hashable | None:
    """Return the key of the enclosing run.

    LangChain reports no parent, or one that is unknown here, if the call was made with separate callbacks. It is
    still part of the run that it was made in.
    """
    parent = key_of(parent_run_id)
    is_known = _recorder.knows(parent)

    # A retriever may call a model. LangChain's context does not contain retrievers, so it names the run around it.
    retriever = running_retriever()
    if retriever is not None and (not is_known or _encloses(parent, retriever)):
        return retriever.id
    # The recorder decides what becomes of a run whose parent has ended.
    if is_known or parent in _recorder.ended:
        return parent
    around = surrounding_run()
    return around if _recorder.knows(around) else parent


def _encloses(key: Hashable | None, run: Run) -> bool:
    """Return True if the run with this key is around another one."""
    return any(ancestor.id == key for ancestor in run.ancestors())


def details_of(kind: str, parent_run_id: UUID | None, fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return the values that only some kinds of runs have, by name; None for a run without such values.

    Args:
        kind: the kind of the run.
        parent_run_id: LangChain's id of the enclosing run.
        fields: the further arguments of the event.
    """
    if kind == "llm":
        return {"invocation_params": fields.get("invocation_params")}
    if kind == "tool":
        return entries_under(fields, _TOOL_DETAILS)
    if kind == "prompt":
        return {"template": fields.get("template")}
    # LangChain says so for the root of chain.stream(…), whose input is only known at its end.
    if parent_run_id is None and "defers_inputs" in fields:
        return {"streamed": True}
    return None


def selection_of_first_half(pipeline: Pipeline, input: Any, fields: dict[str, Any]) -> TurnContext | None:
    """Return the selection of a root that resumes a turn: that of the first half; None for any other root."""
    selected = earlier_sampling(input, fields.get("metadata"))
    return None if selected is None else pipeline.begin(otel_context.get_current(), selected=selected)
