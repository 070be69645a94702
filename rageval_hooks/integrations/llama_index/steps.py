"""The operations inside a turn, which become its child spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.llama_index.calls import generated_text, model_name, tokens_used
from rageval_hooks.integrations.llama_index.components import provider_of
from rageval_hooks.integrations.llama_index.context import nodes_after
from rageval_hooks.integrations.llama_index.payloads import (
    Made,
    answer_of,
    arguments_of,
    messages_of,
    passages_of,
    query_of,
    tool_input,
)
from rageval_hooks.turn import ErrorInfo, Passage, Step, StepKind

__all__ = ["steps_of", "with_mark"]

_KINDS: Mapping[str, StepKind] = {
    "retriever": "retriever",
    "reranker": "reranker",
    "llm": "llm",
    "tool": "tool",
    "agent": "agent",
    "embedding": "embedding",
}
_ALWAYS = frozenset({"retriever", "reranker", "llm", "tool"})
_NO_ERRORS = frozenset({"CancelledError", "GeneratorExit", "KeyboardInterrupt", "WaitingForEvent"})


def steps_of(
    runs: Sequence[Run],
    calls: Sequence[Run],
    ended_at: int,
    marked: Mapping[tuple[str | None, str], Passage],
    every: bool,
    made: Made,
) -> tuple[Step, ...]:
    """Build the steps of a turn.

    Args:
        runs: the records by start time, the root first.
        calls: the model calls that count.
        ended_at: when the turn ended.
        marked: passages by id and text, with what of them was shown to the model.
        every: keep whatever had a span, not only retrievers, rerankers, model calls and tools.
        made: the passages that were made of nodes already.
    """
    counted = {id(call) for call in calls}
    kept = [
        run
        for run in runs
        if (id(run) in counted if run.kind == "llm" else run.kind in _ALWAYS or (every and run is not runs[0]))
        and not _repeats(run)
    ]
    ids = {id(run) for run in kept}
    steps = []
    for run in kept:
        parent = next((ancestor for ancestor in run.ancestors() if id(ancestor) in ids), None)
        unfinished = run.ended_at is None or type(run.error).__name__ in _NO_ERRORS
        error = None if unfinished or run.error is None else run.error
        steps.append(
            Step(
                id=run.text_id,
                parent_id=None if parent is None else parent.text_id,
                kind=_KINDS.get(run.kind, "chain"),
                name=run.name,
                started_at=run.started_at,
                ended_at=max(run.started_at, run.ended_at if run.ended_at is not None else ended_at),
                error=None if error is None else ErrorInfo.of(error),
                complete=not unfinished,
                **_fields(run, runs, marked, made),
            )
        )
    return tuple(steps)


def _repeats(run: Run) -> bool:
    """Whether it is a method of a component whose other method is around it: a tool's ``call`` inside ``__call__``."""
    if run.kind not in ("tool", "retriever", "reranker"):
        return False
    instance = (run.details or {}).get("instance")
    return any(
        ancestor.kind == run.kind
        and ((ancestor.details or {}).get("instance") is instance or (run.kind == "tool" and ancestor.name == run.name))
        for ancestor in run.ancestors()
    )


def _fields(
    run: Run, runs: Sequence[Run], marked: Mapping[tuple[str | None, str], Passage], made: Made
) -> dict[str, Any]:
    if run.kind == "llm":
        return {
            "messages": messages_of(run.input),
            "output": generated_text(run),
            "model": model_name(run),
            "provider": provider_of((run.details or {}).get("instance")),
            "usage": tokens_used(run, runs),
            "time_to_first_token": None
            if run.first_token_at is None
            else max(0, run.first_token_at - run.started_at) / 1e9,
        }
    if run.kind == "tool":
        return {"input": tool_input(run.input), "output": answer_of(run.output)}
    asked = query_of(arguments_of(run.input))
    if run.kind in ("retriever", "reranker"):
        passages = [with_mark(passage, marked) for passage in passages_of(nodes_after(run) or (), made)]
        return {"input": asked, "passages": tuple(passages)}
    return {"input": asked or None, "output": answer_of(run.output) or None}


def with_mark(passage: Passage, marked: Mapping[tuple[str | None, str], Passage]) -> Passage:
    """Add what of it was shown; the score stays the one of this stage."""
    mark = marked.get((passage.id, passage.text))
    if mark is None:
        return passage
    if mark.score == passage.score and mark.metadata == passage.metadata:
        return mark
    return passage.model_copy(update={"in_prompt": mark.in_prompt, "prompt_share": mark.prompt_share})
