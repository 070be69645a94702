"""A meter provider of our own, which counts what becomes of its exports."""

from __future__ import annotations

from functools import cache
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)

from rageval_hooks.exporters.otel.own_providers.otlp import METRICS, Connection, connect
from rageval_hooks.exporters.otel.own_providers.provider import OwnProvider
from rageval_hooks.exporters.otel.own_providers.tally import Tally

__all__ = ["own_meter_provider"]

_EXPORTS_AT_ONCE = 2
"""The periodic one, and that of a flush."""


@cache
def own_meter_provider() -> OwnProvider[MeterProvider] | None:
    """Return the provider for ``OTEL_EXPORTER_OTLP_METRICS_ENDPOINT``; None if it is not set."""
    connection = connect(METRICS)
    if connection is None:
        return None
    tally = Tally("otlp-metrics", _EXPORTS_AT_ONCE)
    reader = PeriodicExportingMetricReader(_CountedExporter(connection, tally))
    # The drain at exit shuts this provider down; a second exit handler could take longer than allowed.
    return OwnProvider(MeterProvider([reader], shutdown_on_exit=False), tally)


class _CountedExporter(MetricExporter):
    """Counts exports, not measurements: each one sends the current value of every metric."""

    def __init__(self, connection: Connection, tally: Tally) -> None:
        inner = connection.exporter
        # The reader takes these from its exporter, which has read them from the standard variables.
        super().__init__(inner._preferred_temporality, inner._preferred_aggregation)
        self._connection = connection
        self._tally = tally

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any) -> MetricExportResult:
        self._tally.accept()
        result: MetricExportResult = self._connection.send(metrics_data, 1, self._tally)
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True  # the exporter keeps nothing back

    def shutdown(self, timeout_millis: float = 30_000, **options: Any) -> None:
        self._connection.exporter.shutdown()
