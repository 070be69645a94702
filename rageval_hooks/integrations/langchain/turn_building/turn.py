"""From the runs under one root to a turn: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.fields import is_beside_answer
from rageval_hooks.integrations.capture.host_values import first_string, is_a
from rageval_hooks.integrations.capture.run_facts import (
    application_fields,
    busy_times,
    end_of,
    of_kind,
    outside,
    rewritten,
    seconds_to_first_token,
)
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import fields_by_name
from rageval_hooks.integrations.langchain.turn_building.models import (
    citations_of,
    classifies,
    generated_text,
    model_of,
    prompt_of,
)
from rageval_hooks.integrations.langchain.turn_building.outcome import (
    answering_call,
    is_complete,
    outcome_of,
    response_of,
    returned_answer,
)
from rageval_hooks.integrations.langchain.turn_building.passages import EarlierSearches, passages_of_turn
from rageval_hooks.integrations.langchain.turn_building.question import query_of
from rageval_hooks.integrations.langchain.turn_building.steps import steps_of
from rageval_hooks.turn import Passage, SpanReference, Timing, Turn, Usage

__all__ = ["IDENTITY_KEYS", "turn_from_runs", "turn_of_conversation"]

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
    question_key: str | None = None,
    span: SpanReference | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Turn:
    """Build a turn from the runs under one root.

    Args:
        runs: the records by start time, the root first.
        every_step: keep chains, prompts and parsers as steps too, not only retrievers, model calls and tools.
        earlier: what was found in earlier turns: see :class:`EarlierSearches`.
        question_key: the key that the question had in the input of the conversation's turn before.
        span: the turn's position in its trace.
        attributes: what the application put into its OpenTelemetry context: ``session.id``, ``user.id``, ``metadata``.
    """
    root = runs[0]
    ended_at = end_of(root, root.started_at)
    # A model inside a retriever rewrites the query or compresses documents: it does not answer.
    models = [run for run in outside(of_kind(runs, "llm"), "retriever") if not classifies(run)]
    returned = returned_answer(root, models)
    answering = answering_call(models, returned)
    status, error = outcome_of(runs, answering, returned)
    response = response_of(runs, models, answering, returned, status)
    context = passages_of_turn(runs, models=models, answering=answering, response=response, earlier=earlier or {})
    # What was searched for first is the best guess if the input of the root has no question.
    query = _query(root, question_key) or next(iter(context.queries), "")
    steps = steps_of(runs, ended_at, every_step, context)
    identity = _identity(runs)
    # The citations that the model marked. Their positions hold only for exactly its text.
    is_whole_text = answering is not None and generated_text(answering.output) == response
    citations = citations_of(answering.output) if answering is not None and is_whole_text else ()
    metadata = {key: value for key, value in root.metadata.items() if not str(key).startswith(_OWN_METADATA)}
    return Turn(
        id=root.text_id,
        name=root.name,
        framework="langchain",
        query=query,
        passages=context.passages,
        response=response,
        retrieval_queries=rewritten(context.queries, query),
        usage=Usage.of_steps(steps),
        timing=Timing(
            started_at=root.started_at,
            ended_at=ended_at,
            **busy_times(steps),
            time_to_first_token=_first_token(answering, root),
            waiting=_seconds_waited(root, ended_at) if root.details.get("waits") else None,
        ),
        span=span,
        steps=steps,
        status=status,
        first_half_missing=bool(root.details.get("first_half_missing")),
        complete=not response or is_complete(status, answering, response),
        error=error,
        prompt=() if answering is None else prompt_of(answering),
        model=None if answering is None else model_of(answering),
        **application_fields(
            first_string(identity, _SESSION_KEYS),
            first_string(identity, _USER_KEYS),
            {**({"citations": citations} if citations else {}), **identity, **metadata},
            attributes,
        ),
    )


_earlier = EarlierSearches()


def turn_of_conversation(runs: Sequence[Run], **options: Any) -> Turn:
    """Build a turn with what earlier turns of this process found, and remember what it found itself."""
    turn = turn_from_runs(runs, earlier=_earlier, question_key=_earlier.question_key(runs), **options)
    _earlier.remember(runs, turn)
    return turn


def _query(root: Run, question_key: str | None) -> str:
    """Return the user's question in the input of the root; empty if it has no question."""
    if not root.details.get("first_half_missing"):
        return query_of(root.input)
    # The state of a graph that goes on. Its messages may be those of an agent inside it.
    state: Mapping[Any, Any] = fields_by_name(root.input)
    if question_key in state and (question := query_of(state[question_key])):
        return question
    texts = [item for key, item in state.items() if is_a(item, str) and item and not is_beside_answer(key)]
    return query_of(root.input) or next(iter(texts), "")


def _seconds_waited(root: Run, until: int) -> float:
    """Return how long a graph had waited for a person by a time in nanoseconds since the epoch."""
    waits: Sequence[tuple[int, int]] = root.details.get("waits") or ()
    return sum(end - start for start, end in waits if end <= until) / 1e9


def _first_token(answering: Run | None, root: Run) -> float | None:
    """Return the seconds to the first token of the answer, without those in which a graph waited for a person."""
    seconds = seconds_to_first_token(answering, root.started_at)
    if seconds is None or answering is None:
        return None
    return max(0.0, seconds - _seconds_waited(root, answering.first_token_at or 0))


def _identity(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the ids of session and user: from the first run that has them, or from its configuration."""
    found: dict[str, Any] = {}
    for run in runs:
        # chain.invoke(…, {"metadata": {"session_id": "42"}}) or {"configurable": {"thread_id": "42"}}
        for source in (run.metadata, run.details.get("configurable") or {}):
            for key in IDENTITY_KEYS:
                if source.get(key) is not None:
                    found.setdefault(key, source[key])
    return found
