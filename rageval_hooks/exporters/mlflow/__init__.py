"""Scores as MLflow's assessments."""

from rageval_hooks.exporters.mlflow.exporter import MlflowAutoExporter, MlflowExporter

__all__ = ["MlflowAutoExporter", "MlflowExporter"]
