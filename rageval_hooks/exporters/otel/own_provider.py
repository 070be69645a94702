"""Providers of our own, for applications that set an OTLP endpoint in the environment but no provider.

The SDK's batch processors discard the results of their exporters and ignore the timeout of ``force_flush``. Here every
span and log event is counted until its fate is known, so that flush and shutdown can tell the truth.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from rageval_hooks.exporters.phoenix import phoenix_collector, phoenix_resource
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.runtime.sizes import size_of
from rageval_hooks.runtime.tracing import global_logger_provider, global_meter_provider, global_tracer_provider

_logger = logging.getLogger(__name__)

_DEFAULT_QUEUE = 2048
_MAX_BYTES = 128 * 2**20
_COUNTED = ("delivered", "rejected", "lost", "dropped", "dropped_by_size")

_ATTRIBUTE_LIMITS = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
# A retriever span with 100 passages has some 400 attributes; the SDK's default of 128 would lose most of them.
_MOST_ATTRIBUTES = 4096


class CountedExporter:
    """An exporter of the SDK, with a count of what became of each item. Processors and readers use it as the exporter.

    A full queue refuses new items. The SDK would drop the oldest without telling, and their number would be unknown.

    Args:
        name: what is counted.
        capacity: items that may wait.

    Attributes:
        exporter: sends a batch.
    """

    exporter: Any

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.reset_after_fork()
        reset_in_child(self)
        PROCESS_TOTALS.watch(self)

    def reset_after_fork(self) -> None:
        """Start from zero: what the parent had queued is still the parent's."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._queued = 0
        self._queued_bytes = 0.0
        self._forget_response()

    @property
    def pending(self) -> int:
        """How many items wait."""
        return self._queued

    @property
    def _preferred_temporality(self) -> Any:  # a reader of metrics takes these two from its exporter
        return self.exporter._preferred_temporality

    @property
    def _preferred_aggregation(self) -> Any:
        return self.exporter._preferred_aggregation

    def accept(self, size: int = 0) -> bool:
        """Count an item as queued. Returns False, and counts it as dropped, if the queue is full.

        Args:
            size: about how many bytes it takes in memory. One item is always taken, whatever its size.
        """
        with self._lock:
            is_too_large = self._queued > 0 and self._queued_bytes + size > _MAX_BYTES
            if self._queued < self.capacity and not is_too_large:
                self._queued += 1
                self._queued_bytes += size
                return True
            self._counts["dropped"] += 1
            self._counts["dropped_by_size"] += self._queued < self.capacity
        PROCESS_TOTALS.add_dropped(self.name)
        return False

    def export(self, batch: Any, *_: Any, **__: Any) -> Any:
        """Send a batch, count what became of it, and return the exporter's own result."""
        if isinstance(batch, Sequence):
            amount = len(batch)
        else:
            # The current value of every metric: exports are counted, not measurements.
            amount = 1
            self.accept()
        self._forget_response()
        # Counted even if the exporter raises: items of unknown fate would never leave the count.
        success = False
        try:
            result = self.exporter.export(batch)
            success = result.name == "SUCCESS"
        finally:
            # A collector that refuses the data itself would refuse it again.
            is_refused = 400 <= self._status < 500 and self._status not in (408, 425, 429)
            rejected = min(self._rejected, amount) if success else amount if is_refused else 0
            self._settle("rejected", rejected)
            self._settle("delivered" if success else "lost", amount - rejected)
        return result

    def read_response(self, response: Any, *_: Any, **__: Any) -> None:
        """Keep the two details of the collector's answer that the SDK's exporters hide: a hook of ``requests``."""
        self._status = response.status_code
        if response.ok and response.content:
            # The answers for logs and for metrics have the same fields with the same numbers.
            from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

            try:
                answer = ExportTraceServiceResponse.FromString(response.content)
            except Exception:  # some collectors answer with JSON or a page
                return
            self._rejected = int(answer.partial_success.rejected_spans)

    def force_flush(self, *_: Any, **__: Any) -> bool:
        """Do nothing: the exporter keeps nothing back."""
        return True

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Close the exporter."""
        self.exporter.shutdown()

    def give_up(self) -> int:
        """Count everything that still waits as lost; returns how much that was."""
        with self._lock:
            lost, self._queued, self._queued_bytes = self._queued, 0, 0.0
            self._counts["lost"] += lost
        return lost

    def stats(self) -> dict[str, int]:
        """Return the counts of items: queued, delivered, rejected, lost and dropped."""
        with self._lock:
            return {"queued": self._queued, **{name: self._counts[name] for name in _COUNTED}}

    def _forget_response(self) -> None:
        self._status = self._rejected = 0

    def _settle(self, fate: str, amount: int) -> None:
        with self._lock:
            # After `give_up` an answer may still come for items that were counted as lost.
            amount = min(amount, self._queued)
            # The sizes of single items are not kept: those that leave count with the mean.
            self._queued_bytes -= self._queued_bytes * amount / max(1, self._queued)
            self._queued -= amount
            self._counts[fate] += amount


# --------------------------------------------------------------------------- one provider per signal


def _tracer_provider(sent: CountedExporter) -> TracerProvider:
    class CountedSpans(BatchSpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            # Our own limit, because the SDK's queue drops its oldest spans and does not say so.
            is_sampled = span.context is not None and span.context.trace_flags.sampled
            if is_sampled and sent.accept(size_of(dict(span.attributes or {}))):
                super().on_end(span)

    limited = any(name in os.environ for name in _ATTRIBUTE_LIMITS)
    limits = SpanLimits() if limited else SpanLimits(max_span_attributes=_MOST_ATTRIBUTES)
    resource = Resource.create(phoenix_resource() if phoenix_collector() is not None else {})
    provider = TracerProvider(span_limits=limits, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(CountedSpans(cast("SpanExporter", sent), max_queue_size=sent.capacity))
    return provider


def _logger_provider(sent: CountedExporter) -> Any:
    # Imported here, as for metrics: each is a part of the SDK that few applications use.
    from opentelemetry.sdk._logs import LoggerProvider, ReadWriteLogRecord
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter

    class CountedLogs(BatchLogRecordProcessor):
        def on_emit(self, log_record: ReadWriteLogRecord) -> None:
            if sent.accept(size_of(dict(log_record.log_record.attributes or {}))):
                super().on_emit(log_record)

    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(CountedLogs(cast("LogRecordExporter", sent), max_queue_size=sent.capacity))
    return provider


def _meter_provider(sent: CountedExporter) -> Any:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader

    return MeterProvider([PeriodicExportingMetricReader(cast("MetricExporter", sent))], shutdown_on_exit=False)


@dataclass(frozen=True, kw_only=True)
class OtlpSignal:
    """A signal: which variables configure it, and which exporter sends it.

    Attributes:
        what: what it consists of, for log lines.
        variable: the signal's name in variables, as in ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``.
        module: the exporter's module, below ``opentelemetry.exporter.otlp.proto.http`` or ``.grpc``.
        exporter: the exporter's class.
        queue: the name of its queue in metrics.
        capacity: the variable with the number of items that may wait.
        global_provider: returns the application's provider.
        make: makes a provider.
    """

    what: str
    variable: str
    module: str
    exporter: str
    queue: str
    capacity: str
    global_provider: Callable[[], Any]
    make: Callable[[CountedExporter], Any]

    @property
    def endpoint(self) -> str | None:
        """The endpoint that a variable names; None without one.

        The variable for all signals counts for traces only: what listens there is often a Phoenix or a Jaeger, which
        would refuse everything else.
        """
        names = [f"OTEL_EXPORTER_OTLP_{self.variable}_ENDPOINT"]
        if self.variable == "TRACES":
            names.append("OTEL_EXPORTER_OTLP_ENDPOINT")
        return next(filter(None, map(os.environ.get, names)), None)

    @property
    def configured(self) -> bool:
        """True if a variable of OTLP or of Phoenix names an endpoint."""
        return self.endpoint is not None or (self.variable == "TRACES" and phoenix_collector() is not None)


TRACES = OtlpSignal(
    what="spans",
    variable="TRACES",
    module="trace_exporter",
    exporter="OTLPSpanExporter",
    queue="otlp-spans",
    capacity="OTEL_BSP_MAX_QUEUE_SIZE",
    global_provider=global_tracer_provider,
    make=_tracer_provider,
)
LOGS = OtlpSignal(
    what="log events",
    variable="LOGS",
    module="_log_exporter",
    exporter="OTLPLogExporter",
    queue="otlp-logs",
    capacity="OTEL_BLRP_MAX_QUEUE_SIZE",
    global_provider=global_logger_provider,
    make=_logger_provider,
)
METRICS = OtlpSignal(
    what="metric exports",
    variable="METRICS",
    module="metric_exporter",
    exporter="OTLPMetricExporter",
    queue="otlp-metrics",
    capacity="",
    global_provider=global_meter_provider,
    make=_meter_provider,
)


class OwnProvider(NamedTuple):
    """A provider of our own and the exporter that counts what became of what it sent.

    The worker's drain at exit shuts it down. A second exit handler, the SDK's, could take longer than allowed.
    """

    provider: Any
    sent: CountedExporter


_made: dict[OtlpSignal, OwnProvider | None] = {}


def own_provider(signal: OtlpSignal) -> OwnProvider | None:
    """Return our provider for a signal, always the same one; None if its exporter is not installed."""
    if signal not in _made:
        sent = _counted_exporter(signal)
        _made[signal] = None if sent is None else OwnProvider(signal.make(sent), sent)
    return _made[signal]


def forget_own_provider(signal: OtlpSignal) -> None:
    """Make the next caller create a new provider: the present one is shut down."""
    _made.pop(signal, None)


def _counted_exporter(signal: OtlpSignal) -> CountedExporter | None:
    try:
        capacity = max(1, int(os.environ.get(signal.capacity, "")))
    except ValueError:
        capacity = _DEFAULT_QUEUE
    protocols = (f"OTEL_EXPORTER_OTLP_{signal.variable}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    is_grpc = next(filter(None, map(os.environ.get, protocols)), "").strip() == "grpc"
    sent = CountedExporter(signal.queue, capacity)
    options: dict[str, Any] = {}
    place = phoenix_collector()
    if signal.endpoint is None and place is not None:
        options = {"endpoint": place.url, "headers": dict(place.headers)}
    try:
        if not is_grpc:
            # Over gRPC a refusal cannot be told from a loss.
            import requests

            options["session"] = requests.Session()
            options["session"].hooks["response"].append(sent.read_response)
        transport = "grpc" if is_grpc else "http"
        module = import_module(f"opentelemetry.exporter.otlp.proto.{transport}.{signal.module}")
        sent.exporter = getattr(module, signal.exporter)(**options)
    except ImportError as error:
        _logger.warning(
            "rageval-hooks: an OTLP endpoint is set, but its exporter is not installed (%s): "
            'pip install "rageval-hooks[otlp]" [RAGEVAL-102]',
            error,
        )
        return None
    return sent
