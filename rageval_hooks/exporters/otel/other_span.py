"""Writes the main scores on the turn's span that another tracer has made."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.trace import Span

from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.attributes import Attributes, add_main_scores
from rageval_hooks.score import Result

__all__ = ["add_scores"]


def add_scores(span: Span | None, results: Iterable[Result], policy: ContentPolicy) -> None:
    """Add the main scores to a span of another tracer. One that has ended takes no more attributes.

    Args:
        span: the span; None if it is not in this process.
        results: the results of the turn.
        policy: what may be shown.
    """
    if span is None or not span.is_recording():
        return
    attributes = Attributes()
    add_main_scores(attributes, list(results), policy)
    span.set_attributes(dict(attributes))
