"""The attributes of an evaluation's span: the full results of one stage for one turn."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.main_results import quality_results
from rageval_hooks.exporters.otel.attributes.braintrust import braintrust_attributes
from rageval_hooks.exporters.otel.attributes.events import evaluated_response_id, result_attributes
from rageval_hooks.exporters.otel.attributes.ordering import Attributes, Value, indexed, json_string
from rageval_hooks.score import Evaluation, Result, Score, is_about_turn, judge_details, metric_of

__all__ = ["evaluation_attributes", "evaluation_name", "score_attributes"]

# The attribute with the reason, by the status of a result without a value.
_REASONS = {"skipped": semconv.SKIPPED, "failed": semconv.FAILED}

# A judge's details that are text and quote nothing. Its words when it refused, for one, may quote a passage.
_JUDGE_IDS = frozenset({"model", "response_id", "mode", "circuit"})

# A span keeps 128 attributes by default, and the first ones are the most important: all names and values come before
# the first explanation's details.
_EVALUATION_FIELDS = (("name", "score", "label", "explanation"), ("annotator_kind", "identifier", "metadata"))


def evaluation_name(results: Sequence[Result]) -> str:
    """Return the name of an evaluation's span: with the metric if it is one, else without, so that names are few."""
    metric = _only_metric(results)
    return "evaluate" if metric is None else f"evaluate {metric}"


def _only_metric(results: Sequence[Result]) -> str | None:
    """Return the metric that all results come from; None for several metrics."""
    metrics = set(map(metric_of, results))
    return metrics.pop() if len(metrics) == 1 else None


def evaluation_attributes(evaluation: Evaluation, policy: ContentPolicy, *, for_braintrust: bool = False) -> Attributes:
    """Return the attributes of the span of one stage's results.

    Args:
        evaluation: with at least one result.
        policy: what may be shown.
        for_braintrust: True to make the scores Braintrust's own.
    """
    results = evaluation.results
    scores = evaluation.scores
    about_turn = [score for score in scores if is_about_turn(score)]
    attributes = Attributes()
    attributes[semconv.SPAN_KIND] = "EVALUATOR"
    attributes[semconv.STAGE] = evaluation.stage
    # The span's own times lie inside its parent's. These two say when the work was done and how long it took.
    attributes[semconv.DURATION] = sum(evaluation.durations.values()) or evaluation.duration
    attributes[semconv.EVALUATED_AT] = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    # Readers of a single result per span get the one that matters most. Langfuse drops spans without any of these.
    leading = [*quality_results(scores), *about_turn, *results][0]
    attributes.update(result_attributes(leading, policy, evaluated_response_id(evaluation.turn)))
    _add_single_metric(attributes, results, scores)
    if for_braintrust:
        attributes.update(braintrust_attributes(about_turn))
    for result in filter(is_about_turn, results):
        attributes.update(score_attributes(result, policy))
    if scores:
        attributes[semconv.PROBABILITY] = min(score.probability for score in scores)
    _add_judge(attributes, results, policy)
    _add_passage_scores(attributes, scores, len(evaluation.turn.passages))
    _add_evaluations(attributes, about_turn, policy)
    return attributes


def score_attributes(result: Result, policy: ContentPolicy) -> dict[str, Value]:
    """Return a result about the whole turn as attributes with its name: value and label, or the reason."""
    label = semconv.LABEL.format(name=result.name)
    if not isinstance(result, Score):
        return {label: result.status, _REASONS[result.status].format(name=result.name): policy.reason(result)}
    attributes: dict[str, Value] = {semconv.SCORE.format(name=result.name): result.value}
    if result.label is not None:
        attributes[label] = result.label
    return attributes


def _add_single_metric(attributes: Attributes, results: Sequence[Result], scores: Sequence[Score]) -> None:
    """Add what differs between metrics, if all results come from one: its name, annotator and version."""
    metric = _only_metric(results)
    if metric is None:
        return
    attributes[semconv.METRIC] = metric
    if scores:
        attributes[semconv.ANNOTATOR] = scores[0].annotator
        attributes[semconv.SCORE_VERSION] = scores[0].version


def _add_judge(attributes: Attributes, results: Iterable[Result], policy: ContentPolicy) -> None:
    """Add the judge's usage, under names of our own: a backend must not add it to the application's tokens."""
    # All results of a stage share one judgement, so the first one that has details has them all.
    details: Mapping[str, Any] = next(filter(None, map(judge_details, results)), {})
    # Texts may quote the turn.
    shown = (str, bool, int, float) if policy.everything else (bool, int, float)
    for name, value in details.items():
        if isinstance(value, shown) or name in _JUDGE_IDS:
            attributes[semconv.JUDGE.format(name=name)] = value


def _add_passage_scores(attributes: Attributes, scores: Iterable[Score], passages: int) -> None:
    """Add the scores of passages in the passages' order; and which passages these are, if some have none.

    They are JSON strings: some backends refuse arrays.
    """
    by_name: dict[str, dict[int, float]] = {}
    for score in scores:
        index = score.target.index
        if score.target.kind == "passage" and index is not None:
            by_name.setdefault(score.name, {})[index] = score.value
    for name, values in by_name.items():
        places = sorted(values)
        attributes[semconv.PASSAGE_SCORES.format(name=name)] = json_string([values[place] for place in places])
        if len(places) < passages:
            attributes[semconv.SCORED_PASSAGES.format(name=name)] = json_string(places)


def _add_evaluations(attributes: Attributes, scores: Sequence[Score], policy: ContentPolicy) -> None:
    """Add the scores as a list, the way OpenInference numbers the items of lists: ``evaluations.0.evaluation.name``."""
    rows = [_evaluation_fields(score, policy) for score in scores]
    for fields in _EVALUATION_FIELDS:
        for index, row in enumerate(rows):
            for field in fields:
                attributes.put(indexed(semconv.EVALUATION, index, field), row[field])


def _evaluation_fields(score: Score, policy: ContentPolicy) -> dict[str, Value | None]:
    metadata = score.metadata if policy.everything else {}
    return {
        "name": score.name,
        "score": score.value,
        "label": score.label,
        "explanation": policy.quote(score.explanation, policy.everything),
        "annotator_kind": score.annotator,
        "identifier": score.model,
        "metadata": json_string(metadata) if metadata else None,
    }
