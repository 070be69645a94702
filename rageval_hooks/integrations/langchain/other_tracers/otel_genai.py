"""Spans of OpenTelemetry's GenAI instrumentor for LangChain.

Private names: ``_invocation_manager`` of its handler, and ``_start_span`` of an invocation. Tested with
opentelemetry-instrumentation-genai-langchain 1.3b0; a version without them is refused by an AttributeError. The scores
then go on spans of our own, and a debug line of the log says so.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from opentelemetry.trace import Span


def span_of(handler: Any, run_id: UUID) -> Span | None:
    """Return the span that the instrumentor's handler has open for a run."""
    invocation = handler._invocation_manager.get_invocation(run_id)
    # An invocation without its own span refers to the application's current span.
    if invocation is None or not getattr(invocation, "_start_span", True):
        return None
    span: Span = invocation.span
    return span
