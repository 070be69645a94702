"""From what happened when a question was asked to a record."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from rageval_hooks.offline.apps.answers import Answer, UnreadableAnswerError, read_answer
from rageval_hooks.offline.apps.asking import Asked
from rageval_hooks.offline.apps.loading import App
from rageval_hooks.offline.apps.turn_capture import joined
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.testsets.testset import GoldenQuestion
from rageval_hooks.runtime.narrowing import first_text
from rageval_hooks.turn import ErrorInfo, Passage, SpanReference, Timing, Turn, TurnStatus

__all__ = ["record_of"]


def record_of(question: GoldenQuestion, run: int, app: App, asked: Asked, started: int) -> Record:
    """Return the record of a question that was asked; without a rank, which needs the whole run.

    Args:
        question: the question.
        run: number of the repetition.
        app: the application.
        asked: what happened.
        started: nanoseconds since the epoch.
    """
    return Record(
        id=question.id,
        run=run,
        turn=_turn(question, app, asked, started),
        target=question.chunk_id,
        target_text=question.chunk,
        document=question.document,
        more_targets=question.more_chunks,
        answerable=question.answerable,
    )


def _turn(question: GoldenQuestion, app: App, asked: Asked, started: int) -> Turn:
    captured = joined(asked.turns)
    answer, error = _answer(app, asked, captured)
    turn = answer.turn or captured or Turn(name="app")
    return turn.model_copy(
        update={
            "id": turn.id or question.id,
            "query": question.question,
            "response": _response(app, answer, turn),
            "passages": _passages(answer, turn),
            "retrieval_queries": tuple(query for query in turn.retrieval_queries if query != question.question),
            "reference": turn.reference if question.reference is None else question.reference,
            "timing": turn.timing or Timing(started_at=started, ended_at=time.time_ns()),
            "span": _external_span(turn),
            "status": _status(turn, error),
            "error": error,
            "metadata": _metadata(question, turn),
        }
    )


def _external_span(turn: Turn) -> SpanReference | None:
    # A span that this package would have written does not exist: nothing is exported during a run.
    is_external = turn.span is not None and turn.span.external
    return turn.span if is_external else None


def _status(turn: Turn, error: ErrorInfo | None) -> TurnStatus:
    if error is not None:
        return "error"
    # A step that failed and was retried is no failure of the question: only the application's own exception is.
    return "ok" if turn.status == "error" else turn.status


def _metadata(question: GoldenQuestion, turn: Turn) -> dict[str, Any]:
    about_question = {"style": question.style, "second_look": question.second_look}
    return {**turn.metadata, **{name: value for name, value in about_question.items() if value}}


def _answer(app: App, asked: Asked, seen: Turn | None) -> tuple[Answer, ErrorInfo | None]:
    """Return the answer in the application's result, or the error in its place."""
    if asked.error is not None:
        return Answer(), ErrorInfo.of(asked.error)
    try:
        return read_answer(asked.result), None
    except UnreadableAnswerError as problem:
        if app.framework and seen is not None and _has_outcome(seen):
            return Answer(), None
        return Answer(), ErrorInfo.of(problem)


def _has_outcome(seen: Turn) -> bool:
    """Return True for a turn with an answer, or of a bare retriever: its passages are enough for ranks."""
    return bool(seen.response) or not seen.is_rag


def _response(app: App, answer: Answer, turn: Turn) -> str:
    """Return the answer's text. The integration knows a framework's answers best; a function's result is its answer."""
    texts = [answer.text, turn.response]
    if app.framework:
        texts.reverse()
    return first_text(texts) or ""


def _passages(answer: Answer, turn: Turn) -> tuple[Passage, ...]:
    """Return the passages that the application returned, or else those that were captured."""
    if answer.passages is not None:
        # Captured passages have ids and scores as well, so they are preferred if they are the same ones.
        return turn.passages if _texts(answer.passages) == _texts(turn.passages) else answer.passages
    if not turn.passages and answer.context is not None:
        return (Passage(text=answer.context),)
    return turn.passages


def _texts(passages: Iterable[Passage]) -> list[str]:
    return [passage.text for passage in passages]
