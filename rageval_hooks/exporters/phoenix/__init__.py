"""Scores as Phoenix annotations."""

from rageval_hooks.exporters.phoenix.exporter import PhoenixAutoExporter, PhoenixExporter

__all__ = ["PhoenixAutoExporter", "PhoenixExporter"]
