"""The steps of a turn: the operations inside of it, which become its child spans."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.run_facts import detail_of, of_kind, seconds_to_first_token, step_frame
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.llama_index.payloads import (
    Made,
    answer_of,
    arguments_of,
    collection_of,
    finish_reason_of,
    messages_of,
    parameters_of,
    provider_of,
    query_of,
    response_id_of,
    template_in,
    tool_call,
    tool_calls_of,
    tool_fields,
    tool_input,
    tools_in,
    top_k_of,
)
from rageval_hooks.integrations.llama_index.reading.calls import (
    generated_text,
    model_name,
    requested_model,
    tokens_used,
)
from rageval_hooks.integrations.llama_index.reading.retrieval import Marks, passages_found, with_mark
from rageval_hooks.messages import PromptTemplate
from rageval_hooks.turn import Step, StepKind

__all__ = ["steps_of"]

_KINDS: Mapping[str, StepKind] = {
    "retriever": "retriever",
    "reranker": "reranker",
    "llm": "llm",
    "tool": "tool",
    "agent": "agent",
    "embedding": "embedding",
}
_ALWAYS = frozenset({"retriever", "reranker", "tool"})

# What stops a run without a failure: asyncio, a closed generator, Ctrl-C, and a workflow that waits for a person.
_NO_ERRORS = frozenset({"CancelledError", "GeneratorExit", "KeyboardInterrupt", "WaitingForEvent"})


def steps_of(
    runs: Sequence[Run],
    calls: Sequence[Run],
    ended_at: int,
    marks: Marks,
    every_step: bool,
    made: Made,
) -> tuple[Step, ...]:
    """Build the steps of a turn.

    Args:
        runs: the runs by start time, the root first.
        calls: the model calls that count.
        ended_at: when the turn ended.
        marks: passages by id and text, with how much of each was in the prompt.
        every_step: keep every span, not only retrievers, rerankers, model calls and tools.
        made: the passages that were made of nodes already.
    """
    kept = _kept_runs(runs, calls, every_step)
    ids = set(map(id, kept))
    steps = []
    for run in kept:
        was_stopped = type(run.error).__name__ in _NO_ERRORS
        step = Step(
            kind=_KINDS.get(run.kind, "chain"),
            span_id=detail_of(run, "span_id"),
            **step_frame(run, ids, ended_at, was_stopped),
            **_fields(run, runs, marks, made),
        )
        steps.append(step)
    return tuple(steps)


def _kept_runs(runs: Sequence[Run], calls: Sequence[Run], every_step: bool) -> list[Run]:
    counted = set(map(id, calls))
    root, *others = runs
    kept = [run for run in others if _is_kept(run, counted, every_step)]
    return [root, *kept] if _is_kept(root, counted, every_step=False) else kept


def _is_kept(run: Run, counted: Collection[int], every_step: bool) -> bool:
    if run.kind == "llm":
        return id(run) in counted
    if run.kind in _ALWAYS:
        return not _repeats(run)
    return every_step


def _repeats(run: Run) -> bool:
    """Return True if another method of the same component is around a run: a tool's ``call`` inside ``__call__``."""
    return any(_same_component(ancestor, run) for ancestor in of_kind(run.ancestors(), run.kind))


def _same_component(one: Run, other: Run) -> bool:
    if detail_of(one, "instance") is detail_of(other, "instance"):
        return True
    return one.kind == "tool" and one.name == other.name  # an adapter around a tool has its name


def _fields(run: Run, runs: Sequence[Run], marks: Marks, made: Made) -> dict[str, Any]:
    if run.kind == "llm":
        return _model_fields(run, runs)
    if run.kind == "tool":
        described = tool_fields(detail_of(run, "instance"))
        return {"input": tool_input(run.input), "output": answer_of(run.output), **described}
    query = query_of(arguments_of(run.input))
    if run.kind in ("retriever", "reranker"):
        passages = tuple(with_mark(passage, marks) for passage in passages_found(run, made))
        return {
            "input": query,
            "passages": passages,
            "top_k": top_k_of(detail_of(run, "instance")),
            "data_source": collection_of(detail_of(run, "instance")),
        }
    return {"input": query or None, "output": answer_of(run.output) or None}


def _model_fields(call: Run, runs: Sequence[Run]) -> dict[str, Any]:
    options = detail_of(call, "options")
    return {
        "messages": messages_of(call.input),
        "template": _template_of(call),
        "tools": tools_in(options),
        "parameters": parameters_of(detail_of(call, "model"), options),
        "tool_calls": tuple(map(tool_call, tool_calls_of(call.output))),
        "finish_reason": finish_reason_of(call.output),
        "output": generated_text(call),
        "model": model_name(call),
        "request_model": requested_model(call),
        "response_id": response_id_of(call.output),
        "provider": provider_of(detail_of(call, "instance")),
        "usage": tokens_used(call, runs),
        "time_to_first_token": seconds_to_first_token(call, call.started_at),
    }


def _template_of(call: Run) -> PromptTemplate | None:
    """Return the template of a call that a ``predict`` around it has made."""
    for ancestor in call.ancestors():
        if ancestor.kind != "model":
            return None
        found = template_in(ancestor.input, detail_of(ancestor, "instance"))
        if found is not None:
            return found
    return None
