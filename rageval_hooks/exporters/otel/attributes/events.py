"""The event ``gen_ai.evaluation.result``: one result as a span event and as a log event."""

from __future__ import annotations

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.attributes.ordering import Attributes, Value, json_string
from rageval_hooks.exporters.span_places import PassagePlace, passage_place
from rageval_hooks.score import Evaluation, Failed, Result, Score, is_about_turn, metric_of
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import Step, Turn

__all__ = ["evaluated_response_id", "event_attributes", "result_attributes", "result_events", "scored_place"]


def result_events(
    evaluation: Evaluation, policy: ContentPolicy, spans: SpanSelection, limit: int | None
) -> list[Attributes]:
    """Return the attributes of the span events of a stage, results about the whole turn first.

    Args:
        evaluation: the stage.
        policy: what may be shown.
        spans: which steps of a turn become spans.
        limit: events that the provider keeps per span. The SDK would drop the first ones, which matter most.
    """
    results = sorted(evaluation.results, key=lambda result: not is_about_turn(result))
    response_id = evaluated_response_id(evaluation.turn)
    return [event_attributes(result, evaluation.turn, policy, spans, response_id) for result in results[:limit]]


def event_attributes(
    result: Result, turn: Turn, policy: ContentPolicy, spans: SpanSelection, response_id: str | None
) -> Attributes:
    """Return all attributes of the event of a result.

    Args:
        result: the result.
        turn: what was evaluated.
        policy: what may be shown.
        spans: which steps of a turn become spans.
        response_id: the provider's id of the completion that was evaluated.
    """
    attributes = result_attributes(result, policy, response_id)
    attributes[semconv.EVALUATION_TARGET] = turn.name
    _add_evaluator(attributes, result)
    _add_target(attributes, result, scored_place(result, turn, spans))
    return attributes


def result_attributes(result: Result, policy: ContentPolicy, response_id: str | None) -> Attributes:
    """Return a result in the names of the GenAI conventions."""
    attributes = Attributes()
    attributes[semconv.EVALUATION_NAME] = result.name
    if isinstance(result, Score):
        attributes[semconv.EVALUATION_SCORE_VALUE] = result.value
        attributes.put(semconv.EVALUATION_SCORE_LABEL, result.label)
        attributes.put(semconv.EVALUATION_EXPLANATION, policy.quote(result.explanation, policy.everything))
    else:
        attributes[semconv.EVALUATION_SCORE_LABEL] = result.status
        if isinstance(result, Failed):
            attributes[semconv.ERROR_TYPE] = result.error_type
        attributes[semconv.EVALUATION_EXPLANATION] = policy.reason(result)
    attributes.put(semconv.RESPONSE_ID, response_id)
    return attributes


def scored_place(result: Result, turn: Turn, spans: SpanSelection) -> PassagePlace | None:
    """Return where the scored passage is listed; None for results that are not about a passage of a span."""
    if not isinstance(result, Score) or result.target.kind != "passage":
        return None
    return passage_place(turn, result.target.index, spans)


def _add_evaluator(attributes: Attributes, result: Result) -> None:
    """Add the metric and its version, in the form of pydantic_evals: ``{"name": "trace", "arguments": null}``."""
    model = result.model if isinstance(result, Score) else None
    arguments = None if model is None else {"model": model}
    source = {"name": metric_of(result), "arguments": arguments}
    attributes[semconv.EVALUATOR_SOURCE] = json_string(source)
    if isinstance(result, Score):
        attributes[semconv.EVALUATOR_VERSION] = result.version


def _add_target(attributes: Attributes, result: Result, place: PassagePlace | None) -> None:
    """Add what a score is about, unless it is the whole turn: for a passage, its place on its retriever's span."""
    if is_about_turn(result) or not isinstance(result, Score):
        return
    target: dict[str, Value | None] = {"kind": result.target.kind, "index": result.target.index, "id": result.target.id}
    if place is not None:
        target.update(span_id=place.span_id, document_position=place.position)
    for name, value in target.items():
        attributes.put(semconv.TARGET.format(name=name), value)


def evaluated_response_id(turn: Turn) -> str | None:
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
