"""Providers of our own for spans, log events and metrics, which count what becomes of their exports.

The modules ``spans``, ``logs`` and ``metrics`` are imported where they are needed: each imports a part of
OpenTelemetry's SDK that an application may not use.
"""

from rageval_hooks.exporters.otel.own_providers.otlp import LOGS, METRICS, TRACES, OtlpSignal
from rageval_hooks.exporters.otel.own_providers.provider import OwnProvider

__all__ = ["LOGS", "METRICS", "TRACES", "OtlpSignal", "OwnProvider"]
