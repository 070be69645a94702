"""The SDK's OTLP exporters for the endpoints of the standard variables."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rageval_hooks.exporters.otel.own_providers.tally import LastResponse, Tally

__all__ = ["LOGS", "METRICS", "TRACES", "Connection", "OtlpSignal", "connect"]

_logger = logging.getLogger(__name__)


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
        return any(os.environ.get(name) for name in self.endpoints)


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
    """An exporter of the SDK, and what became of what it sent.

    Args:
        exporter: sends a batch.
        response: what the collector answered to the exporter; None if that is unknown, as over gRPC.
    """

    def __init__(self, exporter: Any, response: LastResponse | None = None) -> None:
        self.exporter = exporter
        self._response = response

    def send(self, batch: Any, amount: int, tally: Tally) -> Any:
        """Send a batch, count what became of it, and return the exporter's own result.

        Args:
            batch: what the exporter takes.
            amount: how many items of the tally are in it.
            tally: counts them.
        """
        if self._response is not None:
            self._response.clear()
        # Reported even if the exporter raises: items of unknown fate would never leave the count.
        success = False
        try:
            result = self.exporter.export(batch)
            success = result.name == "SUCCESS"
        finally:
            tally.report(amount, success, self._response)
        return result


def connect(signal: OtlpSignal) -> Connection | None:
    """Return the exporter for a signal's endpoint; None without an endpoint, or if it is not installed."""
    if not signal.configured:
        return None
    try:
        return _connect(signal)
    except ImportError as error:
        _logger.warning(
            "rageval-hooks: an OTLP endpoint is set, but its exporter is not installed (%s): "
            'pip install "rageval-hooks[otlp]" [RAGEVAL-102]',
            error,
        )
        return None


def _connect(signal: OtlpSignal) -> Connection:
    if _protocol(signal) == "grpc":
        return Connection(_exporter_class("grpc", signal)())
    http_exporter = _exporter_class("http", signal)
    if _has_credential_provider(signal):
        # The exporter then makes its own session, with credentials. A refusal cannot be told from a loss.
        return Connection(http_exporter())
    try:
        import requests
    except ImportError:  # the exporter has another transport
        return Connection(http_exporter())
    response = LastResponse()
    session = requests.Session()
    session.hooks["response"].append(response.read)
    return Connection(http_exporter(session=session), response)


def _exporter_class(transport: str, signal: OtlpSignal) -> Any:
    return getattr(import_module(f"opentelemetry.exporter.otlp.proto.{transport}.{signal.module}"), signal.exporter)


def _protocol(signal: OtlpSignal) -> str:
    for name in (f"OTEL_EXPORTER_OTLP_{signal.variable}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if value := os.environ.get(name):
            return value.strip()
    return "http/protobuf"


def _has_credential_provider(signal: OtlpSignal) -> bool:
    prefix = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_"
    names = (f"{prefix}{signal.variable}_CREDENTIAL_PROVIDER", f"{prefix}CREDENTIAL_PROVIDER")
    return any(os.environ.get(name) for name in names)
