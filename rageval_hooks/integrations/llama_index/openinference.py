"""Spans that OpenInference's instrumentor for LlamaIndex makes already."""

from __future__ import annotations

import sys
from collections.abc import Hashable

__all__ = ["foreign_span"]


def foreign_span(span_id: Hashable) -> tuple[int, int, int] | None:
    """Return trace id, span id and flags of the span that OpenInference has for a span, if it traces LlamaIndex."""
    module = sys.modules.get("openinference.instrumentation.llama_index")
    instrumentor = getattr(module, "LlamaIndexInstrumentor", None)
    handler = getattr(instrumentor() if instrumentor is not None else None, "_span_handler", None)
    span = getattr(getattr(handler, "open_spans", {}).get(span_id), "_otel_span", None)
    if span is None:
        return None
    context = span.get_span_context()
    return (context.trace_id, context.span_id, int(context.trace_flags)) if context.is_valid else None
