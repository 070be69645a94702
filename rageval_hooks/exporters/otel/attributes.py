"""The attributes of results: on the span of an evaluation, on the turn's span, and on that of a guard.

Attribute names are written where they are set. Those of ``gen_ai.*`` follow the conventions of the schema URL in
:mod:`rageval_hooks.exporters.otel.providers`, whose status is "Development". OpenInference's are what Phoenix draws.
See https://github.com/open-telemetry/semantic-conventions-genai and
https://github.com/Arize-ai/openinference/tree/main/spec.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from pydantic_core import to_json

from rageval_hooks.exporters.content import is_about_quality, quality_results
from rageval_hooks.privacy import REDACTED
from rageval_hooks.score import (
    VERDICT,
    Evaluation,
    Result,
    Score,
    is_about_turn,
    judge_details,
    label_of,
    metric_of,
    verdict_of,
    with_cause,
)
from rageval_hooks.turn import Turn

Value = str | bool | int | float | Sequence[str] | Sequence[float]

_MAX_SCORE_ATTRIBUTES = 12
"""On a turn's span. Backends sort attributes by name and preview the first few: more would hide the question."""

_COUNTED_LATE = frozenset({"tokens", "cost"})

Attributes = dict[str, Value | None]
"""Attributes of a span or a log event, the most important first. Those that are None are not written."""


def written(attributes: Attributes, limit: int | None = None) -> dict[str, Value]:
    """Return the attributes that are written: at most ``limit``; if some do not fit, one of these says how many."""
    known = {name: value for name, value in attributes.items() if value is not None}
    if limit is None or len(known) <= limit:
        return known
    # The SDK would drop the oldest entries, which are the important ones.
    kept = dict(list(known.items())[: max(0, limit - 1)])
    kept["rageval.dropped_attributes"] = len(known) - len(kept)
    return kept


def json_string(value: object) -> str:
    """Return a value as JSON."""
    return to_json(value).decode()


def has_news(evaluation: Evaluation) -> bool:
    """Return True if an evaluation deserves a span."""
    if any(is_about_quality(result) or not is_about_turn(result) for result in evaluation.results):
        return True
    # The metrics of a turn without an answer are skipped, and a span would only repeat that. What waited for a
    # tokenizer and came late, alone, is in the log events and metrics.
    metrics = set(map(metric_of, evaluation.results))
    is_late_count = evaluation.stage == "background" and metrics <= _COUNTED_LATE
    return bool(metrics) and evaluation.turn.status == "ok" and not is_late_count


def evaluation_attributes(evaluation: Evaluation, *, for_braintrust: bool = False) -> Attributes:
    """Return the attributes of the span of one stage's results: each result once, as flat attributes.

    Jaeger and Tempo search flat attributes, and Phoenix shows them; none of them reads numbered lists or span events.

    Args:
        evaluation: with at least one result.
        for_braintrust: True to make the scores Braintrust's own.
    """
    results, scores = evaluation.results, evaluation.scores
    # Main scores first: a span keeps 128 attributes by default. Usage and skipped metrics come last.
    about_turn = list(filter(is_about_turn, results))
    ordered = quality_results(about_turn) + [result for result in about_turn if not is_about_quality(result)]
    metrics = set(map(metric_of, results))
    metric = metrics.pop() if len(metrics) == 1 else None
    one_score = scores[0] if scores and metric is not None else None
    verdict = verdict_of(results)
    attributes: Attributes = {
        "openinference.span.kind": "EVALUATOR",
        "rageval.stage": evaluation.stage,
        # Langfuse drops spans without an attribute of GenAI's.
        "gen_ai.evaluation.name": (ordered or results)[0].name,
        **_verdict(results),
        # A person who opens the span reads what was asked, and what came out.
        "input.value": evaluation.turn.query,
        "input.mime_type": "text/plain",
        "output.value": "\n".join([*_reason(verdict), *map(result_line, ordered or results)]),
        "output.mime_type": "text/plain",
        # The span's own times lie inside its parent's. These two say when the work was done and how long it took.
        "rageval.duration": sum(evaluation.durations.values()) or evaluation.duration,
        "rageval.evaluated_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "gen_ai.response.id": evaluation.turn.answer_id,
        "error.type": evaluation.failed[0].error_type if evaluation.failed and not scores else None,
        "rageval.metric": metric,
        **guard_attributes(evaluation.turn),
        # Whose verdict it is: a query that counts turns counts the local verdicts or the judge's.
        "rageval.annotator": annotated.annotator if (annotated := verdict or one_score) else None,
        "rageval.version": None if one_score is None else one_score.version,
    }
    if for_braintrust:
        # Braintrust takes shares, from 0 to 1, and nothing else.
        of_turn = (result for result in about_turn if isinstance(result, Score))
        if shares := {score.name: score.value for score in of_turn if score.low == 0 and score.high == 1}:
            attributes["braintrust.scores"] = json_string(shares)
            attributes["braintrust.span_attributes"] = json_string({"type": "score"})
    for result in ordered:
        attributes |= score_attributes(result)
    if scores:
        attributes["rageval.sampling.probability"] = min(score.probability for score in scores)
    # The judge's usage, under names of our own: a backend must not add it to the application's tokens. All results of
    # a stage share one judgement, so the first one that has details has them all.
    for name, value in next(filter(None, map(judge_details, results)), {}).items():
        if isinstance(value, (str, bool, int, float)):
            attributes[f"rageval.judge.{name}"] = value
    attributes |= _passage_scores(scores, len(evaluation.turn.passages))
    for result in ordered:
        if isinstance(result, Score):
            attributes[f"rageval.explanation.{result.name}"] = result.explanation
    return attributes


