"""Which results matter most: a person who opens a trace sees a few, and what failed among them."""

from __future__ import annotations

from collections.abc import Iterable

from rageval_hooks.score import Failed, Result, Score

__all__ = ["main_results", "main_scores"]

_USAGE_UNITS = frozenset({"s", "ms", "tokens", "USD"})
"""Latency, tokens and cost: every backend shows its own, and their scale would flatten a chart of shares."""


def main_results(results: Iterable[Result]) -> list[Result]:
    """Return the results about the whole turn that matter most, in the order of their importance.

    A failing label comes first, then metrics that failed, then scores with other labels, the judge's scores, and the
    remaining scores of quality. Left out are skipped metrics, usage, and scores of passages and sentences.
    """
    ranked = [(rank, result) for result in results if (rank := _rank(result)) is not None]
    ranked.sort(key=lambda item: item[0])  # stable: the order of the metrics within a rank
    return [result for _, result in ranked]


def main_scores(results: Iterable[Result]) -> list[Score]:
    """Return the main results that are scores."""
    return [result for result in main_results(results) if isinstance(result, Score)]


def _rank(result: Result) -> int | None:
    if isinstance(result, Failed):
        return 1
    if not isinstance(result, Score) or result.target.kind != "turn" or result.unit in _USAGE_UNITS:
        return None
    if result.label == "fail":
        return 0
    if result.label is not None:
        return 2
    return 3 if result.annotator == "LLM" else 4
