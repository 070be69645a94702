"""Where a turn stands in its trace: the application's context, and spans that others already make."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from opentelemetry import baggage, trace

from rageval_hooks.integrations.capture.recorder import Recording
from rageval_hooks.turn import SpanReference

if TYPE_CHECKING:
    from opentelemetry.context import Context

__all__ = ["context_attributes", "foreign_span", "others_trace", "span_reference"]

_OTHERS = "openinference.instrumentation.langchain"
_ATTRIBUTES = ("session.id", "user.id", "metadata")


def context_attributes(context: Context) -> dict[str, Any]:
    """Return session id, user id and metadata that the application put into its OpenTelemetry context.

    OpenInference's ``using_attributes`` keeps them as context values, others as baggage.
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
    metadata = found.get("metadata")
    if isinstance(metadata, str):
        found["metadata"] = _parsed(metadata)
    return found


def _parsed(text: str) -> dict[str, Any]:
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def others_trace() -> bool:
    """Whether :func:`foreign_span` may find something."""
    return _OTHERS in sys.modules


def foreign_span(run_id: Hashable) -> tuple[int, int, int] | None:
    """Return trace id, span id and flags of the span that OpenInference has for a LangChain run, if it traces them."""
    module = sys.modules.get(_OTHERS)
    instrumentor = getattr(module, "LangChainInstrumentor", None)
    tracer = getattr(instrumentor() if instrumentor is not None else None, "_tracer", None)
    if tracer is None:
        return None
    span = tracer.get_span(run_id)
    if span is None:
        return None
    context = span.get_span_context()
    return (context.trace_id, context.span_id, int(context.trace_flags)) if context.is_valid else None


def span_reference(recording: Recording) -> SpanReference:
    """Return the span that the turn's scores belong to."""
    selection = recording.selection
    if recording.external_span is not None:
        trace_id, span_id, flags = recording.external_span
        reference = SpanReference(trace_id=f"{trace_id:032x}", span_id=f"{span_id:016x}", flags=flags, external=True)
        return reference.within(selection.context)
    parent = trace.get_current_span(selection.context).get_span_context() if selection.context else None
    reference = SpanReference(
        trace_id=f"{selection.trace_id:032x}",
        span_id=f"{selection.span_id:016x}",
        flags=selection.flags,
        parent_span_id=f"{selection.parent_span_id:016x}" if selection.parent_span_id else None,
        parent_is_remote=parent is not None and parent.is_remote,
        trace_state=(parent.trace_state.to_header() or None) if parent is not None else None,
        baggage=_text_baggage(selection.context),
    )
    return reference.within(selection.context)


def _text_baggage(context: Context) -> dict[str, str]:
    if not context:
        return {}
    return {name: value for name, value in baggage.get_all(context).items() if isinstance(value, str)}
