"""Computes local metrics for one record after the other, without an event loop: in this process or in a worker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.detail import Details, with_details
from rageval_hooks.offline.scoring.unanswerable import skipped_metrics
from rageval_hooks.online.engine import Engine
from rageval_hooks.score import Result, Skipped

__all__ = ["RecordScorer"]


class RecordScorer:
    """Computes metrics for records, on the thread that calls it.

    Args:
        engine: has the metrics and their models. None of the metrics asks a judge.
        replaced: names of metrics and scores whose earlier results a record loses.
        details: which scores keep their explanation and metadata.
    """

    def __init__(self, engine: Engine, replaced: Collection[str], details: Details) -> None:
        self._engine = engine
        self._metrics = engine.metrics
        self._names = [metric.name for metric in engine.metrics]
        self._replaced = frozenset(replaced)
        self._details = details

    def score(self, record: Record) -> Record:
        """Return a record with its results."""
        analysis = self._engine.analyze(record.turn).patient()
        skipped = skipped_metrics(record, self._metrics)
        wanted = [name for name in self._names if name not in skipped] if skipped else None
        evaluation, _ = self._engine.evaluate_local(self._engine.job(record.turn, wanted), analysis)
        # Skipped ones are at their metric's place.
        found = self._in_order(evaluation.results, skipped) if skipped else evaluation.results
        others = [result for result in record.results if self._replaced.isdisjoint((result.metric, result.name))]
        computed = [with_details(result, self._details) for result in found]
        return record.model_copy(update={"results": (*others, *computed)})

    def _in_order(self, computed: Iterable[Result], skipped: Mapping[str, tuple[Skipped, ...]]) -> tuple[Result, ...]:
        by_metric: dict[str | None, tuple[Result, ...]] = dict(skipped.items())
        for result in computed:
            by_metric[result.metric] = (*by_metric.get(result.metric, ()), result)
        return tuple(chain.from_iterable(by_metric.get(name, ()) for name in self._names))
