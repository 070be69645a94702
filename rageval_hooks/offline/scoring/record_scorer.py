"""Computes local metrics for batches of records, without an event loop: in this process or in a worker."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.detail import Details, with_details
from rageval_hooks.offline.scoring.unanswerable import skipped_metrics
from rageval_hooks.online.engine import Engine
from rageval_hooks.score import Result

__all__ = ["RecordScorer"]

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
        return map(self._with_results, records, found)

    def _with_results(self, record: Record, found: Iterable[Result]) -> Record:
        others = [result for result in record.results if self._replaced.isdisjoint((result.metric, result.name))]
        computed = [with_details(result, self._details) for result in found]
        return record.model_copy(update={"results": (*others, *computed)})


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
