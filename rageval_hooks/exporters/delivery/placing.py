"""The results for a score API: which ones, on which span each belongs, and their details."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rageval_hooks.exporters.main_results import ScoreSelection, main_results
from rageval_hooks.exporters.span_places import passage_place
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import SpanReference, Turn

__all__ = ["PlacedResult", "PlacedScore", "evaluated_at", "iso_time", "place_results", "score_details"]


class PlacedResult(NamedTuple):
    """A result and where it belongs.

    Attributes:
        result: a score, or a metric that failed.
        span_id: the turn's span, or for a passage's score the span of its retriever; None if no known span has it.
    """

    result: Score | Failed
    span_id: str | None


class PlacedScore(NamedTuple):
    """A score and the span that it belongs to."""

    score: Score
    span_id: str


def place_results(
    evaluation: Evaluation, span: SpanReference, spans: SpanSelection, selection: ScoreSelection
) -> Iterator[PlacedResult]:
    """Yield the results of a stage that a score API gets, each with its span. Skipped metrics are not among them.

    Args:
        evaluation: the stage.
        span: the turn's span.
        spans: which steps of a turn become spans.
        selection: ``main`` for all main results about the turn. Not only some of them, as on a page that lists a few:
            the backends draw charts of each score, and a mean of only those that failed would be wrong.
    """
    results: list[Result] = list(evaluation.results) if selection == "all" else main_results(evaluation.results)
    for result in results:
        if isinstance(result, Skipped):
            continue
        if isinstance(result, Score) and result.target.kind == "passage":
            place = passage_place(evaluation.turn, result.target.index, spans)
            yield PlacedResult(result, None if place is None else place.span_id)
        else:
            yield PlacedResult(result, span.span_id)


def score_details(score: Score) -> dict[str, Any]:
    """Return the other fields of a score, besides its value and explanation, as JSON-able data."""
    details = dict(score.metadata)
    details.update(annotator=score.annotator, version=score.version, probability=score.probability)
    if score.label is not None:
        details["label"] = score.label
    if score.model is not None:
        details["model"] = score.model
    if score.target.kind != "turn":
        details[score.target.kind] = score.target.index
    return details


def evaluated_at(turn: Turn) -> int:
    """Return the time of a turn's scores, in nanoseconds since the epoch: the turn's end.

    A late score then is in the chart where its trace is, and a repeat from another process has the same time.
    """
    return time.time_ns() if turn.timing is None else turn.timing.ended_at


def iso_time(nanoseconds: int) -> str:
    """Return a time as text, for example ``2026-11-22T16:00:00.123000+00:00``."""
    return datetime.fromtimestamp(nanoseconds // 1000 / 1e6, UTC).isoformat(timespec="microseconds")
