"""From the runs under one root to a turn: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from rageval_hooks.integrations.capture.authorship import carries, writer_of
from rageval_hooks.integrations.capture.durations import busy_seconds
from rageval_hooks.integrations.capture.run_facts import detail_of, end_of, is_inside, seconds_to_first_token
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.capture.values import first_string, is_a
from rageval_hooks.integrations.langchain.payloads import document_lists
from rageval_hooks.integrations.langchain.reading.answer import answer_of, is_stream_event
from rageval_hooks.integrations.langchain.reading.context import context_of
from rageval_hooks.integrations.langchain.reading.model_calls import (
    citations_of,
    generated_text,
    model_of,
    prompt_of,
    tool_calls_of,
    written_by,
)
from rageval_hooks.integrations.langchain.reading.question import query_of
from rageval_hooks.integrations.langchain.reading.status import is_complete, outcome_of
from rageval_hooks.integrations.langchain.reading.steps import steps_of
from rageval_hooks.turn import Passage, SpanReference, Timing, Turn, TurnStatus, Usage

__all__ = ["IDENTITY_KEYS", "turn_from_runs"]

_SESSION_KEYS = ("session_id", "thread_id", "conversation_id")
_USER_KEYS = ("user_id",)
IDENTITY_KEYS = (*_SESSION_KEYS, *_USER_KEYS)

# Metadata that LangChain and LangGraph add, for example "ls_provider", "langgraph_node" or "checkpoint_ns".
_OWN_METADATA = ("ls_", "lc_", "langgraph_", "checkpoint_", "__")


def turn_from_runs(
    runs: Sequence[Run],
    *,
    every_step: bool = False,
    earlier: Mapping[str, Sequence[Passage]] | None = None,
    span: SpanReference | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Turn:
    """Build a turn from the runs under one root.

    Args:
        runs: the records by start time, the root first.
        every_step: keep chains, prompts and parsers as steps too, not only retrievers, model calls and tools.
        earlier: what tools found in earlier turns, by the id of the tool call.
        span: the turn's position in its trace.
        attributes: what the application put into its OpenTelemetry context: ``session.id``, ``user.id``, ``metadata``.
    """
    root = runs[0]
    ended_at = end_of(root, root.started_at)
    # A model inside a retriever rewrites the query or compresses documents: it does not answer.
    models = [run for run in runs if run.kind == "llm" and not is_inside(run, "retriever")]
    came_out = _came_out(root, models)
    answering = _answering(models, came_out)
    status, error = outcome_of(runs, answering)
    response = _response(runs, models, answering, came_out, status)
    context = context_of(runs, models=models, answering=answering, response=response, earlier=earlier or {})
    query = query_of(root.input) or next(iter(context.queries), "")
    steps = steps_of(runs, ended_at, every_step, context)
    identity = _identity(runs)
    metadata = root.metadata or {}
    attributes = attributes or {}
    return Turn(
        id=root.text_id,
        name=root.name,
        framework="langchain",
        query=query,
        passages=context.passages,
        response=response,
        retrieval_queries=tuple(dict.fromkeys(text for text in context.queries if text.strip() != query.strip())),
        prompt=prompt_of(answering) if answering is not None else (),
        usage=Usage.sum(step.usage for step in steps),
        model=model_of(answering) if answering is not None else None,
        timing=Timing(
            started_at=root.started_at,
            ended_at=ended_at,
            retrieval=busy_seconds((run.started_at, end_of(run, ended_at)) for run in context.searches),
            generation=busy_seconds((run.started_at, end_of(run, ended_at)) for run in models),
            time_to_first_token=_first_token(answering, root),
            waiting=_seconds_waited(root, ended_at) if _waits_of(root) else None,
        ),
        span=span,
        steps=steps,
        status=status,
        first_half_missing=bool((root.details or {}).get("first_half_missing")),
        complete=not response or is_complete(status, answering),
        error=error,
        session_id=first_string(identity, _SESSION_KEYS) or first_string(attributes, ("session.id",)),
        user_id=first_string(identity, _USER_KEYS) or first_string(attributes, ("user.id",)),
        metadata={
            **(attributes.get("metadata") or {}),
            **_citations(answering, response),
            **identity,
            **{key: value for key, value in metadata.items() if not str(key).startswith(_OWN_METADATA)},
        },
    )


def _waits_of(root: Run) -> Sequence[tuple[int, int]]:
    """Return when a graph waited for a person: start and end in nanoseconds."""
    waits: Sequence[tuple[int, int]] = (root.details or {}).get("waits", ())
    return waits


def _seconds_waited(root: Run, until: int) -> float:
    return sum(max(0, end - start) for start, end in _waits_of(root) if end <= until) / 1e9


def _first_token(answering: Run | None, root: Run) -> float | None:
    seconds = seconds_to_first_token(answering, root.started_at)
    if seconds is None or answering is None:
        return None
    return max(0.0, seconds - _seconds_waited(root, answering.first_token_at or 0))


def _citations(answering: Run | None, response: str) -> dict[str, Any]:
    """Return the citations that the model marked, if the response is exactly its text: else positions are wrong."""
    if answering is None or generated_text(answering.output) != response:
        return {}
    found = citations_of(answering.output)
    return {"citations": found} if found else {}


# --------------------------------------------------------------------------- the answer and who wrote it


def _came_out(root: Run, models: Sequence[Run]) -> str:
    """Return the answer in the root's output; empty if it has no answer."""
    streamed = detail_of(root, "streamed")
    streams = [run.tokens for run in models if run.tokens] if streamed else []
    text = str(answer_of(root.output, root.input, _texts(models), ["".join(tokens) for tokens in streams]))
    # The last event of a stream may hold its last piece: the answer is then all pieces together.
    if is_stream_event(root.output, root.input) and any(_is_last_piece(text, tokens) for tokens in streams):
        return ""
    return text


