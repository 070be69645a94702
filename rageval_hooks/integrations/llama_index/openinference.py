"""Spans that OpenInference's instrumentor for LlamaIndex has already made."""

from __future__ import annotations

import sys
from collections.abc import Hashable

__all__ = ["foreign_span"]


def foreign_span(span_id: Hashable) -> tuple[int, int, int] | None:
    """Return trace id, span id and flags of OpenInference's span for a LlamaIndex span; None if it makes none."""
    module = sys.modules.get("openinference.instrumentation.llama_index")
    instrumentor = getattr(module, "LlamaIndexInstrumentor", None)
    handler = getattr(instrumentor() if instrumentor is not None else None, "_span_handler", None)
    span = getattr(getattr(handler, "open_spans", {}).get(span_id), "_otel_span", None)
    if span is None:
        return None
    context = span.get_span_context()
    return (context.trace_id, context.span_id, int(context.trace_flags)) if context.is_valid else None
