"""Spans of OpenInference, OpenLLMetry and OpenTelemetry's GenAI instrumentor.

All three wrap the constructor of LangChain's callback managers, so that every manager has their handler. A manager
that is made for this purpose has it too. OpenInference's ``get_span`` and OpenLLMetry's ``spans`` are public; the
private names of the GenAI instrumentor are in ``otel_genai``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from opentelemetry.trace import Span

from rageval_hooks.integrations.langchain.other_tracers import otel_genai


def is_active() -> bool:
    """Return True if one of the instrumentors is active."""
    return bool(_handlers())


def find_span(run_id: UUID) -> Span | None:
    """Return the span that one of the instrumentors has open for a run."""
    for handler, span_of in _handlers():
        span = span_of(handler, run_id)
        if span is not None:
            return span
    return None


Reader = Callable[[Any, UUID], Span | None]


def _openllmetry(handler: Any, run_id: UUID) -> Span | None:
    holder = handler.spans.get(run_id)
    return None if holder is None else holder.span


_READERS: dict[str, Reader] = {
    "openinference.instrumentation.langchain.": lambda handler, run_id: handler.get_span(run_id),
    "opentelemetry.instrumentation.langchain.": _openllmetry,
    "opentelemetry.instrumentation.genai.langchain.": otel_genai.span_of,
}
"""How to read the spans of a handler, by the beginning of its module's name."""

_seen: tuple[object, tuple[tuple[BaseCallbackHandler, Reader], ...]] = (None, ())
"""The constructor that was read last, and the handlers that it adds."""


def _handlers() -> tuple[tuple[BaseCallbackHandler, Reader], ...]:
    """Return the handlers of the instrumentors that are active."""
    global _seen
    # Instrumentors wrap the constructor and unwrap it: as long as it is the same object, so are the handlers.
    constructor = vars(BaseCallbackManager)["__init__"]
    seen, handlers = _seen
    if constructor is not seen:
        handlers = tuple(_read_handlers())
        _seen = (constructor, handlers)
    return handlers


def _read_handlers() -> Iterator[tuple[BaseCallbackHandler, Reader]]:
    for handler in BaseCallbackManager(handlers=[]).inheritable_handlers:
        module = f"{type(handler).__module__}."
        for prefix, reader in _READERS.items():
            if module.startswith(prefix):
                yield handler, reader
