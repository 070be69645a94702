"""From a block to a turn: what the application said, joined with the turns of the framework runs inside the block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from rageval_hooks.integrations.capture.authorship import ModelCall, contributors, prompt_text, writer_of
from rageval_hooks.integrations.capture.host_values import last_of
from rageval_hooks.integrations.capture.passages import mark_dropped, mark_seen, unique_passages
from rageval_hooks.integrations.capture.run_facts import application_fields, of_kind, outcome_of_error, rewritten
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.capture.step_times import busy_times, is_retrieval, outside_retrieval
from rageval_hooks.integrations.manual.open_turn import Given
from rageval_hooks.runtime.selecting import common
from rageval_hooks.turn import Passage, SpanReference, Step, Timing, Turn, TurnStatus, Usage

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
    steps = _all_steps(inner)
    calls = of_kind(outside_retrieval(steps), "llm")
    answered = _last_answer(inner)
    writer = _writer(turn.response, answered, calls)
    source = _source(answered, writer)
    prompt = _prompt_of(writer, calls)
    everyone = (turn, *inner)
    return turn.model_copy(
        update={
            "query": turn.query or inner[0].query,
            "passages": _passages(turn, inner, source, prompt),
            "retrieval_queries": _queries(turn, inner),
            "usage": Usage.of_steps(steps),
            "timing": _timing(turn, steps, writer),
            "steps": steps,
            "status": _status(turn, inner),
            "session_id": _first(one.session_id for one in everyone),
            "user_id": _first(one.user_id for one in everyone),
            "metadata": _metadata(turn, source),
            **_answer_fields(turn, inner, answered),
            **_model_fields(writer),
        }
    )


def _all_steps(turns: Sequence[Turn]) -> tuple[Step, ...]:
    """Return the steps of several turns by start time: the turns may have run at the same time."""
    steps = chain.from_iterable(one.steps for one in turns)
    return tuple(sorted(steps, key=lambda step: step.started_at))


def _first(values: Iterable[str | None]) -> str | None:
    """Return the first value that is not empty."""
    return next(filter(None, values), None)


def _metadata(turn: Turn, source: Turn | None) -> dict[str, Any]:
    """Return the metadata of both turns, for example the citations of the answer. What the application says wins."""
    captured = {} if source is None else source.metadata
    return {**captured, **turn.metadata}


# --------------------------------------------------------------------------- the answer and who wrote it


def _last_answer(inner: Sequence[Turn]) -> Turn | None:
    """Return the last inner turn with an answer: one that called a model if there is one."""
    answered = [one for one in inner if one.response]
    # A chain that only formats text has a response too.
    by_model = [one for one in answered if of_kind(one.steps, "llm")]
    return last_of(by_model or answered)


def _answer_fields(turn: Turn, inner: Sequence[Turn], answered: Turn | None) -> dict[str, Any]:
    """Return the answer and whether it is whole: the application's own answer, else the captured one."""
    if answered is None:
        return {"framework": inner[-1].framework, "complete": True}
    if turn.response:
        return {"framework": answered.framework, "complete": True}
    # The model was stopped, or the block ended with an exception before the application used the answer.
    is_complete = answered.complete and turn.status == "ok"
    return {"framework": answered.framework, "response": answered.response, "complete": is_complete}


def _model_fields(writer: Step | None) -> dict[str, Any]:
    """Return the prompt and the model of the call that wrote the answer."""
    if writer is None:
        return {"prompt": (), "model": None}
    return {"prompt": writer.messages, "model": writer.model}


def _writer(response: str, answered: Turn | None, calls: Sequence[Step]) -> Step | None:
    """Return the model call that wrote the answer; None if no captured call did, for example an HTTP client did."""
    if response:
        return writer_of(response, calls, _text_of)
    if answered is None:
        return None
    own = common(calls, answered.steps)
    # Without a call whose text is the answer, the last one is the most likely.
    return writer_of(answered.response, own, _text_of) or last_of(own)


def _text_of(step: Step) -> str:
    return step.output or ""


def _source(answered: Turn | None, writer: Step | None) -> Turn | None:
    """Return the inner turn whose model wrote the answer of the block."""
    if answered is None or writer not in answered.steps:
        return None
    return answered


