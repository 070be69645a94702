"""A tracer provider of our own, which counts what becomes of its spans."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from rageval_hooks.exporters.otel.own_providers.otlp import TRACES, Connection, connect
from rageval_hooks.exporters.otel.own_providers.provider import OwnProvider, queue_size
from rageval_hooks.exporters.otel.own_providers.tally import Tally
from rageval_hooks.runtime.sizes import size_of

__all__ = ["own_tracer_provider"]

_ATTRIBUTE_LIMITS = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")

# A retriever span with 100 passages has some 400 attributes; the SDK's default of 128 would lose most of them.
_MOST_ATTRIBUTES = 4096


@cache
def own_tracer_provider() -> OwnProvider[TracerProvider] | None:
    """Return the provider for the OTLP endpoint of the standard variables; None if they name none."""
    connection = connect(TRACES)
    if connection is None:
        return None
    tally = Tally("otlp-spans", queue_size("OTEL_BSP_MAX_QUEUE_SIZE"))
    limited = any(name in os.environ for name in _ATTRIBUTE_LIMITS)
    limits = SpanLimits() if limited else SpanLimits(max_span_attributes=_MOST_ATTRIBUTES)
    # The worker's drain at exit shuts this provider down; a second exit handler could take longer than allowed.
    provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(_CountedProcessor(connection, tally))
    return OwnProvider(provider, tally)


class _CountedProcessor(BatchSpanProcessor):
    """The SDK's batch processor with a count of every span's fate."""

    def __init__(self, connection: Connection, tally: Tally) -> None:
        self._tally = tally
        super().__init__(_CountedExporter(connection, tally), max_queue_size=tally.capacity)

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        # Our own limit, because the SDK's queue drops its oldest spans and does not say so.
        if self._tally.accept(size_of(dict(span.attributes or {}))):
            super().on_end(span)


class _CountedExporter(SpanExporter):
    def __init__(self, connection: Connection, tally: Tally) -> None:
        self._connection = connection
        self._tally = tally

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result: SpanExportResult = self._connection.send(spans, len(spans), self._tally)
        return result

    def shutdown(self) -> None:
        self._connection.exporter.shutdown()
