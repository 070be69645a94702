"""Metrics that are not computed for questions that the documents do not answer."""

from __future__ import annotations

from collections.abc import Iterable

from rageval_hooks.metrics.base import Metric
from rageval_hooks.offline.answerability import UNANSWERABLE
from rageval_hooks.offline.records.record import Record
from rageval_hooks.score import Skipped

__all__ = ["skipped_metrics"]


def skipped_metrics(record: Record, metrics: Iterable[Metric]) -> dict[str, tuple[Skipped, ...]]:
    """Return the results of the metrics that need an answerable question, by metric; none for an answerable one."""
    if record.answerable:
        return {}
    needing = [metric.name for metric in metrics if metric.answerable_only]
    return {name: (Skipped(name=name, metric=name, reason=UNANSWERABLE),) for name in needing}
