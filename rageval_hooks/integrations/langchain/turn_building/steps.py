"""The steps of a turn: retrievers, model calls and tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from rageval_hooks.integrations.capture.host_values import first_string
from rageval_hooks.integrations.capture.passages import passage_key
from rageval_hooks.integrations.capture.run_facts import seconds_to_first_token, step_frame
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import DocumentReader, as_json, as_text, tool_text
from rageval_hooks.integrations.langchain.turn_building.models import (
    classifies,
    finish_reason_of,
    generated_text,
    model_of,
    parameters_of,
    prompt_of,
    request_model_of,
    response_id_of,
    template_of,
    tool_call,
    tool_calls_of,
    tools_of,
    usage_of,
)
from rageval_hooks.integrations.langchain.turn_building.outcome import is_cancelled
from rageval_hooks.integrations.langchain.turn_building.passages import TurnPassages
from rageval_hooks.integrations.langchain.turn_building.question import query_of
from rageval_hooks.turn import Passage, Step, StepKind

__all__ = ["steps_of"]

_STEP_KINDS = frozenset({"retriever", "llm", "tool"})

Marked: TypeAlias = Mapping[tuple[str | None, str], Passage]
"""Passages by id and text, marked with how much of each was in the prompt."""


def steps_of(runs: Sequence[Run], ended_at: int, every_step: bool, context: TurnPassages) -> tuple[Step, ...]:
    """Build the steps of a turn.

    Args:
        runs: the records by start time, the root first.
        ended_at: when the turn ended.
        every_step: keep chains, prompts and parsers too.
        context: the turn's passages, marked, and which runs found them.
    """
    searches = set(map(id, context.searches))
    marked = {passage_key(passage): passage for passage in context.passages}
    kept = [run for run in runs if _is_step(run, searches, every_step)]
    ids = set(map(id, kept))
    steps = []
    for run in kept:
        # A function or a graph node that searches by itself is shown as a retriever.
        searches_itself = run.kind == "chain" and id(run) in searches
        kind = "retriever" if searches_itself else run.kind
        step = Step(
            kind=cast("StepKind", kind),
            span_id=run.details.get("span_id"),
            span_tracer=run.details.get("span_tracer"),
            **step_frame(run, ids, ended_at, is_cancelled(run.error)),
            **_fields(run, runs, kind, context, marked),
        )
        steps.append(step)
    return tuple(steps)


def _is_step(run: Run, searches: set[int], every_step: bool) -> bool:
    if run.kind in _STEP_KINDS or id(run) in searches:
        return True
    return every_step and run.parent is not None


def _fields(run: Run, runs: Sequence[Run], kind: str, context: TurnPassages, marked: Marked) -> dict[str, Any]:
    """Return the fields that depend on the kind of a step."""
    if kind == "llm":
        return _model_fields(run, runs)
    found = context.found.get(id(run))
    if found is None and kind == "retriever":
        found = DocumentReader().passages_in(run.output)
    if found is not None:
        return _search_fields(run, kind, found, marked)
    if kind == "tool":
        return {"input": _tool_input(run), "output": tool_text(run.output), **_tool_fields(run)}
    return {"input": as_text(run.input), "output": as_text(run.output)}


def _model_fields(call: Run, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "messages": prompt_of(call),
        "template": template_of(call, runs),
        "tools": tools_of(call),
        "parameters": parameters_of(call),
        "tool_calls": tuple(map(tool_call, tool_calls_of(call.output))),
        "finish_reason": finish_reason_of(call),
        "output": as_text(call.output) if classifies(call) else generated_text(call.output) or _partial_output(call),
        "model": model_of(call),
        "request_model": request_model_of(call),
        "response_id": response_id_of(call),
        "provider": first_string(call.metadata, ("ls_provider",)),
        "usage": usage_of(call),
        "time_to_first_token": seconds_to_first_token(call, call.started_at),
    }


def _search_fields(run: Run, kind: str, found: Sequence[Passage], marked: Marked) -> dict[str, Any]:
    fields = {
        "input": query_of(run.input),
        "passages": tuple(marked.get(passage_key(passage), passage) for passage in found),
        "top_k": run.details.get("top_k"),
        "data_source": _data_source(run),
    }
    # A retriever's output is its passages; a tool has a text too.
    if kind == "tool":
        return {**fields, "output": tool_text(run.output), **_tool_fields(run)}
    return fields


def _data_source(run: Run) -> str | None:
    """Return the collection that was searched, else the class of the vector store."""
    return run.details.get("collection") or first_string(run.metadata, ("ls_vector_store_provider",))


def _tool_fields(run: Run) -> dict[str, Any]:
    return {"description": run.details.get("description"), "call_id": run.details.get("tool_call_id")}


def _tool_input(run: Run) -> str:
    """Return a tool's input: LangChain passes a string, for example "{'city': 'Rome'}", or a mapping."""
    return run.input if isinstance(run.input, str) else as_json(run.input)


def _partial_output(run: Run) -> str:
    """Return what a call without a text wrote: the beginning of an answer that broke off, or tool calls."""
    if run.tokens:
        return "".join(run.tokens)
    # [{"name": "search", "args": {"query": "pier"}, "id": "call_1"}]
    calls = tool_calls_of(run.output)
    return as_json(calls) if calls else ""
