"""Computes local metrics for records: on the calling thread, or in worker processes that are fed in small batches.

A worker is a separate program that reads lines of JSON, an array of records each. It replies with their counts, and a
line for each record, scored. ``multiprocessing`` would import the user's script again, which runs it a second time
unless it is guarded, or copy a process with threads.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from pydantic import Field, TypeAdapter

from rageval_hooks.errors import RagevalError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.models import Models
from rageval_hooks.offline.answerability import UNANSWERABLE, verdict_if_unanswerable
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.score_definitions import VERDICTS
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import MetricSpec, create_metric, describe_metric
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.results import Thresholds
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import VERDICT, Result, Score, Skipped, is_about_turn, is_over_budget, metric_of, verdict_first
from rageval_hooks.settings import ModelSettings

Details = Literal["none", "failed", "all"]
"""Which scores keep their explanation and metadata: none, those with the label ``fail``, or all."""

# Of the texts that are scored together. The words of so many are kept from one metric to the next.
_MAX_CHARACTERS = 25_000
# One that is computed, and the next one.
_TASKS_PER_WORKER = 2
# Bytes of a line: a record has a few passages, and a passage may be a book.
_MAX_LINE_LENGTH = 1 << 30
# The modules of a worker are those of this process, wherever they were found.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from rageval_hooks.offline.scoring.workers import main; main()"
)
_RECORDS: TypeAdapter[tuple[Record, ...]] = TypeAdapter(tuple[Record, ...])
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerError(RagevalError):
    """A worker process ended before its work was done."""


# --------------------------------------------------------------------------- on this thread


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

    def score(self, records: Iterable[Record]) -> list[Record]:
        """Return records with their results."""
        # In groups whose texts are short enough together; a long one is alone.
        groups: list[list[Record]] = []
        size = 0
        for record in records:
            own = sum(map(len, record.turn.texts()))
            if not groups or size + own > _MAX_CHARACTERS:
                groups.append([])
                size = 0
            groups[-1].append(record)
            size += own
        scored: list[Record] = []
        for group in groups:
            skipped = [skipped_metrics(record, self._engine.metrics) for record in group]
            found = self._engine.evaluate_batch([record.turn for record in group], skipped)
            scored += map(self.with_results, group, found)
        return scored

    def with_results(self, record: Record, results: Iterable[Result]) -> Record:
        """Return a record with new results, with as much detail as is wanted, behind the earlier ones that it keeps."""
        kept = [result for result in record.results if self._replaced.isdisjoint((result.metric, result.name))]
        if not record.answerable:
            results = [verdict_if_unanswerable(result, record.turn.response) for result in results]
        computed = [with_details(result, self._details) for result in results]
        return record.model_copy(update={"results": verdict_first((*kept, *computed))})


def skipped_metrics(record: Record, metrics: Iterable[Metric]) -> dict[str, tuple[Skipped, ...]]:
    """Return the results of the metrics that need an answerable question, by metric; none for an answerable one."""
    needing = () if record.answerable else [metric.name for metric in metrics if metric.answerable_only]
    return {name: (Skipped(name=name, metric=name, reason=UNANSWERABLE),) for name in needing}


def with_details(result: Result, details: Details) -> Result:
    """Return a result with as much detail as is wanted. Skipped and failed results always keep their reason."""
    is_kept = details == "all" or (details == "failed" and result.label == "fail")
    if is_kept or not isinstance(result, Score):
        return result
    return result.model_copy(update={"explanation": None, "metadata": {}})


class Counts(Data):
    """The results of some records, counted.

    Attributes:
        turns: number of records.
        results: number of results of each status.
        names: names of the scores of whole turns.
        verdicts: number of turns with each verdict: ``good``, ``doubtful``, ``bad``, ``declined``, ``not_evaluable``.
        causes: number of turns with each cause of a verdict.
        why_not: name and reason of the first result that is not a score.
        over_budget: names of the metrics that were skipped because the budget of the judge was used up.
    """

    turns: int = 0
    results: Counter[str] = Field(default_factory=Counter)
    names: frozenset[str] = frozenset()
    verdicts: Counter[str] = Field(default_factory=Counter)
    causes: Counter[str] = Field(default_factory=Counter)
    why_not: str | None = None
    over_budget: frozenset[str] = frozenset()

    @classmethod
    def of(cls, records: Iterable[Record]) -> Counts:
        """Count the results of records."""
        turns, results, names, verdicts, why_not = 0, Counter[str](), set[str](), Counter[str](), None
        over_budget, causes = set[str](), Counter[str]()
        for record in records:
            turns += 1
            for result in record.results:
                results[result.status] += 1
                if result.name == VERDICT and result.label is not None:
                    verdicts[result.label] += 1
                if result.cause is not None:
                    causes[result.cause] += 1
                if not isinstance(result, Score):
                    why_not = why_not or f"{result.name}: {result.reason.removeprefix(f'{result.name}: ')}"
                elif is_about_turn(result):
                    names.add(result.name)
                if is_over_budget(result):
                    over_budget.add(metric_of(result))
        return cls(
            turns=turns,
            results=results,
            names=frozenset(names),
            verdicts=verdicts,
            causes=causes,
            why_not=why_not,
            over_budget=frozenset(over_budget),
        )

    def verdict_line(self) -> str:
        """Return how many turns have which verdict: ``verdict: 31 good (78%), 9 bad (22%); causes: 9 unsupported``."""
        total = self.verdicts.total()
        found = [(name, self.verdicts[name]) for name in VERDICTS if self.verdicts[name]]
        shares = [f"{count} {name.replace('_', ' ')} ({count / total:.0%})" for name, count in found]
        causes = ", ".join(f"{count} {cause}" for cause, count in self.causes.most_common())
        return f"verdict: {', '.join(shares)}" + (f"; causes: {causes}" if causes else "")

    def plus(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(
            turns=self.turns + other.turns,
            results=self.results + other.results,
            names=self.names | other.names,
            verdicts=self.verdicts + other.verdicts,
            causes=self.causes + other.causes,
            why_not=self.why_not or other.why_not,
            over_budget=self.over_budget | other.over_budget,
        )


# --------------------------------------------------------------------------- worker processes


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


class WorkerPool:
    """Worker processes, started once, each with its own models. Needs the event loop in which it was started.

    Attributes:
        capacity: the number of tasks that keep every worker busy.
    """

    def __init__(self, workers: Sequence[Process]) -> None:
        self.capacity = _TASKS_PER_WORKER * len(workers)
        # Each has a lock for its replies, which come in the order of its tasks.
        self._workers = [(worker, asyncio.Lock()) for worker in workers]
        self._free: asyncio.Queue[tuple[Process, asyncio.Lock]] = asyncio.Queue()
        for worker in self._workers * _TASKS_PER_WORKER:
            self._free.put_nowait(worker)

    @classmethod
    async def start(cls, setup: ScorerSetup, number: int) -> WorkerPool:
        """Start workers.

        Args:
            setup: what they compute.
            number: how many.
        """
        threads = str(max(1, (os.cpu_count() or 1) // number))
        workers = []
        for _ in range(number):
            worker = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _PROGRAM,
                json.dumps(sys.path),
                stdin=PIPE,
                stdout=PIPE,
                limit=_MAX_LINE_LENGTH,
                # Models of several processes would otherwise use every core each, and slow each other down.
                env={**dict.fromkeys(_THREADS, threads), **os.environ},
                # Ctrl-C in a terminal reaches every process of its group: the parent ends its workers itself.
                start_new_session=True,
            )
            _send(worker, setup.model_dump_json())
            workers.append(worker)
        return cls(workers)

    async def score(self, records: Sequence[Record]) -> tuple[Counts, list[bytes]]:
        """Have records scored by the worker that has least to do, and return them as lines of JSON.

        Raises:
            WorkerError: the worker ended.
        """
        worker, replies = free = await self._free.get()
        try:
            _send(worker, f"[{','.join(record.to_json() for record in records)}]")
            # Whoever sends first is the first to get the lock, and reads the first reply.
            async with replies:
                counts = Counts.model_validate_json(await _line(worker))
                return counts, [await _line(worker) for _ in records]
        finally:
            self._free.put_nowait(free)

    async def close(self) -> None:
        """End the workers. One that computes is not waited for: after an error, its result is not needed."""
        for worker, _ in self._workers:
            if worker.returncode is None:
                worker.kill()
            if worker.stdin is not None:
                worker.stdin.close()
            await worker.wait()


def _send(worker: Process, line: str) -> None:
    # The pipe of a worker that has ended is closed: its missing reply is the error.
    if worker.stdin is not None and not worker.stdin.is_closing():
        worker.stdin.write(line.encode() + b"\n")


async def _line(worker: Process) -> bytes:
    line = b"" if worker.stdout is None else await worker.stdout.readline()
    if not line.endswith(b"\n"):
        status = await worker.wait()
        # Nothing else sends the signal 9 unasked.
        why = ", probably because memory ran out" if status == -9 else ""
        raise WorkerError(
            f"a worker process ended with status {status}{why}. The scores so far are kept: run the same command "
            "again to resume. --workers 1 uses no worker processes; fewer of them need less memory"
        )
    return line[:-1]


def main() -> None:
    """Be a worker: answer tasks until the parent closes the input, which it also does when it is killed."""
    tasks, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # The pipes are the protocol's: a metric may read standard input, or print, which goes to standard error.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    scorer = ScorerSetup.model_validate_json(tasks.readline()).scorer()
    # The collector would look at every module again and again, which takes a fifteenth of the time of a row.
    gc.freeze()
    try:
        for line in tasks:
            scored = scorer.score(_RECORDS.validate_json(line))
            for text in (Counts.of(scored).model_dump_json(), *(record.to_json() for record in scored)):
                replies.write(text.encode() + b"\n")
            replies.flush()
    except BrokenPipeError:
        # The parent was killed. Python would try to write the rest once more at exit, and complain.
        os._exit(1)
