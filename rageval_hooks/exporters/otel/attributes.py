"""The attributes of results: on the span of an evaluation, on the turn's span, and on that of a guard.

Attribute names are written where they are set. Those of ``gen_ai.*`` follow the conventions of the schema URL in
:mod:`rageval_hooks.exporters.otel.providers`, whose status is "Development". OpenInference's are what Phoenix draws.
See https://github.com/open-telemetry/semantic-conventions-genai and
https://github.com/Arize-ai/openinference/tree/main/spec.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence

from pydantic_core import to_json

from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.selection import is_about_quality, quality_results
from rageval_hooks.score import VERDICT, Evaluation, Result, Score, Skipped, is_about_turn, judge_details, metric_of
from rageval_hooks.turn import Turn

Value = str | bool | int | float | Sequence[str] | Sequence[float]

_MOST_SCORE_ATTRIBUTES = 12
"""On a turn's span. Backends sort attributes by name and preview the first few: more would hide the question."""

# A judge's details that are text and quote nothing. Its words when it refused, for one, may quote a passage.
_JUDGE_IDS = frozenset({"model", "response_id", "mode", "circuit"})

_COUNTED_LATE = frozenset({"tokens", "cost"})


class Attributes(dict[str, Value]):
    """Span attributes, the most important first: what exceeds the provider's limit is cut from the end and counted."""

    def add(self, values: Mapping[str, Value | None]) -> None:
        """Set attributes, but for those that are None."""
        self.update({name: value for name, value in values.items() if value is not None})

    def within(self, limit: int | None) -> dict[str, Value]:
        """Return at most ``limit`` attributes; if some do not fit, one of these says how many."""
        if limit is None or len(self) <= limit:
            return self
        # The SDK would drop the oldest entries, which are the important ones.
        kept = dict(list(self.items())[: max(0, limit - 1)])
        kept["rageval.dropped_attributes"] = len(self) - len(kept)
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


def only_metric(results: Sequence[Result]) -> str | None:
    """Return the metric that all results come from; None for several metrics."""
    metrics = set(map(metric_of, results))
    return metrics.pop() if len(metrics) == 1 else None


def label_of(result: Result) -> str | None:
    """Return the label of a result: its own, or ``skipped`` or ``failed`` if there is no score."""
    if isinstance(result, Score):
        return result.label
    return (result.label if isinstance(result, Skipped) else None) or result.status


def evaluation_attributes(evaluation: Evaluation, policy: ContentPolicy, *, for_braintrust: bool = False) -> Attributes:
    """Return the attributes of the span of one stage's results: each result once, as flat attributes.

    Jaeger and Tempo search flat attributes, and Phoenix shows them; none of them reads numbered lists or span events.

    Args:
        evaluation: with at least one result.
        policy: what may be shown.
        for_braintrust: True to make the scores Braintrust's own.
    """
    results, scores = evaluation.results, evaluation.scores
    # Main scores first: a span keeps 128 attributes by default. Usage and skipped metrics come last.
    about_turn = list(filter(is_about_turn, results))
    ordered = quality_results(about_turn) + [result for result in about_turn if not is_about_quality(result)]
    attributes = Attributes({"openinference.span.kind": "EVALUATOR", "rageval.stage": evaluation.stage})
    _add_verdict(attributes, results)
    # Langfuse drops spans without an attribute of GenAI's.
    attributes.setdefault("gen_ai.evaluation.name", (ordered or results)[0].name)
    metric = only_metric(results)
    one_score = scores[0] if scores and metric is not None else None
    attributes.add(
        {
            # A person who opens the span reads what was asked, and what came out.
            "input.value": policy.quote(evaluation.turn.query, policy.inputs),
            "input.mime_type": "text/plain",
            "output.value": "\n".join(map(result_line, ordered or results)),
            "output.mime_type": "text/plain",
            # The span's own times lie inside its parent's. These two say when the work was done and how long it took.
            "rageval.duration": sum(evaluation.durations.values()) or evaluation.duration,
            "rageval.evaluated_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "gen_ai.response.id": evaluated_response_id(evaluation.turn),
            "error.type": evaluation.failed[0].error_type if evaluation.failed and not scores else None,
            "rageval.metric": metric,
            "rageval.annotator": None if one_score is None else one_score.annotator,
            "rageval.version": None if one_score is None else one_score.version,
        }
    )
    if for_braintrust:
        # Braintrust takes shares, from 0 to 1, and nothing else.
        of_turn = (result for result in about_turn if isinstance(result, Score))
        if shares := {score.name: score.value for score in of_turn if score.low == 0 and score.high == 1}:
            attributes["braintrust.scores"] = json_string(shares)
            attributes["braintrust.span_attributes"] = json_string({"type": "score"})
    for result in ordered:
        attributes.update(score_attributes(result, policy))
    if scores:
        attributes["rageval.sampling.probability"] = min(score.probability for score in scores)
    # The judge's usage, under names of our own: a backend must not add it to the application's tokens. All results of
    # a stage share one judgement, so the first one that has details has them all. Texts may quote the turn.
    shown = (str, bool, int, float) if policy.everything else (bool, int, float)
    for name, value in next(filter(None, map(judge_details, results)), {}).items():
        if isinstance(value, shown) or name in _JUDGE_IDS:
            attributes[f"rageval.judge.{name}"] = value
    _add_passage_scores(attributes, scores, len(evaluation.turn.passages))
    for result in ordered:
        if isinstance(result, Score) and result.explanation is not None:
            attributes[f"rageval.explanation.{result.name}"] = policy.quote(result.explanation, policy.everything)
    return attributes


