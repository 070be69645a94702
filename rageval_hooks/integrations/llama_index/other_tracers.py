"""The spans that other tracers make for LlamaIndex: OpenInference, OpenLLMetry and OpenTelemetry's GenAI instrumentor.

All three add a handler to LlamaIndex's dispatcher, which keeps an object for each open span.
"""

from __future__ import annotations

import logging
from typing import Any

from llama_index_instrumentation import get_dispatcher
from opentelemetry.trace import Span

from rageval_hooks.runtime.interrupts import raise_interrupt

_logger = logging.getLogger(__name__)

_OPENINFERENCE = "openinference.instrumentation.llama_index."
_OPENLLMETRY = "opentelemetry.instrumentation.llamaindex."
_TRACERS = (_OPENINFERENCE, _OPENLLMETRY, "opentelemetry.instrumentation.genai.llama_index.")


def find_span(span_id: Any, _: object) -> Span | None:
    """Return what another tracer's handler keeps for an open span of LlamaIndex; None if there is none.

    Private names, tested with openinference-instrumentation-llama-index 4.3, opentelemetry-instrumentation-llamaindex
    0.62 and opentelemetry-instrumentation-genai-llama-index 1.3b0. In a version without them, the scores go on spans
    of our own.
    """
    for handler in get_dispatcher().span_handlers:
        module = f"{type(handler).__module__}."
        # Ours and LlamaIndex's own are in each process; pydantic takes 4 µs to find that they have no such attribute.
        if not module.startswith(_TRACERS):
            continue
        try:
            kept: Any = handler.open_spans.get(span_id)
            span: Span | None = None
            if kept is None:
                continue
            if module.startswith(_OPENINFERENCE):
                span = kept._otel_span
            elif module.startswith(_OPENLLMETRY):
                span = kept.otel_span
            else:
                # An invocation without its own span refers to the application's current span.
                span = kept._invocation.span if getattr(kept._invocation, "_start_span", True) else None
            if span is not None:
                return span
        except Exception as error:  # another version of that tracer, which keeps its spans elsewhere
            raise_interrupt(error)
            _logger.debug("rageval-hooks: %r could not be read", handler, exc_info=True)
    return None
