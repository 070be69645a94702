"""The attributes and events of the spans of turns, steps, model calls and results."""

from rageval_hooks.exporters.otel.attributes.braintrust import goes_to_braintrust
from rageval_hooks.exporters.otel.attributes.events import (
    evaluated_response_id,
    event_attributes,
    result_events,
    scored_place,
)
from rageval_hooks.exporters.otel.attributes.ordering import Attributes, error_event
from rageval_hooks.exporters.otel.attributes.results import evaluation_attributes, evaluation_name
from rageval_hooks.exporters.otel.attributes.steps import step_attributes, step_name
from rageval_hooks.exporters.otel.attributes.turns import add_main_scores, is_agent, turn_attributes

__all__ = [
    "Attributes",
    "add_main_scores",
    "error_event",
    "evaluated_response_id",
    "evaluation_attributes",
    "evaluation_name",
    "event_attributes",
    "goes_to_braintrust",
    "is_agent",
    "result_events",
    "scored_place",
    "step_attributes",
    "step_name",
    "turn_attributes",
]
