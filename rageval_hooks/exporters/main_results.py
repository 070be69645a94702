"""Which results matter most: a person who opens a trace sees a few, and what failed among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from rageval_hooks.runtime.selecting import instances
from rageval_hooks.score import Failed, Result, Score

__all__ = ["ScoreSelection", "main_results", "main_scores", "select_results"]

ScoreSelection = Literal["main", "all"]
"""Which results a score API gets."""

_MOST_MAIN = 5
"""Main results per stage. Backends list a few scores and a count: a failing one must not hide among twenty."""

_USAGE_UNITS = frozenset({"s", "ms", "tokens", "USD"})
"""Latency, tokens and cost: every backend shows its own, and their scale would flatten a chart of shares."""


def main_results(results: Iterable[Result]) -> list[Result]:
    """Return the results about the whole turn that matter most, in the order of their importance.

    A failing label comes first, then metrics that failed, then scores with other labels, the judge's scores, and the
    remaining scores of quality. Skipped metrics, usage, and scores of passages and sentences are not among them.
    """
    # Sorting is stable: within a rank, the order of the metrics stays.
    return sorted(filter(_is_main, results), key=_rank)


def select_results(results: Iterable[Result], selection: ScoreSelection) -> list[Result]:
    """Return the results for a score API: up to five main results about the turn, or all of them."""
    return list(results) if selection == "all" else main_results(results)[:_MOST_MAIN]


def main_scores(results: Iterable[Result]) -> list[Score]:
    """Return the main results that are scores."""
    return instances(main_results(results), Score)


def _is_main(result: Result) -> bool:
    if isinstance(result, Score):
        return result.target.kind == "turn" and result.unit not in _USAGE_UNITS
    return isinstance(result, Failed)


def _rank(result: Result) -> int:
    """Return the place of a main result in the order of importance, from 0."""
    if not isinstance(result, Score):
        return 1
    if result.label is not None:
        return 0 if result.label == "fail" else 2
    # Judges see what word overlap and embeddings miss.
    return 3 if result.annotator == "LLM" else 4
