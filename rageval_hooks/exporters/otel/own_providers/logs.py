"""A logger provider of our own, which counts what becomes of its log events."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord, ReadWriteLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult

from rageval_hooks.exporters.otel.own_providers.otlp import LOGS, Connection, connect
from rageval_hooks.exporters.otel.own_providers.provider import OwnProvider, queue_size
from rageval_hooks.exporters.otel.own_providers.tally import Tally
from rageval_hooks.runtime.sizes import size_of

__all__ = ["own_logger_provider"]


@cache
def own_logger_provider() -> OwnProvider[LoggerProvider] | None:
    """Return the provider for ``OTEL_EXPORTER_OTLP_LOGS_ENDPOINT``; None if it is not set."""
    connection = connect(LOGS)
    if connection is None:
        return None
    tally = Tally("otlp-logs", queue_size("OTEL_BLRP_MAX_QUEUE_SIZE"))
    # The drain at exit shuts this provider down; a second exit handler could take longer than allowed.
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(_CountedProcessor(connection, tally))
    return OwnProvider(provider, tally)


class _CountedProcessor(BatchLogRecordProcessor):
    """The SDK's batch processor with a count of every event's fate."""

    def __init__(self, connection: Connection, tally: Tally) -> None:
        self._tally = tally
        super().__init__(_CountedExporter(connection, tally), max_queue_size=tally.capacity)

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        # Our own limit, because the SDK's queue drops its oldest events and does not say so.
        if self._tally.accept(size_of(dict(log_record.log_record.attributes or {}))):
            super().on_emit(log_record)


class _CountedExporter(LogRecordExporter):
    def __init__(self, connection: Connection, tally: Tally) -> None:
        self._connection = connection
        self._tally = tally

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        result: LogRecordExportResult = self._connection.send(batch, len(batch), self._tally)
        return result

    def shutdown(self) -> None:
        self._connection.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True  # the exporter keeps nothing back
