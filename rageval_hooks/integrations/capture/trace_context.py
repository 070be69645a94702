"""The position of a turn in its trace: the application's OpenTelemetry context, and the spans of other tracers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import baggage
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext

from rageval_hooks.integrations.capture.other_spans import shares_spans
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.turn import SpanReference

__all__ = ["context_attributes", "span_reference"]

_ATTRIBUTES = ("session.id", "user.id", "metadata")


def context_attributes(context: Context) -> dict[str, Any]:
    """Return the session id, user id and metadata that the application put into its OpenTelemetry context.

    OpenInference's ``using_attributes`` stores them as context values; other libraries use baggage.
    """
    found: dict[str, Any] = {}
    if not context:
        return found
    for name in _ATTRIBUTES:
        value = context.get(name)
        if value is None and name != "metadata":
            value = baggage.get_baggage(name, context)
        if value:
            found[name] = value
    # OpenInference stores the metadata as a JSON string.
    if isinstance(found.get("metadata"), str):
        found["metadata"] = _parsed(found["metadata"])
    return found


def _parsed(text: str) -> Mapping[str, Any]:
    import json

    try:
        return mapping_or_empty(json.loads(text))
    except ValueError:
        return {}


def span_reference(recording: Recording) -> SpanReference:
    """Return the span that the turn's scores belong to: another tracer's, else our own."""
    selection = recording.selection
    if recording.other_span is not None and shares_spans(recording):
        return _other_reference(recording.other_span, selection.context)
    reference = selection.span_reference()
    same_trace = _context_in_same_trace(recording)
    if same_trace is None:
        return reference
    parent_span_id = reference.parent_span_id
    if recording.other_span is not None:
        # The user wants our spans too: the turn's span is then below the other tracer's.
        parent_span_id = f"{same_trace.span_id:016x}"
    elif parent_span_id is not None:
        return reference  # the application's own span holds the trace together
    moved = {
        "trace_id": f"{same_trace.trace_id:032x}",
        "flags": int(same_trace.trace_flags),
        "parent_span_id": parent_span_id,
    }
    return reference.model_copy(update=moved)


def _other_reference(span: Span, surrounding: Context) -> SpanReference:
    context = span.get_span_context()
    reference = SpanReference(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        flags=int(context.trace_flags),
        trace_state=context.trace_state.to_header() or None,
        external=True,
    )
    return reference.within(surrounding, span)


def _context_in_same_trace(recording: Recording) -> SpanContext | None:
    """Return the context of another tracer's span in this turn; None without such a span."""
    if recording.other_span is not None:
        return recording.other_span.get_span_context()
    return recording.other_context
