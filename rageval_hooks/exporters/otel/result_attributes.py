"""The attributes of results: on the span of an evaluation, on the turn's span, and on log events."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.main_results import is_about_quality, quality_results
from rageval_hooks.exporters.otel.attributes import Attributes, Value, json_string
from rageval_hooks.exporters.span_places import PassagePlace, passage_place
from rageval_hooks.score import Evaluation, Failed, Result, Score, is_about_turn, judge_details, metric_of
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import Step, Turn

__all__ = [
    "add_main_scores",
    "evaluation_attributes",
    "evaluation_name",
    "event_attributes",
    "has_news",
    "score_attributes",
    "scored_place",
]

_MOST_SCORE_ATTRIBUTES = 12
"""On a turn's span. Backends sort attributes by name and preview the first few: more would hide the question."""

# The attribute with the reason, by the status of a result without a value.
_REASONS = {"skipped": semconv.SKIPPED, "failed": semconv.FAILED}

# A judge's details that are text and quote nothing. Its words when it refused, for one, may quote a passage.
_JUDGE_IDS = frozenset({"model", "response_id", "mode", "circuit"})


_COUNTED_LATE = frozenset({"tokens", "cost"})


def has_news(evaluation: Evaluation) -> bool:
    """Return True if an evaluation deserves a span."""
    if not evaluation.results:
        return False
    if any(is_about_quality(result) or not is_about_turn(result) for result in evaluation.results):
        return True
    # The metrics of a turn without an answer are skipped, and a span would only repeat that.
    if evaluation.turn.status != "ok":
        return False
    # What waited for a tokenizer and came late, alone, is in the log events and metrics.
    late = evaluation.stage == "background"
    return not late or not _COUNTED_LATE.issuperset(map(metric_of, evaluation.results))


def evaluation_name(results: Sequence[Result]) -> str:
    """Return the name of an evaluation's span: with the metric if it is one, else without, so that names are few."""
    metric = _only_metric(results)
    return "evaluate" if metric is None else f"evaluate {metric}"


def _only_metric(results: Sequence[Result]) -> str | None:
    """Return the metric that all results come from; None for several metrics."""
    metrics = set(map(metric_of, results))
    return metrics.pop() if len(metrics) == 1 else None


def evaluation_attributes(evaluation: Evaluation, policy: ContentPolicy, *, for_braintrust: bool = False) -> Attributes:
    """Return the attributes of the span of one stage's results: each result once, as flat attributes.

    Jaeger and Tempo search flat attributes, and Phoenix shows them; none of them reads numbered lists or span events.

    Args:
        evaluation: with at least one result.
        policy: what may be shown.
        for_braintrust: True to make the scores Braintrust's own.
    """
    results = evaluation.results
    scores = evaluation.scores
    # Main scores first: a span keeps 128 attributes by default. Usage and skipped metrics come last.
    about_turn = sorted(filter(is_about_turn, results), key=lambda result: not is_about_quality(result))
    ordered = [*quality_results(about_turn), *(result for result in about_turn if not is_about_quality(result))]
    attributes = Attributes()
    attributes[semconv.SPAN_KIND] = "EVALUATOR"
    attributes[semconv.STAGE] = evaluation.stage
    # A person who opens the span reads what was asked, and what came out.
    attributes[semconv.INPUT_VALUE] = policy.quote(evaluation.turn.query, policy.inputs)
    attributes[semconv.INPUT_MIME_TYPE] = semconv.TEXT
    attributes[semconv.OUTPUT_VALUE] = "\n".join(map(_line, ordered or results))
    attributes[semconv.OUTPUT_MIME_TYPE] = semconv.TEXT
    # The span's own times lie inside its parent's. These two say when the work was done and how long it took.
    attributes[semconv.DURATION] = sum(evaluation.durations.values()) or evaluation.duration
    attributes[semconv.EVALUATED_AT] = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    # Langfuse drops spans without an attribute of GenAI's.
    attributes[semconv.EVALUATION_NAME] = (ordered or results)[0].name
    attributes.put(semconv.RESPONSE_ID, _evaluated_response_id(evaluation.turn))
    if evaluation.failed and not scores:
        attributes[semconv.ERROR_TYPE] = evaluation.failed[0].error_type
    metric = _only_metric(results)
    if metric is not None:
        attributes[semconv.METRIC] = metric
        if scores:
            attributes[semconv.ANNOTATOR] = scores[0].annotator
            attributes[semconv.SCORE_VERSION] = scores[0].version
    if for_braintrust:
        _add_braintrust(attributes, about_turn)
    for result in ordered:
        attributes.update(score_attributes(result, policy))
    if scores:
        attributes[semconv.PROBABILITY] = min(score.probability for score in scores)
    _add_judge(attributes, results, policy)
    _add_passage_scores(attributes, scores, len(evaluation.turn.passages))
    for result in ordered:
        if isinstance(result, Score) and result.explanation is not None:
            name = semconv.EXPLANATION.format(name=result.name)
            attributes[name] = policy.quote(result.explanation, policy.everything)
    return attributes