def _prompt_of(writer: Step | None, calls: Sequence[Step]) -> str | None:
    """Return the text of the prompts that the answer was written from; None if they are not known."""
    if writer is None:
        return None
    as_calls = [_as_call(step) for step in calls]
    answering = as_calls[calls.index(writer)]
    return "\n".join(call.prompt for call in contributors(answering, as_calls))


def _as_call(step: Step) -> ModelCall:
    return ModelCall(
        prompt=prompt_text(step.messages),
        text=_text_of(step),
        started_at=step.started_at,
        ended_at=step.ended_at,
    )


def _status(turn: Turn, inner: Sequence[Turn]) -> TurnStatus:
    """Return the status of the block's turn: ``interrupted`` if its last graph waits for a person."""
    if turn.status != "ok" or turn.response:
        return turn.status
    # An error or a cancellation inside the block did not reach its end: the application has handled it.
    return "interrupted" if inner[-1].status == "interrupted" else "ok"


# --------------------------------------------------------------------------- passages


def _passages(turn: Turn, inner: Sequence[Turn], source: Turn | None, prompt: str | None) -> tuple[Passage, ...]:
    """Return the passages that the application named, then those that were captured.

    Args:
        turn: the block's turn, with the named passages.
        inner: the framework's turns.
        source: the inner turn that wrote the answer. It knows best which of its passages were in the prompt.
        prompt: the text that the answer was written from; None if it is not known.
    """
    named = _marked_named(turn.passages, prompt)
    texts = {passage.text for passage in named}
    others = [passage for passage in _captured(inner, source, prompt) if passage.text not in texts]
    if named and prompt is None:
        # The application named what it gave to the model. The rest was retrieved and not used.
        others = list(map(mark_dropped, others))
    return (*named, *others)


def _marked_named(passages: Sequence[Passage], prompt: str | None) -> Sequence[Passage]:
    """Mark passages that the application named.

    If none of them is in the prompt, the application has rewritten them, and its word counts.
    """
    marked = mark_seen(passages, prompt)
    if any(map(_share, marked)):
        return marked
    return passages


def _captured(inner: Sequence[Turn], source: Turn | None, prompt: str | None) -> Iterable[Passage]:
    """Return the passages of the inner turns, each once: as the one that shows most of it in the prompt."""
    captured: dict[str, Passage] = {}
    for one in inner:
        for passage in _marked(one, one is source, prompt):
            known = captured.setdefault(passage.text, passage)
            captured[passage.text] = _more_shown(known, passage)
    return captured.values()


def _marked(turn: Turn, is_source: bool, prompt: str | None) -> Iterable[Passage]:
    """Mark the passages of an inner turn by the prompt of the whole block's answer."""
    if prompt is None:
        return turn.passages
    again = mark_seen(turn.passages, prompt)
    if not is_source:
        return again
    # The framework may have seen more than the text of the prompt says, for example that a passage was cut.
    return map(_more_shown, turn.passages, again)


def _more_shown(old: Passage, new: Passage) -> Passage:
    return new if _share(new) > _share(old) else old


def _share(passage: Passage) -> float:
    return passage.prompt_share or 0.0


# --------------------------------------------------------------------------- queries and times


def _queries(turn: Turn, inner: Sequence[Turn]) -> tuple[str, ...]:
    """Return what was searched for, if it differs from the question."""
    searched: list[str] = []
    for one in inner:
        # A retriever that is called directly is an inner turn whose question is the query.
        if any(map(is_retrieval, one.steps)):
            searched.append(one.query)
        searched += one.retrieval_queries
    return rewritten(searched, turn.query)


def _timing(turn: Turn, steps: Sequence[Step], writer: Step | None) -> Timing | None:
    if turn.timing is None:
        return None
    times = {**busy_times(steps), "time_to_first_token": _first_token(turn.timing, writer)}
    return turn.timing.model_copy(update=times)


def _first_token(timing: Timing, writer: Step | None) -> float | None:
    """Return the seconds from the start of the block to the first token of the answer."""
    if writer is None or writer.time_to_first_token is None:
        return None
    before_call = (writer.started_at - timing.started_at) / 1e9
    return before_call + writer.time_to_first_token
