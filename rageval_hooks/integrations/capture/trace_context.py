"""The position of a turn in its trace: the application's OpenTelemetry context, and spans of other instrumentations."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from opentelemetry import baggage

from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.turn import SpanReference

if TYPE_CHECKING:
    from opentelemetry.context import Context

__all__ = ["context_attributes", "foreign_span", "others_trace", "span_reference"]

_OTHERS = "openinference.instrumentation.langchain"
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


def _parsed(text: str) -> dict[str, Any]:
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def others_trace() -> bool:
    """Return True if OpenInference is imported, so that :func:`foreign_span` may find a span."""
    return _OTHERS in sys.modules


def foreign_span(run_id: Hashable) -> tuple[int, int, int] | None:
    """Return the trace id, span id and flags of OpenInference's span for a LangChain run, if it has one."""
    instrumentor = getattr(sys.modules.get(_OTHERS), "LangChainInstrumentor", None)
    if instrumentor is None:
        return None
    tracer = getattr(instrumentor(), "_tracer", None)  # the instrumentor is a singleton
    span = None if tracer is None else tracer.get_span(run_id)
    if span is None:
        return None
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return context.trace_id, context.span_id, int(context.trace_flags)


def span_reference(recording: Recording) -> SpanReference:
    """Return the span that the turn's scores belong to: another instrumentation's, else our own."""
    selection = recording.selection
    if recording.external_span is None:
        return selection.span_reference()
    trace_id, span_id, flags = recording.external_span
    reference = SpanReference(trace_id=f"{trace_id:032x}", span_id=f"{span_id:016x}", flags=flags, external=True)
    return reference.within(selection.context)
