"""Which results matter most. A person who opens a trace sees a few, the same ones for every turn of an application."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from rageval_hooks.score import VERDICT, Failed, Result, Score, is_about_turn, metric_of

ScoreSelection = Literal["main", "all"]
"""Which results a score API gets."""

MAIN_SCORES = (VERDICT, "faithfulness", "unsupported_facts")
"""The scores that come first everywhere, most important first.

The choice must not depend on a turn's values or on the load of the machine: a mean of what was annotated only when it
failed, or only when it came late, would be wrong.
"""

_JUDGED = "trace"
"""The metric that makes the judge's verdict."""

# fmt: off
_OTHER_METRICS = frozenset((
    "answer_relevance", "citation", "concept_completeness", "context_relevance", "cost", "entity_consistency",
    "factual_accuracy", "groundedness", "hallucination", "hhem", "latency", "no_answer", "nuggets", "ranking",
    "reference", "reference_overlap", "semantic_grounding", "tokens", "trace", "umbrela",
))
# fmt: on
"""The package's other metrics. A metric of the user is not among them: its scores are main scores, too."""

_USAGE_UNITS = frozenset({"s", "ms", "tokens", "USD"})
"""Latency, tokens and cost: every backend shows its own, and their scale would flatten a chart of shares."""


def main_results(results: Iterable[Result], named: Collection[str] = ()) -> list[Result]:
    """Return the few results about the whole turn that a person should see, in the order of importance.

    These are the scores of :data:`MAIN_SCORES` and those of the user's own metrics, and the ones of these that failed.

    Args:
        results: the results of a stage.
        named: the metrics that the user has named. If none of them gives a main score, all of them do.
    """
    only_others = bool(named) and set(MAIN_SCORES).isdisjoint(named)
    return [
        result
        for result in quality_results(results)
        if _rank(result) < len(MAIN_SCORES)
        or metric_of(result) not in _OTHER_METRICS
        or (only_others and metric_of(result) in named)
    ]


def quality_results(results: Iterable[Result]) -> list[Result]:
    """Return the results of quality about the whole turn, main scores first, then in the order of the metrics.

    Skipped metrics, usage, and scores of passages and sentences are not among them. Metrics that failed are, and a
    verdict without a number, such as ``declined``.
    """
    return sorted((result for result in results if is_about_quality(result)), key=_rank)


def is_about_quality(result: Result) -> bool:
    """Return True for a score of quality of the whole turn, for a verdict, and for a metric that failed."""
    if isinstance(result, Score):
        return is_about_turn(result) and result.unit not in _USAGE_UNITS
    return isinstance(result, Failed) or result.label is not None


def _rank(result: Result) -> int:
    """Return the place of a result in the order of importance, from 0."""
    # A judge that does not answer must not look like one that was not asked.
    name = VERDICT if isinstance(result, Failed) and metric_of(result) == _JUDGED else result.name
    return MAIN_SCORES.index(name) if name in MAIN_SCORES else len(MAIN_SCORES)
