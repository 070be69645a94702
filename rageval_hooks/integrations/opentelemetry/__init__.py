"""Turns from the spans of any framework's tracer."""

from rageval_hooks.integrations.opentelemetry.spans import TracedSpan
from rageval_hooks.integrations.opentelemetry.turn_building import NoTurn, turn_from_spans, turns_from_spans

__all__ = ["NoTurn", "TracedSpan", "turn_from_spans", "turns_from_spans"]