def add_main_scores(attributes: Attributes, results: Iterable[Result], policy: ContentPolicy) -> None:
    """Add the results that matter most to the attributes of a turn's span: the verdict and the main scores first."""
    quality = quality_results(results)
    _add_verdict(attributes, quality)
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
        attributes["rageval.sampling.probability"] = min(probabilities)


def _add_verdict(attributes: Attributes, results: Iterable[Result]) -> None:
    """Add the verdict under a name of ours, for searches, and under those of GenAI.

    Jaeger shows a span's attributes in one line, sorted by name, and cuts it at the width of the page: the names of
    GenAI come before the question and the answer there.
    """
    for result in results:
        if result.name == VERDICT and (label := label_of(result)) is not None:
            attributes["rageval.verdict"] = label
            attributes["gen_ai.evaluation.name"] = VERDICT
            attributes["gen_ai.evaluation.score.label"] = label


def score_attributes(result: Result, policy: ContentPolicy) -> dict[str, Value]:
    """Return a result about the whole turn as attributes with its name: value and label, or the reason."""
    attributes: dict[str, Value] = {}
    if isinstance(result, Score):
        attributes[f"rageval.score.{result.name}"] = result.value
    if (label := label_of(result)) is not None:
        attributes[f"rageval.label.{result.name}"] = label
    if not isinstance(result, Score):  # rageval.skipped.groundedness, rageval.failed.trace
        attributes[f"rageval.{result.status}.{result.name}"] = policy.reason(result)
    return attributes


def result_line(result: Result) -> str:
    """Return a result as a line without texts of the turn, such as ``groundedness=0.83 (pass)``."""
    if not isinstance(result, Score):
        return f"{result.name} {label_of(result)}"
    label = "" if result.label is None else f" ({result.label})"
    return f"{result.name}={result.value:g}{label}"


def _add_passage_scores(attributes: Attributes, scores: Iterable[Score], passages: int) -> None:
    """Add the scores of passages in the passages' order; and which passages these are, if some have none.

    They are JSON strings: some backends refuse arrays.
    """
    by_name: dict[str, dict[int, float]] = {}
    for score in scores:
        if score.target.kind == "passage" and score.target.index is not None:
            by_name.setdefault(score.name, {})[score.target.index] = score.value
    for name, values in by_name.items():
        places = sorted(values)
        attributes[f"rageval.passage_scores.{name}"] = json_string([values[place] for place in places])
        if len(places) < passages:
            attributes[f"rageval.scored_passages.{name}"] = json_string(places)


def evaluated_response_id(turn: Turn) -> str | None:
    """Return the provider's id of the completion that became the answer; None if it is not known."""
    calls = [step for step in turn.steps if step.response_id is not None]
    # A later call may have nothing to do with the answer, such as one that suggests follow-up questions.
    answering = [step for step in calls if (step.output or "").strip() and (step.output or "").strip() in turn.response]
    return (answering or calls)[-1].response_id if calls else None
