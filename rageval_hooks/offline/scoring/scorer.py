"""Computes local metrics for records, without an event loop: in this process, or in another one from a set-up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

from rageval_hooks.metrics.base import Metric
from rageval_hooks.models import Models
from rageval_hooks.offline.answerability import UNANSWERABLE
from rageval_hooks.offline.records.record import Record
from rageval_hooks.online.engine import Engine, Thresholds
from rageval_hooks.online.job import MetricSpec, create_metric, describe_metric
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Result, Score, Skipped, verdict_first
from rageval_hooks.settings import ModelSettings

Details = Literal["none", "failed", "all"]
"""Which scores keep their explanation and metadata: none, those with the label ``fail``, or all."""

# Of the texts that are scored together. The words of so many are kept from one metric to the next.
_MOST_CHARACTERS = 25_000


class RecordScorer:
    """Computes metrics for records, on the thread that calls it.

    Args:
        engine: has the metrics and their models. None of the metrics asks a judge.
        replaced: names of metrics and scores whose earlier results a record loses.
        details: which scores keep their explanation and metadata.
    """

    def __init__(self, engine: Engine, replaced: Collection[str], details: Details) -> None:
        self._engine = engine
        self._replaced = frozenset(replaced)
        self._details = details

    def score(self, records: Sequence[Record]) -> list[Record]:
        """Return records with their results."""
        return [scored for group in _groups(records) for scored in self._score_together(group)]

    def _score_together(self, records: Sequence[Record]) -> Iterator[Record]:
        skipped = [skipped_metrics(record, self._engine.metrics) for record in records]
        found = self._engine.evaluate_batch([record.turn for record in records], skipped)
        for record, results in zip(records, found, strict=True):
            kept = [result for result in record.results if self._replaced.isdisjoint((result.metric, result.name))]
            computed = [with_details(result, self._details) for result in results]
            yield record.model_copy(update={"results": verdict_first((*kept, *computed))})


def _groups(records: Iterable[Record]) -> Iterator[Sequence[Record]]:
    """Yield the records in groups whose texts are short enough together; a long one is alone."""
    group: list[Record] = []
    size = 0
    for record in records:
        own = sum(map(len, record.turn.texts()))
        if group and size + own > _MOST_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(record)
        size += own
    if group:
        yield group


def skipped_metrics(record: Record, metrics: Iterable[Metric]) -> dict[str, tuple[Skipped, ...]]:
    """Return the results of the metrics that need an answerable question, by metric; none for an answerable one."""
    if record.answerable:
        return {}
    needing = [metric.name for metric in metrics if metric.answerable_only]
    return {name: (Skipped(name=name, metric=name, reason=UNANSWERABLE),) for name in needing}


def with_details(result: Result, details: Details) -> Result:
    """Return a result with as much detail as is wanted. Skipped and failed results always keep their reason."""
    is_kept = details == "all" or (details == "failed" and getattr(result, "label", None) == "fail")
    if is_kept or not isinstance(result, Score):
        return result
    return result.model_copy(update={"explanation": None, "metadata": {}})


class ScorerSetup(Data):
    """A scorer as data, from which another process makes its own.

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

    @classmethod
    def of(cls, pipeline: Pipeline, replaced: Iterable[str], details: Details) -> ScorerSetup:
        """Return the set-up for the metrics of a pipeline that another process can compute.

        Judge metrics stay in this process, so that budget and limits hold for all of them together. So do metrics that
        exist in this process only, such as functions of a notebook.
        """
        specs = [describe_metric(metric) for metric in pipeline.metrics if not metric.asks_judge]
        # What is redacted, and how, may be a function of this process. Without it, explanations would hold secrets.
        is_possible = not pipeline.privacy.active
        return cls(
            metrics=tuple(spec for spec in specs if spec.reference is not None and is_possible),
            models=pipeline.settings.models,
            thresholds=dict(pipeline.settings.thresholds),
            replaced=frozenset(replaced),
            details=details,
        )

    @property
    def names(self) -> frozenset[str]:
        """The names of the metrics."""
        return frozenset(metric.name for metric in self.metrics)

    def scorer(self) -> RecordScorer:
        """Return the scorer."""
        metrics = [create_metric(spec) for spec in self.metrics]
        engine = Engine(metrics, Models(self.models), thresholds=Thresholds(self.thresholds))
        return RecordScorer(engine, self.replaced, self.details)
