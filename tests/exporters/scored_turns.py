"""Turns with scores, for the tests of score APIs."""

from __future__ import annotations

from typing import Any

from rageval_hooks import Evaluation, Failed, Passage, Score, Skipped, Step, Target, Turn
from rageval_hooks.exporters.score_api import ScoreApiExporter
from rageval_hooks.turn import SpanReference, Timing

__all__ = ["ENDED_AT", "RESULTS", "SPAN", "TRACE", "deliver", "evaluation", "turn"]

SPAN = "1234567890abcdef"
TRACE = "0af7651916cd43dd8448eb211c80319c"
ENDED_AT = 1_790_000_000_123_456_789

RESULTS = (
    Score(name="groundedness", value=0.123456, label="fail", explanation="no passage has: 2019", version="3"),
    Score(name="trace.adherence", value=1.0, label="pass", annotator="LLM", model="judge-1", probability=0.5),
    Score(name="latency", value=3.0, unit="s", high=None),
    Score(name="context_relevance", value=0.25, target=Target(kind="passage", index=1, id="d2")),
    Skipped(name="entity_consistency", reason="the response names nothing"),
    Failed(name="umbrela", error_type="rate_limited", message="too many requests", annotator="LLM"),
)
"""One result of each kind."""


def turn(span_id: str = SPAN, *, flags: int = 1, parent: str | None = None, **fields: Any) -> Turn:
    """Return a turn with a retriever and two passages."""
    passages = (Passage(text="The pier was opened in 2019.", id="d1"), Passage(text="The ferry is slow.", id="d2"))
    step = Step(id="r", kind="retriever", name="Store", started_at=0, ended_at=1, passages=passages)
    span = SpanReference(trace_id=TRACE, span_id=span_id, flags=flags, parent_span_id=parent)
    timing = Timing(started_at=ENDED_AT - 10**9, ended_at=ENDED_AT)
    return Turn(
        query="When?", response="In 2019.", passages=passages, steps=(step,), span=span, timing=timing, **fields
    )


def evaluation(*results: Any, **fields: Any) -> Evaluation:
    """Return the evaluation of such a turn; by default with one score."""
    return Evaluation(turn=turn(**fields), results=results or (Score(name="groundedness", value=0.9),))


def deliver(exporter: ScoreApiExporter, *results: Any, all_arrive: bool = True, **fields: Any) -> None:
    """Export the evaluation of such a turn and wait until its scores have arrived; then close the exporter."""
    exporter.export(evaluation(*results, **fields))
    assert exporter.flush(10) is all_arrive
    exporter.shutdown(5)
