"""From a block to a turn: what the application said, joined with the turns of the framework runs inside the block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.authorship import ModelCall, contributors, writer_of
from rageval_hooks.integrations.capture.durations import busy_seconds
from rageval_hooks.integrations.capture.passages import mark_shown, unique_passages
from rageval_hooks.integrations.capture.retrieval_steps import is_retrieval, outside_retrieval
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.capture.values import first_string
from rageval_hooks.integrations.manual.open_turn import Given
from rageval_hooks.turn import ErrorInfo, Passage, SpanReference, Step, Timing, Turn, TurnStatus, Usage

__all__ = ["join_inner_turns", "turn_from_block"]

_CANCELS = frozenset({"CancelledError", "GeneratorExit", "KeyboardInterrupt"})


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
    attributes = attributes or {}
    status, error = _outcome(block.error)
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
        session_id=given.session_id or first_string(attributes, ("session.id",)),
        user_id=given.user_id or first_string(attributes, ("user.id",)),
        metadata={**(attributes.get("metadata") or {}), **given.metadata},
    )


def _outcome(error: BaseException | None) -> tuple[TurnStatus, ErrorInfo | None]:
    if error is None:
        return "ok", None
    if type(error).__name__ in _CANCELS:
        return "cancelled", None
    return "error", ErrorInfo.of(error)


# --------------------------------------------------------------------------- framework runs inside the block


def join_inner_turns(turn: Turn, inner: Sequence[Turn]) -> Turn:
    """Add what frameworks did inside a block.

    Args:
        turn: the block's turn.
        inner: the turns that the frameworks' outermost runs would be by themselves, by start time.
    """
    if not inner:
        return turn
    steps = tuple(sorted((step for one in inner for step in one.steps), key=lambda step: step.started_at))
    calls = [step for step in outside_retrieval(steps) if step.kind == "llm"]
    answered = _last_answer(inner)
    response = turn.response or (answered.response if answered is not None else "")
    writer = _writer(turn.response, answered, calls)
    source = answered if _wrote(answered, writer) else None
    return turn.model_copy(
        update={
            "query": turn.query or inner[0].query,
            "passages": _passages(turn, inner, source, _prompt_of(writer, calls)),
            "response": response,
            "complete": _is_complete(turn, answered),
            "retrieval_queries": _queries(turn, inner),
            "prompt": writer.messages if writer is not None else (),
            "model": writer.model if writer is not None else None,
            "usage": Usage.sum(step.usage for step in steps),
            "timing": _timing(turn, steps, writer),
            "steps": steps,
            "status": _status(turn, inner),
            "framework": (answered or inner[-1]).framework,
            "session_id": _first(one.session_id for one in (turn, *inner)),
            "user_id": _first(one.user_id for one in (turn, *inner)),
            "metadata": {**(source.metadata if source is not None else {}), **turn.metadata},
        }
    )


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)


def _is_complete(turn: Turn, answered: Turn | None) -> bool:
    """Return False for a captured answer if its model was stopped, or if the block ended with an exception."""
    if turn.response or answered is None:
        return True  # the application itself says what the answer is
    return answered.complete and turn.status == "ok"


def _last_answer(inner: Sequence[Turn]) -> Turn | None:
    """Return the last inner turn with an answer: one that called a model if there is one."""
    answered = [one for one in inner if one.response]
    by_model = [one for one in answered if any(step.kind == "llm" for step in one.steps)]
    return next(reversed(by_model or answered), None)


def _writer(response: str, answered: Turn | None, calls: Sequence[Step]) -> Step | None:
    """Return the model call that wrote the answer; None if no captured call did, for example an HTTP client did."""
    if response:
        return writer_of(response, calls, _text_of)
    if answered is None:
        return None
    own = [step for step in calls if step in answered.steps]
    return writer_of(answered.response, own, _text_of) or next(reversed(own), None)


def _text_of(step: Step) -> str:
    return step.output or ""


def _wrote(turn: Turn | None, writer: Step | None) -> bool:
    return turn is not None and writer is not None and writer in turn.steps


def _prompt_of(writer: Step | None, calls: Sequence[Step]) -> str | None:
    """Return the text of the prompts that the answer was written from; None if they are not known."""
    if writer is None:
        return None
    as_calls = [_as_call(step) for step in calls]
    answering = as_calls[calls.index(writer)]
    return "\n".join(call.prompt for call in contributors(answering, as_calls))


def _as_call(step: Step) -> ModelCall:
    prompt = "\n".join(message.content for message in step.messages)
    return ModelCall(prompt=prompt, text=_text_of(step), started_at=step.started_at, ended_at=step.ended_at)


def _status(turn: Turn, inner: Sequence[Turn]) -> TurnStatus:
    waits = turn.status == "ok" and not turn.response and inner[-1].status == "interrupted"
    return "interrupted" if waits else turn.status


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
        others = [passage.model_copy(update={"in_prompt": False, "prompt_share": 0.0}) for passage in others]
    return (*named, *others)


def _captured(inner: Sequence[Turn], source: Turn | None, prompt: str | None) -> Iterable[Passage]:
    """Return the passages of the inner turns, each once: as the one that shows most of it in the prompt."""
    captured: dict[str, Passage] = {}
    for one in inner:
        for passage in _marked(one, one is source, prompt):
            known = captured.get(passage.text)
            captured[passage.text] = passage if known is None else _more_shown(known, passage)
    return captured.values()


def _more_shown(old: Passage, new: Passage) -> Passage:
    return new if (new.prompt_share or 0.0) > (old.prompt_share or 0.0) else old


def _marked_named(passages: Sequence[Passage], prompt: str | None) -> Sequence[Passage]:
    """Mark passages that the application named.

    If none of them is in the prompt, the application has rewritten them, and its word counts.
    """
    marked = mark_shown(passages, prompt)
    return marked if any(passage.prompt_share for passage in marked) else passages


def _marked(turn: Turn, is_source: bool, prompt: str | None) -> Iterable[Passage]:
    if prompt is None:
        return turn.passages
    again = mark_shown(turn.passages, prompt)
    if not is_source:
        return again
    return [_more_shown(old, new) for old, new in zip(turn.passages, again, strict=True)]


# --------------------------------------------------------------------------- queries and times


def _queries(turn: Turn, inner: Sequence[Turn]) -> tuple[str, ...]:
    """Return what was searched for, if it differs from the question."""
    searched: list[str] = []
    for one in inner:
        if one.query and any(is_retrieval(step) for step in one.steps):
            searched.append(one.query)
        searched.extend(one.retrieval_queries)
    return tuple(query for query in dict.fromkeys(searched) if query.strip() != turn.query.strip())


def _timing(turn: Turn, steps: Sequence[Step], writer: Step | None) -> Timing | None:
    if turn.timing is None:
        return None
    outermost = outside_retrieval(steps)
    first_token: float | None = None
    if writer is not None and writer.time_to_first_token is not None:
        first_token = (writer.started_at - turn.timing.started_at) / 1e9 + writer.time_to_first_token
    return turn.timing.model_copy(
        update={
            "retrieval": busy_seconds((step.started_at, step.ended_at) for step in outermost if is_retrieval(step)),
            "generation": busy_seconds((step.started_at, step.ended_at) for step in outermost if step.kind == "llm"),
            "time_to_first_token": first_token,
        }
    )
