"""A worker process: computes local metrics for the records that it reads, until its input ends.

The parent starts it as a separate program and not by ``multiprocessing``, which would import the user's script again
or copy a process with threads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import IO

from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.detail import with_details
from rageval_hooks.offline.scoring.summary import Counts
from rageval_hooks.offline.scoring.unanswerable import skipped_metrics
from rageval_hooks.offline.scoring.worker_protocol import Reply, Task, WorkerSetup
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import create_metric
from rageval_hooks.online.thresholds import Thresholds
from rageval_hooks.score import Result, Skipped

__all__ = ["main"]


def main() -> None:
    """Answer tasks until the parent closes the input, which it also does when it is killed."""
    tasks, replies = _take_pipes()
    setup = WorkerSetup.model_validate_json(tasks.readline())
    scorer = _Scorer(setup)
    try:
        for line in tasks:
            for text in scorer.lines(Task.model_validate_json(line).records):
                replies.write(text.encode() + b"\n")
            replies.flush()
    except BrokenPipeError:
        # The parent was killed. Python would try to write the rest once more at exit, and complain.
        os._exit(1)


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the pipes from and to the parent, and keep everything else in this process from using them."""
    tasks, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # A metric may print: that goes to standard error.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return tasks, replies


class _Scorer:
    """Computes metrics for records. The models are loaded once."""

    def __init__(self, setup: WorkerSetup) -> None:
        from rageval_hooks.models import Models

        self._setup = setup
        self._metrics = [create_metric(spec) for spec in setup.metrics]
        self._engine = Engine(self._metrics, Models(setup.models), thresholds=Thresholds(setup.thresholds))

    def lines(self, records: Iterable[Record]) -> list[str]:
        """Return the reply to a task, line by line."""
        counts = Counts()
        done = [self._scored(record, counts) for record in records]
        reply = Reply(records=len(done), results=dict(counts.results), names=tuple(counts.names))
        return [reply.model_dump_json(), *done]

    def _scored(self, record: Record, counts: Counts) -> str:
        analysis = self._engine.analyze(record.turn)
        analysis.patient()
        skipped = skipped_metrics(record, self._metrics)
        wanted = [metric.name for metric in self._metrics if metric.name not in skipped]
        evaluation, _ = self._engine.evaluate_local(self._engine.job(record.turn, wanted), analysis)
        replaced = self._setup.replaced
        others = [result for result in record.results if replaced.isdisjoint((result.metric, result.name))]
        # Skipped ones are at their metric's place, as without workers.
        found = evaluation.results if not skipped else self._in_order(evaluation.results, skipped)
        computed = [with_details(result, self._setup.details) for result in found]
        results = (*others, *computed)
        counts.add(results)
        return record.model_copy(update={"results": results}).to_json()

    def _in_order(self, computed: Iterable[Result], skipped: Mapping[str, tuple[Skipped, ...]]) -> tuple[Result, ...]:
        by_metric: dict[str | None, tuple[Result, ...]] = dict(skipped.items())
        for result in computed:
            by_metric[result.metric] = (*by_metric.get(result.metric, ()), result)
        return tuple(chain.from_iterable(by_metric.get(metric.name, ()) for metric in self._metrics))
