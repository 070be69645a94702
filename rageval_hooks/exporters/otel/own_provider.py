"""A tracer provider of our own, for applications that set an OTLP endpoint in the environment but no provider.

The SDK's batch processor discards the results of its exporter and ignores the timeout of ``force_flush``. Here every
span is counted until its fate is known, so that flush and shutdown can tell the truth.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

if TYPE_CHECKING:
    import requests

__all__ = ["CountedSpanProcessor", "OwnProvider", "own_provider"]

_logger = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ATTRIBUTE_LIMITS = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
_CREDENTIAL_PROVIDERS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
)

# A retriever span with 100 passages has some 400 attributes; the SDK's default of 128 would lose most of them.
_MOST_ATTRIBUTES = 4096

_DEFAULT_QUEUE = 2048

Fate = Literal["delivered", "rejected", "lost"]


class LastResponse:
    """What the collector answered to the latest request over HTTP.

    The SDK's exporter reduces an answer to success or failure. A hook on its session keeps the two details that tell a
    rejected span from a lost one.

    Attributes:
        status: the HTTP status; None if there was no answer.
        rejected: spans that the collector rejected in a partial success.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.rejected = 0

    def clear(self) -> None:
        """Forget the answer before the next request."""
        self.status, self.rejected = None, 0

    def read(self, response: requests.Response, *_: Any, **__: Any) -> None:
        """Read an answer; the signature is that of a ``requests`` response hook."""
        self.status = response.status_code
        self.rejected = _rejected_spans(response.content) if response.ok else 0

    @property
    def refused(self) -> bool:
        """True if the collector refused the data itself: sending it again would not help."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in (408, 425, 429)


def _rejected_spans(content: bytes) -> int:
    if not content:
        return 0
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        answer = ExportTraceServiceResponse.FromString(content)
    except Exception:  # some collectors answer with JSON or a page
        return 0
    return int(answer.partial_success.rejected_spans)


class CountedSpanProcessor(BatchSpanProcessor):
    """The SDK's batch processor with a count of every span's fate.

    A full queue refuses new spans. The SDK would drop the oldest without telling, and their number would be unknown.

    Args:
        exporter: sends the spans.
        response: what the collector answered to the exporter; None if that is unknown, as over gRPC.
        capacity: spans that may wait.
    """

    def __init__(self, exporter: SpanExporter, response: LastResponse | None, capacity: int) -> None:
        self._capacity = capacity
        self._reset()
        super().__init__(_ReportingExporter(exporter, response, self), max_queue_size=capacity)
        if hasattr(os, "register_at_fork"):
            method = weakref.WeakMethod(self._reset)
            os.register_at_fork(after_in_child=lambda: (reset := method()) and reset())

    def _reset(self) -> None:
        """Start from zero. In a forked child, what the parent had queued is still the parent's."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._queued = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span that has ended."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._lock:
            # Our own limit, because the SDK's queue drops its oldest spans and does not say so.
            accepted = self._queued < self._capacity
            if accepted:
                self._queued += 1
            else:
                self._counts["dropped"] += 1
        if accepted:
            super().on_end(span)

    def settle(self, fate: Fate, amount: int) -> None:
        """Count what became of queued spans."""
        with self._lock:
            # After `give_up` an answer may still come for spans that were counted as lost.
            amount = min(amount, self._queued)
            self._queued -= amount
            self._counts[fate] += amount

    def give_up(self) -> int:
        """Count everything that still waits as lost; returns how much that was."""
        with self._lock:
            lost, self._queued = self._queued, 0
            self._counts["lost"] += lost
        return lost

    def stats(self) -> dict[str, int]:
        """Return the counts, in spans."""
        with self._lock:
            return {"queued": self._queued, **{name: self._counts[name] for name in _COUNTED}}


_COUNTED = ("delivered", "rejected", "lost", "dropped")


class _ReportingExporter(SpanExporter):
    """Sends spans and reports what became of them."""

    def __init__(self, exporter: SpanExporter, response: LastResponse | None, processor: CountedSpanProcessor) -> None:
        self._exporter = exporter
        self._response = response
        # The processor owns this exporter; a cycle would keep both alive until a full collection.
        self._processor = weakref.proxy(processor)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        response = self._response
        if response is not None:
            response.clear()
        # Reported even if the exporter raises: spans of unknown fate would never leave the count.
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._report(len(spans), result, response)
        return result

    def _report(self, amount: int, result: SpanExportResult, response: LastResponse | None) -> None:
        if result is SpanExportResult.SUCCESS:
            rejected = min(response.rejected, amount) if response is not None else 0
            self._processor.settle("rejected", rejected)
            self._processor.settle("delivered", amount - rejected)
        elif response is not None and response.refused:
            self._processor.settle("rejected", amount)
        else:
            self._processor.settle("lost", amount)

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class OwnProvider:
    """A provider of our own and what became of its spans.

    Attributes:
        provider: writes the spans.
    """

    def __init__(self, exporter: SpanExporter, response: LastResponse | None = None) -> None:
        self._processor = CountedSpanProcessor(exporter, response, _queue_size())
        limited = any(name in os.environ for name in _ATTRIBUTE_LIMITS)
        limits = SpanLimits() if limited else SpanLimits(max_span_attributes=_MOST_ATTRIBUTES)
        # The worker's drain at exit shuts this provider down; a second exit handler could take longer than allowed.
        self.provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
        self.provider.add_span_processor(self._processor)

    def give_up(self) -> int:
        """Count the spans that still wait as lost; returns how many there are."""
        return self._processor.give_up()

    def stats(self) -> Mapping[str, int]:
        """Return what became of the spans: queued, delivered, rejected, lost and dropped."""
        return self._processor.stats()


@cache
def own_provider() -> OwnProvider | None:
    """Return the provider for the OTLP endpoint of the standard variables; None if they name none."""
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return None
    try:
        return _connect()
    except ImportError as error:
        _logger.warning(
            "rageval-hooks: an OTLP endpoint is set, but its exporter is not installed (%s): "
            'pip install "rageval-hooks[otlp]"',
            error,
        )
        return None


def _connect() -> OwnProvider:
    protocol = next((value for name in _PROTOCOLS if (value := os.environ.get(name))), "http/protobuf")
    if protocol.strip() == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return OwnProvider(GrpcExporter())
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

    if any(os.environ.get(name) for name in _CREDENTIAL_PROVIDERS):
        # The exporter then makes its own session, with credentials. A refusal cannot be told from a loss.
        return OwnProvider(HttpExporter())
    try:
        import requests
    except ImportError:  # the exporter has another transport
        return OwnProvider(HttpExporter())
    response = LastResponse()
    session = requests.Session()
    session.hooks["response"].append(response.read)
    return OwnProvider(HttpExporter(session=session), response)


def _queue_size() -> int:
    try:
        return max(1, int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "")))
    except ValueError:
        return _DEFAULT_QUEUE
