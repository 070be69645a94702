"""The messages between the scoring process and its workers: lines of JSON over pipes."""

from __future__ import annotations

from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.detail import Details
from rageval_hooks.online.job import MetricSpec
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.settings import ModelSettings

__all__ = ["Reply", "Task", "WorkerSetup"]


class WorkerSetup(Data):
    """The set-up of a worker, which it gets before its first task.

    Attributes:
        metrics: the metrics that it computes.
        models: the local models.
        thresholds: bounds of labels by score name.
        replaced: names of metrics and scores whose earlier results a record loses.
        details: which scores keep their explanation and metadata.
    """

    metrics: tuple[MetricSpec, ...]
    models: ModelSettings
    thresholds: dict[str, float | None]
    replaced: frozenset[str]
    details: Details

    @property
    def names(self) -> frozenset[str]:
        """The names of the metrics."""
        return frozenset(metric.name for metric in self.metrics)


class Task(Data):
    """Records to score."""

    records: tuple[Record, ...]


class Reply(Data):
    """The answer to a task: its line is followed by the scored records, one per line.

    Attributes:
        records: number of records that follow.
        results: number of results of each status.
        names: names of the scores of whole turns.
    """

    records: int
    results: dict[str, int]
    names: tuple[str, ...]