def _is_last_piece(text: str, tokens: Sequence[str]) -> bool:
    pieces = [token for token in tokens if token]
    return len(tokens) > 1 and text == (pieces[-1] if pieces else "")


def _texts(models: Sequence[Run]) -> list[str]:
    """Return the texts of the models that did not request tools, the last one first."""
    texts = [generated_text(run.output) for run in reversed(models) if not tool_calls_of(run.output)]
    return [text for text in texts if text]


def _answering(models: Sequence[Run], response: str) -> Run | None:
    """Return the model call that wrote the answer. If no text tells, it is the last one that requested no tools."""
    writer = writer_of(response, models, written_by)
    if writer is not None:
        return writer
    for run in reversed(models):
        if not tool_calls_of(run.output):
            return run
    return models[-1] if models else None


def _response(
    runs: Sequence[Run], models: Sequence[Run], answering: Run | None, came_out: str, status: TurnStatus
) -> str:
    """Return the answer: what came out of the root, else what the answering model wrote or had streamed so far."""
    root = runs[0]
    if status == "interrupted":
        # The state of a waiting graph may have the answer of an earlier turn.
        return came_out if any(carries(came_out, text) for text in _texts(models)) else ""
    if came_out or is_a(root.output, (str, BaseMessage)):
        return came_out
    if answering is None or _only_searches(root, runs, answering):
        return ""
    if answering.tokens and (root.output is None or answering.ended_at is None):
        return "".join(answering.tokens)
    return generated_text(answering.output)


def _only_searches(root: Run, runs: Sequence[Run], answering: Run) -> bool:
    """Return True if a chain returns what a retriever found for the model's text: the model wrote queries."""
    if answering.ended_at is None or not is_a(root.output, list) or not document_lists(root.output):
        return False
    return any(run.kind == "retriever" and run.started_at >= answering.ended_at for run in runs)


# --------------------------------------------------------------------------- session, user


def _identity(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the ids of session and user: from the first run that has them, or from its configuration."""
    found: dict[str, Any] = {}
    for run in runs:
        for source in (run.metadata, detail_of(run, "configurable")):
            for key in IDENTITY_KEYS:
                if source and source.get(key) is not None:
                    found.setdefault(key, source[key])
    return found
