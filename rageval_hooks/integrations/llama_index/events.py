"""From what was recorded of LlamaIndex's spans and events under one root to a turn: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.durations import busy_seconds
from rageval_hooks.integrations.capture.passages import mark_shown, unique_passages
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import first_string, or_else
from rageval_hooks.integrations.llama_index.calls import answering_call, counted_calls, generated_text, model_name
from rageval_hooks.integrations.llama_index.context import context_of, inside, nodes_after, repetitions
from rageval_hooks.integrations.llama_index.payloads import (
    Made,
    Streamed,
    answer_of,
    arguments_of,
    messages_of,
    passages_of,
    query_of,
)
from rageval_hooks.integrations.llama_index.steps import steps_of, with_mark
from rageval_hooks.turn import ErrorInfo, Passage, SpanReference, Timing, Turn, TurnStatus, Usage

__all__ = ["turn_from_events"]

_CANCELS = frozenset({"CancelledError", "GeneratorExit", "KeyboardInterrupt", "WorkflowCancelledByUser"})
_SESSION_KEYS = ("session_id", "session.id", "thread_id", "conversation_id")
_USER_KEYS = ("user_id", "user.id")
_OWN_TAGS = "llamaindex."


def turn_from_events(
    runs: Sequence[Run],
    *,
    every_step: bool = False,
    span: SpanReference | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Turn:
    """Build a turn from what was recorded under one root.

    Args:
        runs: the records by start time, the root first.
        every_step: keep whatever had a span as a step, not only retrievers, rerankers, model calls and tools.
        span: where the turn stands in its trace.
        attributes: what the application put into its OpenTelemetry context: ``session.id``, ``user.id``, ``metadata``.
    """
    root = runs[0]
    ended_at = _end(root, root.started_at)
    calls = counted_calls(runs)
    answers = [call for call in calls if not inside(call, "retriever", "reranker")]
    came_out = _came_out(root, runs)
    answering = answering_call(root, answers, came_out)
    retrievals = [
        run for run in runs if run.kind in ("retriever", "reranker") and not inside(run, "retriever", "reranker")
    ]
    made: Made = {}
    context = passages_of(context_of(runs), made)
    marked = _marked([*context, *_retrieved(retrievals, made)], answers, answering)
    query = query_of(arguments_of(root.input)) or _asked(calls)
    queries = _retrieval_queries(runs, answers)
    steps = steps_of(runs, calls, ended_at, marked, every_step, made)
    tags = _tags(runs)
    attributes = attributes or {}
    status, error = _outcome(root, runs)
    response = _response(root, answering, came_out)
    return Turn(
        id=root.text_id,
        name=root.name,
        framework="llama_index",
        query=query,
        passages=tuple(with_mark(passage, marked) for passage in unique_passages(context)),
        response=response,
        retrieval_queries=tuple(dict.fromkeys(text for text in queries if text.strip() not in ("", query.strip()))),
        prompt=messages_of(answering.input) if answering is not None else (),
        usage=Usage.sum(step.usage for step in steps),
        model=model_name(answering) if answering is not None else None,
        timing=Timing(
            started_at=root.started_at,
            ended_at=ended_at,
            retrieval=busy_seconds((run.started_at, _end(run, ended_at)) for run in retrievals),
            generation=busy_seconds((run.started_at, _end(run, ended_at)) for run in answers),
            time_to_first_token=_first_token(answering, root),
        ),
        span=span,
        steps=steps,
        status=status,
        complete=not response or status not in ("cancelled", "error"),
        error=error,
        session_id=first_string(tags, _SESSION_KEYS) or first_string(attributes, ("session.id",)),
        user_id=first_string(tags, _USER_KEYS) or first_string(attributes, ("user.id",)),
        metadata={**(attributes.get("metadata") or {}), **tags},
    )


def _end(run: Run, otherwise: int) -> int:
    return max(run.started_at, run.ended_at if run.ended_at is not None else otherwise)


# --------------------------------------------------------------------------- passages


def _retrieved(retrievals: Iterable[Run], made: Made) -> list[Passage]:
    return [passage for run in retrievals for passage in passages_of(nodes_after(run) or (), made)]


def _marked(
    passages: Sequence[Passage], answers: Sequence[Run], answering: Run | None
) -> dict[tuple[str | None, str], Passage]:
    """Mark which passages stand in the prompts of the answer: of refining and summarizing, every call's prompt counts.

    A call for the answer is one inside a synthesizer, or the last one of all.
    """
    asked = [call for call in answers if call is answering or inside(call, "synthesizer", "writer")]
    prompt = "\n".join(message.content for call in asked for message in messages_of(call.input)) if asked else None
    return {(passage.id, passage.text): passage for passage in mark_shown(unique_passages(passages), prompt)}


# --------------------------------------------------------------------------- question and answer


def _asked(calls: Sequence[Run]) -> str:
    """Return what the user said in the first prompt: a workflow that was resumed has no question of its own."""
    said = [message.content for message in messages_of(calls[0].input) if message.role == "user"] if calls else []
    return said[-1] if said else ""


def _came_out(root: Run, runs: Sequence[Run]) -> str:
    """Return the answer as it came out of the root, or was streamed to the caller."""
    text: str = answer_of(root.output)
    if text or type(root.output) is not Streamed:
        return text
    streams = (run for run in reversed(runs) if type(run.output) is Streamed and run.output == root.output)
    return next(("".join(run.tokens) for run in streams if run.tokens), "")


def _retrieval_queries(runs: Sequence[Run], answers: Sequence[Run]) -> list[str]:
    """Return what retrievers were asked, without the prompts by which an evaluator had an answer judged."""
    repeated = repetitions(runs)
    written = [text for text in map(generated_text, answers) if text] if repeated else []
    asked = [(run, query_of(arguments_of(run.input))) for run in runs if run.kind == "retriever"]
    return [text for run, text in asked if not (id(run) in repeated and any(answer in text for answer in written))]


def _response(root: Run, answering: Run | None, came_out: str) -> str:
    """Return the answer: what came out of the root, else what the model wrote."""
    if came_out or root.kind == "retriever" or answering is None:
        return came_out
    if root.output is None or type(root.output) is Streamed or _is_chat_stream(root.output):
        return generated_text(answering)
    return ""


@or_else(False)
def _is_chat_stream(output: Any) -> bool:
    return hasattr(output, "chat_stream")


def _first_token(answering: Run | None, root: Run) -> float | None:
    if answering is None or answering.first_token_at is None:
        return None
    return max(0, answering.first_token_at - root.started_at) / 1e9


def _outcome(root: Run, runs: Iterable[Run]) -> tuple[TurnStatus, ErrorInfo | None]:
    name = type(root.error).__name__ if root.error is not None else None
    if name in _CANCELS or (root.details or {}).get("cancelled"):
        return ("interrupted" if any(map(_waits_for_a_human, runs)) else "cancelled"), None
    if root.error is None:
        return "ok", None
    return "error", ErrorInfo.of(root.error)


def _waits_for_a_human(run: Run) -> bool:
    """Whether a workflow's step waited for somebody's response when it ended."""
    bases = {base.__name__ for value in (run.error, run.output) for base in type(value).__mro__}
    return bool(bases & {"WaitingForEvent", "InputRequiredEvent"})


def _tags(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the application attached with ``instrument_tags``; workflows attach their own, which are left out."""
    tags = runs[0].metadata or {}
    return {key: value for key, value in tags.items() if not str(key).startswith(_OWN_TAGS)}
