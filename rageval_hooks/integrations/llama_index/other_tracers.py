"""The spans that other tracers make for LlamaIndex: OpenInference, OpenLLMetry and OpenTelemetry's GenAI instrumentor.

All three add a handler to LlamaIndex's dispatcher, which keeps an object for each open span.
"""

from __future__ import annotations

import logging
from typing import Any

from llama_index_instrumentation import get_dispatcher
from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context

from rageval_hooks.integrations.capture import trace_context
from rageval_hooks.integrations.capture.recorder import Recording, Run

_logger = logging.getLogger(__name__)


def note_other_span(run: Run) -> None:
    """Note the span that another tracer has made for a run in progress, if there is one by now."""
    trace_context.note_other_span(run, find_span)


def context_of_root(span_id: str) -> Context | None:
    """Return the current context with another tracer's span for a root that starts; None without such a span.

    The turn is then sampled like that span. Most tracers do not make their spans current.
    """
    span = _open_span(span_id)
    return None if span is None else set_span_in_context(span)


def find_span(run: Run, _: Recording) -> Span | None:
    """Return the span of another tracer for a run of LlamaIndex; None if it has not made one."""
    return _open_span(run.text_id)


def _open_span(span_id: str) -> Span | None:
    """Return what another tracer's handler keeps for an open span of LlamaIndex.

    Private names, tested with openinference-instrumentation-llama-index 4.3, opentelemetry-instrumentation-llamaindex
    0.62 and opentelemetry-instrumentation-genai-llama-index 1.3b0. In a version without them, the scores go on spans
    of our own.
    """
    for handler in get_dispatcher().span_handlers:
        module = f"{type(handler).__module__}."
        try:
            # OpenLLMetry moves spans whose answer is being streamed.
            tables = (handler.open_spans, getattr(handler, "waiting_for_streaming_spans", {}))
            kept: Any = next((table[span_id] for table in tables if span_id in table), None)
            span: Span | None = None
            if kept is None:
                continue
            if module.startswith("openinference.instrumentation.llama_index."):
                span = kept._otel_span
            elif module.startswith("opentelemetry.instrumentation.llamaindex."):
                span = kept.otel_span
            elif module.startswith("opentelemetry.instrumentation.genai.llama_index."):
                # An invocation without its own span refers to the application's current span.
                span = kept._invocation.span if getattr(kept._invocation, "_start_span", True) else None
            if span is not None:
                return span
        except Exception:  # another version of that tracer, which keeps its spans elsewhere
            _logger.debug("rageval-hooks: %r could not be read", handler, exc_info=True)
    return None
