"""Scores as Phoenix annotations."""

from rageval_hooks.exporters.phoenix.exporter import PhoenixExporter

__all__ = ["PhoenixExporter"]
