"""What backends show of a turn: which results come first, which steps have spans, and which span lists a passage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rageval_hooks.score import VERDICT, Failed, Result, Score, is_about_turn, metric_of
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import Step, StepKind, Turn

MAIN_SCORES = (VERDICT, "faithfulness", "unsupported_facts")
"""The scores that come first everywhere, most important first: a person who opens a trace sees a few.

The choice must not depend on a turn's values or on the load of the machine: a mean of what was annotated only when it
failed, or only when it came late, would be wrong.
"""

_JUDGED = "trace"
"""The metric that makes the judge's verdict."""

_USAGE_UNITS = frozenset({"s", "ms", "tokens", "USD"})
"""Latency, tokens and cost: every backend shows its own, and their scale would flatten a chart of shares."""

_RAG_STEPS = frozenset[StepKind]({"retriever", "reranker", "llm", "tool"})


def quality_results(results: Iterable[Result]) -> list[Result]:
    """Return the results of quality about the whole turn, main scores first, then in the order of the metrics.

    Skipped metrics, usage, and scores of passages and sentences are not among them. Metrics that failed are, and a
    verdict without a number, such as ``declined``.
    """
    return sorted((result for result in results if is_about_quality(result)), key=importance)


def is_about_quality(result: Result) -> bool:
    """Return True for a score of quality of the whole turn, for a verdict, and for a metric that failed."""
    if isinstance(result, Score):
        return is_about_turn(result) and result.unit not in _USAGE_UNITS
    return isinstance(result, Failed) or result.label is not None


def importance(result: Result) -> int:
    """Return the place of a result among the main scores, from 0; their number for any other."""
    # A judge that does not answer must not look like one that was not asked.
    name = VERDICT if isinstance(result, Failed) and metric_of(result) == _JUDGED else result.name
    return MAIN_SCORES.index(name) if name in MAIN_SCORES else len(MAIN_SCORES)


class PassagePlace(NamedTuple):
    """Where a passage is listed.

    Attributes:
        span_id: the span of the retriever or reranker that found it, 16 hex digits.
        position: the passage's position among that span's documents, from 0.
        in_documents: True if that span lists its documents under OpenInference's names, as ours do. Spans of other
            conventions have them as JSON, or not at all.
    """

    span_id: str
    position: int
    in_documents: bool


def has_span(step: Step, spans: SpanSelection) -> bool:
    """Return True if a step becomes a span of ours. Steps with a span of another tracer do not get a second one."""
    if step.span_id is not None or spans == "scores":
        return False
    return spans == "all" or step.kind in _RAG_STEPS


def passage_place(turn: Turn, index: int | None, spans: SpanSelection) -> PassagePlace | None:
    """Return the span that lists a passage of a turn; None if no span does.

    Args:
        turn: the turn.
        index: position of the passage in the turn.
        spans: which steps of a turn become spans. Spans of other tracers are found all the same.
    """
    located = None if index is None else turn.locate_passage(index)
    if located is None:
        return None
    step, position = located
    is_ours = has_span(step, spans)
    span_id = turn.step_span_id(step)
    if span_id is None or not (is_ours or step.span_id is not None):
        return None
    by_openinference = (step.span_tracer or "").startswith("openinference.") and step.kind in ("retriever", "reranker")
    return PassagePlace(span_id, position, is_ours or by_openinference)
