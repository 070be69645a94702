"""Providers of our own, for applications that set an OTLP endpoint in the environment but no provider.

The SDK's batch processors discard the results of their exporters and ignore the timeout of ``force_flush``. Here every
span and log event is counted until its fate is known, so that flush and shutdown can tell the truth.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from rageval_hooks.exporters.phoenix import phoenix_collector
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.runtime.sizes import size_of

if TYPE_CHECKING:
    import requests
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = [
    "LOGS",
    "METRICS",
    "TRACES",
    "OtlpSignal",
    "OwnProvider",
    "forget_own_provider",
    "own_logger_provider",
    "own_meter_provider",
    "own_tracer_provider",
]

_logger = logging.getLogger(__name__)

_DEFAULT_QUEUE = 2048
_MAX_BYTES = 128 * 2**20
_METRIC_EXPORTS_AT_ONCE = 2  # the periodic one, and that of a flush
_COUNTED = ("delivered", "rejected", "lost", "dropped", "dropped_by_size")

_ATTRIBUTE_LIMITS = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
# A retriever span with 100 passages has some 400 attributes; the SDK's default of 128 would lose most of them.
_MOST_ATTRIBUTES = 4096


# --------------------------------------------------------------------------- the endpoints of the standard variables


@dataclass(frozen=True, kw_only=True)
class OtlpSignal:
    """A signal: which variables configure it, and which exporter sends it.

    Attributes:
        variable: the signal's name in variables, as in ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``.
        endpoints: the variables that turn it on.
        module: the exporter's module, below ``opentelemetry.exporter.otlp.proto.http`` or ``.grpc``.
        exporter: the exporter's class.
    """

    variable: str
    endpoints: tuple[str, ...]
    module: str
    exporter: str

    @property
    def configured(self) -> bool:
        """True if a variable names an endpoint."""
        by_variable = any(os.environ.get(name) for name in self.endpoints)
        return by_variable or (self.variable == "TRACES" and phoenix_collector() is not None)


TRACES = OtlpSignal(
    variable="TRACES",
    endpoints=("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    module="trace_exporter",
    exporter="OTLPSpanExporter",
)
# The endpoint for all signals is not among these: what listens there is often a Phoenix or a Jaeger, which take traces
# only and would refuse everything else.
LOGS = OtlpSignal(
    variable="LOGS",
    endpoints=("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",),
    module="_log_exporter",
    exporter="OTLPLogExporter",
)
METRICS = OtlpSignal(
    variable="METRICS",
    endpoints=("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",),
    module="metric_exporter",
    exporter="OTLPMetricExporter",
)


class Connection:
    """An exporter of the SDK that counts what became of what it sent. Processors and readers use it as the exporter.

    Args:
        exporter: sends a batch.
        tally: counts the items of batches.
        response: what the collector answered to the exporter; None if that is unknown, as over gRPC.
    """

    def __init__(self, exporter: Any, tally: DeliveryTally, response: LastResponse | None = None) -> None:
        self._exporter = exporter
        self.tally = tally
        self._response = response
        # A reader of metrics takes these from its exporter, which has read them from the standard variables.
        self._preferred_temporality = getattr(exporter, "_preferred_temporality", None)
        self._preferred_aggregation = getattr(exporter, "_preferred_aggregation", None)

    def export(self, batch: Any, *_: Any, **__: Any) -> Any:
        """Send a batch, count what became of it, and return the exporter's own result."""
        if isinstance(batch, Sequence):
            amount = len(batch)
        else:
            # The current value of every metric: exports are counted, not measurements.
            amount = 1
            self.tally.accept()
        if self._response is not None:
            self._response.clear()
        # Reported even if the exporter raises: items of unknown fate would never leave the count.
        success = False
        try:
            result = self._exporter.export(batch)
            success = result.name == "SUCCESS"
        finally:
            self.tally.report(amount, success, self._response)
        return result

    def force_flush(self, *_: Any, **__: Any) -> bool:
        """Do nothing: the exporter keeps nothing back."""
        return True

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Close the exporter."""
        self._exporter.shutdown()


def _connect(signal: OtlpSignal, what: str, capacity: int) -> Connection | None:
    """Return the exporter for a signal's endpoint; None without an endpoint, or if it is not installed.

    Args:
        signal: spans, log events or metrics.
        what: the name of the queue, for metrics.
        capacity: items that may wait.
    """
    if not signal.configured:
        return None
    try:
        if _protocol(signal) == "grpc":
            return Connection(_exporter_class("grpc", signal)(), DeliveryTally(what, capacity))
        http_exporter = _exporter_class("http", signal)
        options: dict[str, Any] = {}
        if not any(os.environ.get(name) for name in signal.endpoints) and (place := phoenix_collector()) is not None:
            options = {"endpoint": place.url, "headers": dict(place.headers)}
        prefix = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_"
        if any(os.environ.get(f"{prefix}{name}CREDENTIAL_PROVIDER") for name in (f"{signal.variable}_", "")):
            # The exporter then makes its own session, with credentials. A refusal cannot be told from a loss.
            return Connection(http_exporter(**options), DeliveryTally(what, capacity))
        try:
            import requests
        except ImportError:  # the exporter has another transport
            return Connection(http_exporter(**options), DeliveryTally(what, capacity))
        response = LastResponse()
        session = requests.Session()
        session.hooks["response"].append(response.read)
        return Connection(http_exporter(session=session, **options), DeliveryTally(what, capacity), response)
    except ImportError as error:
        _logger.warning(
            "rageval-hooks: an OTLP endpoint is set, but its exporter is not installed (%s): "
            'pip install "rageval-hooks[otlp]" [RAGEVAL-102]',
            error,
        )
        return None


def _exporter_class(transport: str, signal: OtlpSignal) -> Any:
    return getattr(import_module(f"opentelemetry.exporter.otlp.proto.{transport}.{signal.module}"), signal.exporter)


def _protocol(signal: OtlpSignal) -> str:
    for name in (f"OTEL_EXPORTER_OTLP_{signal.variable}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if value := os.environ.get(name):
            return value.strip()
    return "http/protobuf"


class LastResponse:
    """The collector's answer to the latest request over HTTP.

    The SDK's exporters reduce an answer to success or failure. A hook on their session keeps the two details that tell
    a rejected item from a lost one.

    Attributes:
        status: the HTTP status; None if there was no answer.
        rejected: items that the collector rejected in a partial success.
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
        self.rejected = _rejected_items(response.content) if response.ok else 0

    @property
    def refused(self) -> bool:
        """True if the collector refused the data itself: sending it again would not help."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in (408, 425, 429)


def _rejected_items(content: bytes) -> int:
    if not content:
        return 0
    # The answers for logs and for metrics have the same fields with the same numbers.
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        answer = ExportTraceServiceResponse.FromString(content)
    except Exception:  # some collectors answer with JSON or a page
        return 0
    return int(answer.partial_success.rejected_spans)


# --------------------------------------------------------------------------- counts


class DeliveryTally:
    """Counts items from the moment they are queued until their fate is known.

    A full queue refuses new items. The SDK would drop the oldest without telling, and their number would be unknown.

    Args:
        name: what is counted.
        capacity: items that may wait.
    """

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

    @property
    def pending(self) -> int:
        """How many items wait."""
        return self._queued

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

    def report(self, amount: int, success: bool, response: LastResponse | None) -> None:
        """Count what an exporter did with a batch.

        Args:
            amount: items in the batch.
            success: True if the exporter said so.
            response: what the collector answered; None if that is unknown, as over gRPC.
        """
        if success:
            rejected = min(response.rejected, amount) if response is not None else 0
            self._settle("rejected", rejected)
            self._settle("delivered", amount - rejected)
        elif response is not None and response.refused:
            self._settle("rejected", amount)
        else:
            self._settle("lost", amount)

    def _settle(self, fate: Literal["delivered", "rejected", "lost"], amount: int) -> None:
        """Count what became of queued items."""
        with self._lock:
            # After `give_up` an answer may still come for items that were counted as lost.
            amount = min(amount, self._queued)
            # The sizes of single items are not kept: those that leave count with the mean.
            self._queued_bytes -= self._queued_bytes * amount / max(1, self._queued)
            self._queued -= amount
            self._counts[fate] += amount

    def give_up(self) -> int:
        """Count everything that still waits as lost; returns how much that was."""
        with self._lock:
            lost, self._queued, self._queued_bytes = self._queued, 0, 0.0
            self._counts["lost"] += lost
        return lost

    def stats(self) -> dict[str, int]:
        """Return the counts."""
        with self._lock:
            return {"queued": self._queued, **{name: self._counts[name] for name in _COUNTED}}


def _queue_size(variable: str) -> int:
    """Return the size of a batch processor's queue: what a standard variable says, or the standard's default."""
    try:
        return max(1, int(os.environ.get(variable, "")))
    except ValueError:
        return _DEFAULT_QUEUE


# --------------------------------------------------------------------------- providers

Provider = TypeVar("Provider")


class OwnProvider(Generic[Provider]):
    """A provider of our own and what became of what it sent.

    The worker's drain at exit shuts it down. A second exit handler, the SDK's, could take longer than allowed.

    Args:
        provider: writes spans, log events or metrics.
        tally: counts them.
    """

    def __init__(self, provider: Provider, tally: DeliveryTally) -> None:
        self.provider = provider
        self._tally = tally

    def give_up(self) -> int:
        """Count the items that still wait as lost; returns how many there are."""
        return self._tally.give_up()

    def stats(self) -> Mapping[str, int]:
        """Return the counts of items: queued, delivered, rejected, lost and dropped."""
        return self._tally.stats()


def forget_own_provider(own: OwnProvider[Any]) -> None:
    """Make the next caller create a new provider: this one is shut down."""
    for make in (own_tracer_provider, own_logger_provider, own_meter_provider):
        if make.cache_info().currsize and make() is own:
            make.cache_clear()


@cache
def own_tracer_provider() -> OwnProvider[TracerProvider] | None:
    """Return the provider for the OTLP endpoint of the standard variables, or of Phoenix's; None if none is named."""
    connection = _connect(TRACES, "otlp-spans", _queue_size("OTEL_BSP_MAX_QUEUE_SIZE"))
    if connection is None:
        return None
    limited = any(name in os.environ for name in _ATTRIBUTE_LIMITS)
    limits = SpanLimits() if limited else SpanLimits(max_span_attributes=_MOST_ATTRIBUTES)
    place = phoenix_collector()
    resource = Resource.create({} if place is None else place.resource)
    provider = TracerProvider(span_limits=limits, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(_CountedSpans(connection))
    return OwnProvider(provider, connection.tally)


class _CountedSpans(BatchSpanProcessor):
    """The SDK's batch processor with a count of every span's fate."""

    def __init__(self, connection: Connection) -> None:
        self._tally = connection.tally
        super().__init__(cast("SpanExporter", connection), max_queue_size=connection.tally.capacity)

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        # Our own limit, because the SDK's queue drops its oldest spans and does not say so.
        if self._tally.accept(size_of(dict(span.attributes or {}))):
            super().on_end(span)


@cache
def own_logger_provider() -> OwnProvider[LoggerProvider] | None:
    """Return the provider for ``OTEL_EXPORTER_OTLP_LOGS_ENDPOINT``; None if it is not set."""
    connection = _connect(LOGS, "otlp-logs", _queue_size("OTEL_BLRP_MAX_QUEUE_SIZE"))
    return None if connection is None else OwnProvider(_logger_provider(connection), connection.tally)


def _logger_provider(connection: Connection) -> LoggerProvider:
    # Imported here, as for metrics: each is a part of the SDK that few applications use.
    from opentelemetry.sdk._logs import LoggerProvider, ReadWriteLogRecord
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter

    class CountedLogs(BatchLogRecordProcessor):
        def on_emit(self, log_record: ReadWriteLogRecord) -> None:
            if connection.tally.accept(size_of(dict(log_record.log_record.attributes or {}))):
                super().on_emit(log_record)

    provider = LoggerProvider(shutdown_on_exit=False)
    processor = CountedLogs(cast("LogRecordExporter", connection), max_queue_size=connection.tally.capacity)
    provider.add_log_record_processor(processor)
    return provider


@cache
def own_meter_provider() -> OwnProvider[MeterProvider] | None:
    """Return the provider for ``OTEL_EXPORTER_OTLP_METRICS_ENDPOINT``; None if it is not set."""
    connection = _connect(METRICS, "otlp-metrics", _METRIC_EXPORTS_AT_ONCE)
    return None if connection is None else OwnProvider(_meter_provider(connection), connection.tally)


def _meter_provider(connection: Connection) -> MeterProvider:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(cast("MetricExporter", connection))
    return MeterProvider([reader], shutdown_on_exit=False)
