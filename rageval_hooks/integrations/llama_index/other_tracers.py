"""The spans that other tracers make for LlamaIndex: OpenInference, OpenLLMetry and OpenTelemetry's GenAI instrumentor.

All three add a handler to LlamaIndex's dispatcher, which keeps an object for each open span.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from llama_index_instrumentation import get_dispatcher
from opentelemetry.trace import Span

from rageval_hooks.runtime.interrupts import raise_interrupt

_logger = logging.getLogger(__name__)

# An invocation of OpenTelemetry's without its own span refers to the application's current span.
_READERS: dict[str, Callable[[Any], Span | None]] = {
    "openinference.instrumentation.llama_index.": lambda kept: kept._otel_span,
    "opentelemetry.instrumentation.llamaindex.": lambda kept: kept.otel_span,
    "opentelemetry.instrumentation.genai.llama_index.": lambda kept: (
        kept._invocation.span if getattr(kept._invocation, "_start_span", True) else None
    ),
}
"""How to read the span in what a handler keeps, by the beginning of the handler's module's name."""


def find_span(span_id: Any, _: object) -> Span | None:
    """Return what another tracer's handler keeps for an open span of LlamaIndex; None if there is none.

    Private names, tested with openinference-instrumentation-llama-index 4.3, opentelemetry-instrumentation-llamaindex
    0.62 and opentelemetry-instrumentation-genai-llama-index 1.3b0. In a version without them, the scores go on spans
    of our own.
    """
    for handler in get_dispatcher().span_handlers:
        module = f"{type(handler).__module__}."
        # Ours and LlamaIndex's own are in each process; pydantic takes 4 µs to find that they have no such attribute.
        span_of = next((reader for prefix, reader in _READERS.items() if module.startswith(prefix)), None)
        if span_of is None:
            continue
        try:
            kept: Any = handler.open_spans.get(span_id)
            if kept is not None and (span := span_of(kept)) is not None:
                return span
        except Exception as error:  # another version of that tracer, which keeps its spans elsewhere
            raise_interrupt(error)
            _logger.debug("rageval-hooks: %r could not be read", handler, exc_info=True)
    return None
