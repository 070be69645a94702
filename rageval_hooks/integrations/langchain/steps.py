"""The steps of a turn: retrievers, model calls and tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import first_string
from rageval_hooks.integrations.langchain.context import Context
from rageval_hooks.integrations.langchain.documents import passages_of
from rageval_hooks.integrations.langchain.model_calls import (
    generated_text,
    model_of,
    prompt_of,
    request_model_of,
    response_id_of,
    tool_calls_of,
    usage_of,
)
from rageval_hooks.integrations.langchain.question import query_of
from rageval_hooks.integrations.langchain.rendering import as_json, as_text, tool_text
from rageval_hooks.integrations.langchain.status import is_cancelled, seconds_to_first_token
from rageval_hooks.turn import ErrorInfo, Passage, Step, StepKind

__all__ = ["steps_of"]

_STEP_KINDS = frozenset({"retriever", "llm", "tool"})


def steps_of(runs: Sequence[Run], ended_at: int, every_step: bool, context: Context) -> tuple[Step, ...]:
    """Build the steps of a turn.

    Args:
        runs: the records by start time, the root first.
        ended_at: when the turn ended.
        every_step: keep chains, prompts and parsers too.
        context: the turn's passages, marked, and which runs found them.
    """
    searches = {id(run) for run in context.searches}
    marked = {(passage.id, passage.text): passage for passage in context.passages}
    kept = [run for run in runs if _is_step(run, searches, every_step)]
    ids = {id(run) for run in kept}
    steps = []
    for run in kept:
        parent = next((ancestor for ancestor in run.ancestors() if id(ancestor) in ids), None)
        stopped = is_cancelled(run.error)
        # A function or a graph node that searches by itself is shown as a retriever.
        kind: StepKind = "retriever" if run.kind == "chain" and id(run) in searches else run.kind  # type: ignore[assignment]
        steps.append(
            Step(
                id=run.text_id,
                parent_id=None if parent is None else parent.text_id,
                kind=kind,
                name=run.name,
                started_at=run.started_at,
                ended_at=max(run.started_at, ended_at if run.ended_at is None else run.ended_at),
                error=None if stopped or run.error is None else ErrorInfo.of(run.error),
                complete=run.ended_at is not None and not stopped,
                span_id=(run.details or {}).get("span_id"),
                **_fields(run, kind, context, marked),
            )
        )
    return tuple(steps)


def _is_step(run: Run, searches: set[int], every_step: bool) -> bool:
    if run.kind in _STEP_KINDS or id(run) in searches:
        return True
    return every_step and run.parent is not None


def _fields(
    run: Run, kind: StepKind, context: Context, marked: Mapping[tuple[str | None, str], Passage]
) -> dict[str, Any]:
    if kind == "llm":
        return {
            "messages": prompt_of(run),
            "output": generated_text(run.output) or _partial_output(run),
            "model": model_of(run),
            "request_model": request_model_of(run),
            "response_id": response_id_of(run),
            "provider": first_string(run.metadata or {}, ("ls_provider",)),
            "usage": usage_of(run),
            "time_to_first_token": seconds_to_first_token(run, run.started_at),
        }
    found = context.found.get(id(run))
    if kind == "retriever" or found is not None:
        passages = passages_of(run.output) if found is None else found
        return {
            "input": run.input if isinstance(run.input, str) else query_of(run.input),
            "passages": tuple(marked.get((passage.id, passage.text), passage) for passage in passages),
            "output": tool_text(run.output) if kind == "tool" else None,
        }
    if kind == "tool":
        return {
            "input": run.input if isinstance(run.input, str) else as_json(run.input),
            "output": tool_text(run.output),
        }
    return {"input": as_text(run.input), "output": as_text(run.output)}


def _partial_output(run: Run) -> str:
    """Return what a call without a text wrote: the beginning of an answer that broke off, or tool calls."""
    if run.tokens:
        return "".join(run.tokens)
    calls = tool_calls_of(run.output)
    return as_json(calls) if calls else ""
