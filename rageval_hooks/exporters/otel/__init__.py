"""Turns and scores as OpenTelemetry spans."""

from rageval_hooks.exporters.otel.exporter import OtelExporter

__all__ = ["OtelExporter"]
