"""From a block to a turn: what the application said, joined with the turns of the framework runs inside the block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from rageval_hooks.integrations.capture.authorship import ModelCall, contributors, prompt_text, writer_of
from rageval_hooks.integrations.capture.host_values import last_of
from rageval_hooks.integrations.capture.passages import mark_dropped, mark_seen, unique_passages
from rageval_hooks.integrations.capture.run_facts import (
    application_fields,
    busy_times,
    is_retrieval,
    of_kind,
    outcome_of_error,
    outside_retrieval,
    rewritten,
)
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.manual.open_turn import Given
from rageval_hooks.turn import Passage, SpanReference, Step, Timing, Turn, Usage

__all__ = ["join_inner_turns", "turn_from_block"]


def turn_from_block(
    runs: Sequence[Run],
    *,
    every_step: bool = False,  # noqa: ARG001 - part of the signature that all frameworks share
    span: SpanReference | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Turn:
    """Build a turn from what the application said about it.

    Args:
        runs: the block's record.
        every_step: has no effect: the block itself is the only run.
        span: the turn's position in its trace.
        attributes: what the application put into its OpenTelemetry context: ``session.id``, ``user.id``, ``metadata``.
    """
    block = runs[0]
    details = block.details or {}
    given: Given = details["given"]
    status, error = outcome_of_error(block.error)
    return Turn(
        id=block.text_id,
        query=given.question,
        passages=unique_passages(tuple(details["passages"])),
        response=block.output or "",
        reference=given.reference,
        timing=Timing(started_at=block.started_at, ended_at=max(block.started_at, block.ended_at or 0)),
        span=span,
        status=status,
        error=error,
        **application_fields(given.session_id, given.user_id, given.metadata, attributes),
    )


# --------------------------------------------------------------------------- framework runs inside the block


def join_inner_turns(turn: Turn, inner: Sequence[Turn]) -> Turn:
    """Add what frameworks did inside a block.

    Args:
        turn: the block's turn.
        inner: the turns that the frameworks' outermost runs would be by themselves, by start time.
    """
    if not inner:
        return turn
    # The turns may have run at the same time.
    steps = tuple(sorted(chain.from_iterable(one.steps for one in inner), key=lambda step: step.started_at))
    calls = of_kind(outside_retrieval(steps), "llm")
    # The last inner turn with an answer: one that called a model, because a chain that formats text has a response too.
    with_response = [one for one in inner if one.response]
    answered = last_of([one for one in with_response if of_kind(one.steps, "llm")] or with_response)
    writer = _writer(turn.response, answered, calls)
    # The inner turn whose model wrote the answer of the block.
    source = answered if answered is not None and writer in answered.steps else None
    everyone = (turn, *inner)
    status = turn.status
    if status == "ok" and not turn.response and inner[-1].status == "interrupted":
        status = "interrupted"  # an error inside the block did not reach its end: the application has handled it
    # What was searched for: a retriever that is called directly is an inner turn whose question is the query.
    searched = chain.from_iterable(
        (*([one.query] if any(map(is_retrieval, one.steps)) else ()), *one.retrieval_queries) for one in inner
    )
    return turn.model_copy(
        update={
            "query": turn.query or inner[0].query,
            "passages": _passages(turn, inner, source, _prompt_of(writer, calls)),
            "retrieval_queries": rewritten(searched, turn.query),
            "usage": Usage.of_steps(steps),
            "timing": _timing(turn, steps, writer),
            "steps": steps,
            "status": status,
            "session_id": next((one.session_id for one in everyone if one.session_id), None),
            "user_id": next((one.user_id for one in everyone if one.user_id), None),
            # For example the citations of the answer. What the application says wins.
            "metadata": {**({} if source is None else source.metadata), **turn.metadata},
            "prompt": () if writer is None else writer.messages,
            "model": None if writer is None else writer.model,
            **_answer_fields(turn, inner, answered),
        }
    )


# --------------------------------------------------------------------------- the answer and who wrote it


def _answer_fields(turn: Turn, inner: Sequence[Turn], answered: Turn | None) -> dict[str, Any]:
    """Return the answer and whether it is whole: the application's own answer, else the captured one."""
    if answered is None:
        return {"framework": inner[-1].framework, "complete": True}
    if turn.response:
        return {"framework": answered.framework, "complete": True}
    # The model was stopped, or the block ended with an exception before the application used the answer.
    is_complete = answered.complete and turn.status == "ok"
    return {"framework": answered.framework, "response": answered.response, "complete": is_complete}


def _text_of(step: Step) -> str:
    return step.output or ""


def _writer(response: str, answered: Turn | None, calls: Sequence[Step]) -> Step | None:
    """Return the model call that wrote the answer; None if no captured call did, for example an HTTP client did."""
    if response:
        return writer_of(response, calls, _text_of)
    if answered is None:
        return None
    own = [call for call in calls if call in answered.steps]
    # Without a call whose text is the answer, the last one is the most likely.
    return writer_of(answered.response, own, _text_of) or last_of(own)


def _prompt_of(writer: Step | None, calls: Sequence[Step]) -> str | None:
    """Return the text of the prompts that the answer was written from; None if they are not known."""
    if writer is None:
        return None
    as_calls = [
        ModelCall(
            prompt=prompt_text(step.messages),
            text=_text_of(step),
            started_at=step.started_at,
            ended_at=step.ended_at,
        )
        for step in calls
    ]
    return "\n".join(call.prompt for call in contributors(as_calls[calls.index(writer)], as_calls))


def _timing(turn: Turn, steps: Sequence[Step], writer: Step | None) -> Timing | None:
    if turn.timing is None:
        return None
    first_token = None
    if writer is not None and writer.time_to_first_token is not None:
        first_token = (writer.started_at - turn.timing.started_at) / 1e9 + writer.time_to_first_token
    return turn.timing.model_copy(update={**busy_times(steps), "time_to_first_token": first_token})


# --------------------------------------------------------------------------- passages


def _passages(turn: Turn, inner: Sequence[Turn], source: Turn | None, prompt: str | None) -> tuple[Passage, ...]:
    """Return the passages that the application named, then those that were captured.

    Args:
        turn: the block's turn, with the named passages.
        inner: the framework's turns.
        source: the inner turn that wrote the answer. It knows best which of its passages were in the prompt.
        prompt: the text that the answer was written from; None if it is not known.
    """
    # If no named passage is in the prompt, the application has rewritten them, and its word counts.
    marked = mark_seen(turn.passages, prompt)
    named = marked if any(map(_share, marked)) else turn.passages

    # Each captured passage once: as the one that shows most of it in the prompt of the whole block's answer.
    captured: dict[str, Passage] = {}
    for one in inner:
        again = one.passages if prompt is None else mark_seen(one.passages, prompt)
        for old, new in zip(one.passages, again, strict=True):
            # The framework may have seen more than the text of the prompt says, for example that a passage was cut.
            passage = _more_shown(old, new) if one is source else new
            captured[passage.text] = _more_shown(captured.get(passage.text, passage), passage)
    named_texts = {passage.text for passage in named}
    others = [passage for passage in captured.values() if passage.text not in named_texts]
    if named and prompt is None:
        # The application named what it gave to the model. The rest was retrieved and not used.
        others = list(map(mark_dropped, others))
    return (*named, *others)


def _more_shown(old: Passage, new: Passage) -> Passage:
    return new if _share(new) > _share(old) else old


def _share(passage: Passage) -> float:
    return passage.prompt_share or 0.0
