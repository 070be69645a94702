"""A worker process: computes local metrics for the records that it reads, until its input ends.

The parent starts it as a separate program and not by ``multiprocessing``, which would import the user's script again
or copy a process with threads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO

from rageval_hooks.offline.jobs.collection import rare_collection
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.record_scorer import RecordScorer
from rageval_hooks.offline.scoring.summary import Counts
from rageval_hooks.offline.scoring.worker_protocol import Reply, Task, WorkerSetup
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import create_metric
from rageval_hooks.online.thresholds import Thresholds

__all__ = ["main"]


def main() -> None:
    """Answer tasks until the parent closes the input, which it also does when it is killed."""
    tasks, replies = _take_pipes()
    setup = WorkerSetup.model_validate_json(tasks.readline())
    scorer = _scorer(setup)
    try:
        with rare_collection():
            _answer(tasks, replies, scorer)
    except BrokenPipeError:
        # The parent was killed. Python would try to write the rest once more at exit, and complain.
        os._exit(1)


def _answer(tasks: IO[bytes], replies: IO[bytes], scorer: RecordScorer) -> None:
    for line in tasks:
        scored = scorer.score(Task.model_validate_json(line).records)
        for text in (_head(scored), *(record.to_json() for record in scored)):
            replies.write(text.encode() + b"\n")
        replies.flush()


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the pipes from and to the parent, and keep everything else in this process from using them."""
    tasks, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    # A metric may print: that goes to standard error.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return tasks, replies


def _scorer(setup: WorkerSetup) -> RecordScorer:
    from rageval_hooks.models import Models

    metrics = [create_metric(spec) for spec in setup.metrics]
    engine = Engine(metrics, Models(setup.models), thresholds=Thresholds(setup.thresholds))
    return RecordScorer(engine, setup.replaced, setup.details)


def _head(records: Sequence[Record]) -> str:
    """Return the first line of the reply to a task."""
    counts = Counts()
    for record in records:
        counts.add(record.results)
    return Reply(records=len(records), results=dict(counts.results), names=tuple(counts.names)).model_dump_json()
