"""Turns from the spans of any framework's tracer: live by a span processor, and from exports by a pure function.

Read ``processor`` (when a trace is complete), then ``turn_building`` (which spans make a turn), and ``turn_spans``,
``question_and_answer`` and ``passages`` (what is in them). ``facts`` reads one span, ``messages`` and ``prompts`` its
texts. ``conventions`` has every attribute name, as tables.
"""

from rageval_hooks.integrations.opentelemetry.processor import attach, detach, stats
from rageval_hooks.integrations.opentelemetry.spans import TracedSpan
from rageval_hooks.integrations.opentelemetry.turn_building import NoTurn, turns_from_spans

__all__ = ["NoTurn", "TracedSpan", "attach", "detach", "stats", "turns_from_spans"]