def main_scores(results: Iterable[Result]) -> Attributes:
    """Return the results that matter most for a turn's span: the verdict and the main scores first."""
    quality = quality_results(results)
    attributes, free = _verdict(quality), _MAX_SCORE_ATTRIBUTES
    for result in quality:
        new = score_attributes(result)
        # A value without its label would mislead, so a result goes in whole or not at all.
        if len(new) <= free:
            attributes |= new
            free -= len(new)
    probabilities = [result.probability for result in quality if isinstance(result, Score)]
    # Without sampling the probability is 1 and says nothing.
    if probabilities and min(probabilities) < 1:
        attributes["rageval.sampling.probability"] = min(probabilities)
    return attributes


def _verdict(results: Iterable[Result]) -> Attributes:
    """Return the verdict under a name of ours, for searches, and under those of GenAI.

    Jaeger shows a span's attributes in one line, sorted by name, and cuts it at the width of the page: the names of
    GenAI come before the question and the answer there.
    """
    verdict = verdict_of(results)
    if verdict is None or (label := label_of(verdict)) is None:
        return {}
    return {
        "rageval.verdict": label,
        "rageval.cause": verdict.cause,
        "gen_ai.evaluation.name": VERDICT,
        "gen_ai.evaluation.score.label": label,
    }


def guard_attributes(turn: Turn) -> Attributes:
    """Return what a guard did with the answer, and the answer if the user did not get it; empty without a guard."""
    return {} if turn.guard is None else {f"rageval.guard.{name}": value or None for name, value in turn.guard}


def _reason(verdict: Result | None) -> list[str]:
    """Return the verdict's reason as a line; none if there is no verdict, or if its reason may not be shown."""
    explanation = verdict and verdict.explanation
    return (
        [" ".join(f"{label_of(verdict)}: {with_cause(verdict).explanation}".split())]
        if verdict and explanation not in (None, REDACTED)
        else []
    )


def score_attributes(result: Result) -> dict[str, Value]:
    """Return a result about the whole turn as attributes with its name: value and label, or the reason."""
    attributes: dict[str, Value] = {}
    if result.value is not None:
        attributes[f"rageval.score.{result.name}"] = result.value
    if (label := label_of(result)) is not None:
        attributes[f"rageval.label.{result.name}"] = label
    if not isinstance(result, Score):  # rageval.skipped.groundedness, rageval.failed.trace
        attributes[f"rageval.{result.status}.{result.name}"] = result.reason
    return attributes


def result_line(result: Result) -> str:
    """Return a result as a line without texts of the turn, such as ``groundedness=0.83 (pass)``."""
    if result.value is None:
        return f"{result.name} {label_of(result)}" + (f" ({result.cause})" if result.cause else "")
    label = "" if result.label is None else f" ({', '.join(filter(None, (result.label, result.cause)))})"
    return f"{result.name}={result.value:g}{label}"


def _passage_scores(scores: Iterable[Score], passages: int) -> Attributes:
    """Return the scores of passages in the passages' order; and which passages these are, if some have none.

    They are JSON strings: some backends refuse arrays.
    """
    by_name: dict[str, dict[int, float]] = {}
    for score in scores:
        if score.target.kind == "passage" and score.target.index is not None:
            by_name.setdefault(score.name, {})[score.target.index] = score.value
    attributes: Attributes = {}
    for name, values in by_name.items():
        places = sorted(values)
        attributes[f"rageval.passage_scores.{name}"] = json_string([values[place] for place in places])
        if len(places) < passages:
            attributes[f"rageval.scored_passages.{name}"] = json_string(places)
    return attributes
