"""From the runs under one root to a turn with its steps: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from rageval_hooks.integrations.capture.fields import is_beside_answer
from rageval_hooks.integrations.capture.host_values import first_string, is_a
from rageval_hooks.integrations.capture.passages import passage_key
from rageval_hooks.integrations.capture.run_facts import (
    application_fields,
    busy_times,
    end_of,
    of_kind,
    outside,
    rewritten,
    seconds_to_first_token,
    step_frame,
)
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import DocumentReader, as_json, as_text, fields_by_name, tool_text
from rageval_hooks.integrations.langchain.turn_building.models import (
    call_fields,
    citations_of,
    classifies,
    generated_text,
)
from rageval_hooks.integrations.langchain.turn_building.outcome import (
    answering_call,
    is_cancelled,
    is_complete,
    outcome_of,
    response_of,
    returned_answer,
)
from rageval_hooks.integrations.langchain.turn_building.passages import EarlierSearches, TurnPassages, passages_of_turn
from rageval_hooks.integrations.langchain.turn_building.question import query_of
from rageval_hooks.turn import Passage, SpanReference, Step, StepKind, Timing, Turn, Usage

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
    steps = _steps_of(runs, ended_at, every_step, context)
    identity = _identity(runs)
    # The citations that the model marked. Their positions hold only for exactly its text.
    written = next((step for step in steps if answering is not None and step.id == answering.text_id), None)
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
        prompt=() if written is None else written.messages,
        model=None if written is None else written.model,
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


# --------------------------------------------------------------------------- steps


def _steps_of(runs: Sequence[Run], ended_at: int, every_step: bool, context: TurnPassages) -> tuple[Step, ...]:
    """Build the steps of a turn: retrievers, model calls and tools.

    Args:
        runs: the records by start time, the root first.
        ended_at: when the turn ended.
        every_step: keep chains, prompts and parsers too.
        context: the turn's passages, marked, and which runs found them.
    """
    searches = set(map(id, context.searches))
    marked = {passage_key(passage): passage for passage in context.passages}
    kept = [
        run
        for run in runs
        if run.kind in ("retriever", "llm", "tool") or id(run) in searches or (every_step and run.parent is not None)
    ]
    ids = set(map(id, kept))
    steps = []
    for run in kept:
        # A function or a graph node that searches by itself is shown as a retriever.
        kind = "retriever" if run.kind == "chain" and id(run) in searches else run.kind
        fields: dict[str, Any]
        if kind == "llm":
            fields = call_fields(run, runs)
        elif kind == "tool":
            fields = {
                # LangChain passes a string, for example "{'city': 'Rome'}", or a mapping.
                "input": run.input if isinstance(run.input, str) else as_json(run.input),
                "output": tool_text(run.output),
                "description": run.details.get("description"),
                "call_id": run.details.get("tool_call_id"),
            }
        else:
            fields = {"input": as_text(run.input), "output": as_text(run.output)}
        found = context.found.get(id(run))
        if kind == "retriever":
            del fields["output"]  # it is the passages
            found = DocumentReader().passages_in(run.output) if found is None else found
        if found is not None:
            fields |= {
                "input": query_of(run.input),
                "passages": tuple(marked.get(passage_key(passage), passage) for passage in found),
                "top_k": run.details.get("top_k"),
                # The collection that was searched, else the class of the vector store.
                "data_source": run.details.get("collection")
                or first_string(run.metadata, ("ls_vector_store_provider",)),
            }
        step = Step(
            kind=cast("StepKind", kind),
            span_id=run.details.get("span_id"),
            span_tracer=run.details.get("span_tracer"),
            **step_frame(run, ids, ended_at, is_cancelled(run.error)),
            **fields,
        )
        steps.append(step)
    return tuple(steps)
