"""A scored set in a notebook: the means, then the worst answers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean

from rageval_hooks.score import Evaluation, Score
from rageval_hooks.text.formatting import flat, shorten, show_value
from rageval_hooks.turn_html import html_table

__all__ = ["set_html"]

_WORST = 10
_QUESTION = 120
# Scores that sum up a turn, the preferred one first.
_SUMMARIES = ("groundedness", "trace.adherence", "hhem", "reference", "answer_relevance")


def set_html(evaluations: Sequence[Evaluation], table: str) -> str:
    """Return a scored set as HTML.

    Args:
        evaluations: the answers.
        table: the whole set as a table, in HTML.
    """
    worst = sorted(evaluations, key=_badness, reverse=True)[:_WORST]
    shown = "".join(_answer(evaluation, is_open=number == 0) for number, evaluation in enumerate(worst))
    heading = f"The worst {len(worst)} of {len(evaluations)} answers" if len(evaluations) > 1 else "The answer"
    return f"{_means(evaluations)}<h4>{heading}</h4>{shown}<h4>All rows</h4>{table}"


def _badness(evaluation: Evaluation) -> tuple[float, float]:
    """Return how bad an answer is: the share of labels that fail, then its summarizing score."""
    labels = [score.label for score in evaluation.turn_scores() if score.label in ("pass", "fail")]
    failed = labels.count("fail") / len(labels) if labels else 0.0
    summary = next(filter(None, map(evaluation.score, _SUMMARIES)), None)
    if summary is None:
        return failed, 0.0
    # The lowest value is the worst.
    return failed, -summary.value


def _means(evaluations: Sequence[Evaluation]) -> str:
    scores: dict[str, list[Score]] = {}
    for evaluation in evaluations:
        for score in evaluation.turn_scores():
            scores.setdefault(score.name, []).append(score)
    rows = (_mean_row(name, found) for name, found in scores.items())
    return html_table(("score", "mean", "pass", "n"), rows, numbers={1, 2, 3})


def _mean_row(name: str, scores: Sequence[Score]) -> tuple[str, str, str, str]:
    mean = fmean(score.value for score in scores)
    labels = [score.label for score in scores if score.label in ("pass", "fail")]
    passed = f"{labels.count('pass') / len(labels):.0%}" if labels else ""
    arrow = " ↓" if scores[0].direction == "lower" else ""
    return f"{escape(name)}{arrow}", show_value(mean), passed, str(len(scores))


def _answer(evaluation: Evaluation, *, is_open: bool) -> str:
    question = escape(shorten(flat(evaluation.turn.query), _QUESTION))
    state = " open" if is_open else ""
    body = f'<div style="margin:.3em 0 .8em 1.2em">{evaluation._repr_html_()}</div>'
    return f'<details{state} style="margin:.3em 0"><summary>{question}</summary>{body}</details>'