def add_main_scores(attributes: Attributes, results: Iterable[Result], policy: ContentPolicy) -> None:
    """Add the results that matter most to the attributes of a turn's span: the main scores, then others of quality."""
    quality = quality_results(results)
    free = _MOST_SCORE_ATTRIBUTES
    for result in quality:
        new = score_attributes(result, policy)
        # A value without its label would mislead, so a result goes in whole or not at all.
        if len(new) <= free:
            attributes.update(new)
            free -= len(new)
    probabilities = [result.probability for result in quality if isinstance(result, Score)]
    # Without sampling the probability is 1 and says nothing.
    if probabilities and min(probabilities) < 1:
        attributes[semconv.PROBABILITY] = min(probabilities)


def score_attributes(result: Result, policy: ContentPolicy) -> dict[str, Value]:
    """Return a result about the whole turn as attributes with its name: value and label, or the reason."""
    label = semconv.LABEL.format(name=result.name)
    if not isinstance(result, Score):
        return {label: result.status, _REASONS[result.status].format(name=result.name): policy.reason(result)}
    attributes: dict[str, Value] = {semconv.SCORE.format(name=result.name): result.value}
    if result.label is not None:
        attributes[label] = result.label
    return attributes


def _line(result: Result) -> str:
    """Return a result as a line without texts of the turn, such as ``groundedness=0.83 (pass)``."""
    if not isinstance(result, Score):
        return f"{result.name} {result.status}"
    label = "" if result.label is None else f" ({result.label})"
    return f"{result.name}={result.value:g}{label}"


def _add_braintrust(attributes: Attributes, results: Iterable[Result]) -> None:
    """Add what Braintrust turns into scores. It takes shares, from 0 to 1, and nothing else."""
    scores = [result for result in results if isinstance(result, Score)]
    shares = {score.name: score.value for score in scores if score.low == 0 and score.high == 1}
    if shares:
        attributes[semconv.BRAINTRUST_SCORES] = json_string(shares)
        attributes[semconv.BRAINTRUST_SPAN_ATTRIBUTES] = json_string({"type": "score"})


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


# --------------------------------------------------------------------------- the log event gen_ai.evaluation.result


def event_attributes(result: Result, turn: Turn, policy: ContentPolicy, place: PassagePlace | None) -> Attributes:
    """Return the attributes of the log event of a result.

    Args:
        result: the result.
        turn: what was evaluated.
        policy: what may be shown.
        place: where the scored passage is listed; see :func:`scored_place`.
    """
    attributes = Attributes()
    attributes[semconv.EVALUATION_NAME] = result.name
    if isinstance(result, Score):
        attributes[semconv.EVALUATION_SCORE_VALUE] = result.value
        attributes.put(semconv.EVALUATION_SCORE_LABEL, result.label)
        attributes.put(semconv.EVALUATION_EXPLANATION, policy.quote(result.explanation, policy.everything))
        attributes[semconv.EVALUATOR_VERSION] = result.version
        # With sampling, a mean over all traffic weights each score by the inverse of this.
        attributes[semconv.PROBABILITY] = result.probability
    else:
        attributes[semconv.EVALUATION_SCORE_LABEL] = result.status
        attributes[semconv.EVALUATION_EXPLANATION] = policy.reason(result)
        if isinstance(result, Failed):
            attributes[semconv.ERROR_TYPE] = result.error_type
    attributes.put(semconv.RESPONSE_ID, _evaluated_response_id(turn))
    attributes[semconv.EVALUATION_TARGET] = turn.name
    attributes[semconv.TURN_ID] = turn.id
    # In the form of pydantic_evals: {"name": "trace", "arguments": null}.
    model = result.model if isinstance(result, Score) else None
    arguments = None if model is None else {"model": model}
    attributes[semconv.EVALUATOR_SOURCE] = json_string({"name": metric_of(result), "arguments": arguments})
    if isinstance(result, Score) and not is_about_turn(result):
        target: dict[str, Value | None] = {
            "kind": result.target.kind,
            "index": result.target.index,
            "id": result.target.id,
        }
        if place is not None:
            target.update(span_id=place.span_id, document_position=place.position)
        for name, value in target.items():
            attributes.put(semconv.TARGET.format(name=name), value)
    return attributes


def scored_place(result: Result, turn: Turn, spans: SpanSelection) -> PassagePlace | None:
    """Return where the scored passage is listed; None for results that are not about a passage of a span."""
    if not isinstance(result, Score) or result.target.kind != "passage":
        return None
    return passage_place(turn, result.target.index, spans)


def _evaluated_response_id(turn: Turn) -> str | None:
    """Return the provider's id of the completion that became the answer; None if it is not known."""
    calls = [step for step in turn.steps if step.response_id is not None]
    # A later call may have nothing to do with the answer, such as one that suggests follow-up questions.
    answering = [step for step in calls if _wrote(step, turn.response)]
    for step in reversed(answering or calls):
        return step.response_id
    return None


def _wrote(step: Step, response: str) -> bool:
    """Return True if a model call's text is the answer or a part of it."""
    text = (step.output or "").strip()
    return bool(text) and text in response
