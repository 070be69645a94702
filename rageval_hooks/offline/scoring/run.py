"""Scores records: many turns at a time through the engine, each result into the journal as soon as it is ready."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import Any, TypeGuard

from pydantic import TypeAdapter

from rageval_hooks.errors import ConfigurationError, JudgeUnavailableError
from rageval_hooks.metrics.base import Metric
from rageval_hooks.offline.command_judge import Budget, BudgetedJudge
from rageval_hooks.offline.journal import Journal
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.running import Advance, run_on_thread, work_together
from rageval_hooks.offline.scoring.workers import (
    Counts,
    Details,
    RecordScorer,
    ScorerSetup,
    WorkerPool,
    skipped_metrics,
)
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.score import Evaluation, Failed, Result, Score, is_over_budget
from rageval_hooks.settings import LEXICAL

Batch = Sequence[tuple[int, Record]]
"""Records with their positions in the input."""

# Local models share the cores of one machine: more threads make each of them slower.
_LOCAL_THREADS = 2
# Records that a worker or a thread gets at once: few enough to lose little in an interruption.
_BATCH = 16
# With fewer records, workers take longer to start than the records take without them.
_WORTH_WORKERS = 500
# Each worker loads the models, which takes about 0.7 GB.
_MAX_WITH_MODELS = 4

# So many records in a row without an answer of the judge are no accident.
_MAX_HELD = 5
_OUTAGE_KINDS = frozenset({"unavailable", "rejected", "rate_limited"})
"""Kinds of a judge's failure with which it cannot be used."""

_ANSWER_KINDS = frozenset({"invalid_answer", "refused", "truncated"})
"""Kinds with which it has answered: the answer cannot be used."""

_RESULTS: TypeAdapter[tuple[Result, ...]] = TypeAdapter(tuple[Result, ...])


class ScoredRecords(Sequence[Record]):
    """The records in a journal, in the order of the input. Each is read when it is asked for: memory has no room."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # The results of single metrics have other keys: "12/trace".
        self._places = sorted(int(key) for key in journal.keys() if key.isdecimal())  # noqa: SIM118 - not a mapping

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, position: Any) -> Any:
        return Record.model_validate_json(self._journal.raw(str(self._places[position])))

    def lines(self) -> Iterator[bytes]:
        """Yield the records as JSON."""
        return (self._journal.raw(str(place)) for place in self._places)


class ScoringRun:
    """One run of metrics over records.

    A record whose judgements all failed because the judge could not be reached is held back: if the judge answers
    later, the record itself was the problem and is written; if the judge never answers, the next run scores the record
    again.

    Args:
        pipeline: metrics, models and judge.
        journal: where the results go: a record under its position in the input, and until it is done, what each judge
            metric found under ``position/metric``. By default they stay in memory.
        concurrency: turns at a time.
        workers: processes for the local metrics; None for one per core if there are many records.
        budget: how much the judge may take; without limits by default.
        details: which scores keep their explanation and metadata.
        privacy: what the journal may hold.

    Attributes:
        counts: the results so far.
        broken: what is wrong with the judge, if it answered nothing while other metrics made scores.

    Raises:
        ConfigurationError: the concurrency or the number of workers is less than 1.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        journal: Journal | None = None,
        *,
        concurrency: int,
        workers: int | None = 1,
        budget: Budget | None = None,
        details: Details = "all",
        privacy: PrivacyPolicy = NO_PRIVACY,
    ) -> None:
        for name, number in (("concurrency", concurrency), ("workers", workers)):
            if number is not None and number < 1:
                raise ConfigurationError(f"{name} is {number}: it must be a whole number from 1")
        self._journal = Journal(None, {}) if journal is None else journal
        self._budget = budget or Budget()
        self.counts = Counts.of(ScoredRecords(self._journal))
        self.broken: str | None = None
        self._concurrency = concurrency
        self._workers = workers
        self._privacy = privacy
        self._metrics = pipeline.metrics
        self._judge = None if pipeline.judge is None else BudgetedJudge(pipeline.judge, self._budget)
        self._engine = pipeline.engine.with_judge(self._judge)
        judged = [metric for metric in pipeline.metrics if metric.asks_judge]
        self._judge_metrics = frozenset(metric.name for metric in judged)
        self._requested = _names_of(pipeline.metrics)
        roles = pipeline.models.needed(chain.from_iterable(metric.models for metric in pipeline.metrics))
        self._loads_models = any(getattr(pipeline.settings.models, role) != LEXICAL for role in roles)
        # Rules in Python would wait for each other. Models, and the user's own metrics, may wait for something else.
        self._is_all_rules = not self._loads_models and all(metric.family != "custom" for metric in pipeline.metrics)
        self._threads = 1 if self._is_all_rules else min(_LOCAL_THREADS, concurrency)
        self._executor = ThreadPoolExecutor(self._threads, "rageval-score")
        self._scorer = RecordScorer(self._engine, self._requested, details)
        self._setup = ScorerSetup.of(pipeline, self._requested, details)
        self._pool: WorkerPool | None = None
        # Records that wait until the judge has answered, with the first failure of each.
        self._held: list[tuple[int, Record, Failed]] = []
        self._has_answered = not self.counts.names.isdisjoint(_names_of(judged))

    @property
    def complete(self) -> bool:
        """True if the same run again would find nothing more: the judge worked, and its budget was sufficient."""
        # A failure may be final only because the budget had no room for another try.
        is_sufficient = not self._budget.refused and self._requested.isdisjoint(self.counts.over_budget)
        return is_sufficient and self.broken is None

    async def run(self, records: Iterable[tuple[int, Record]], advance: Advance) -> None:
        """Score the records that the journal does not have. Needs an event loop that runs nothing else.

        Args:
            records: with their positions in the input.
            advance: called as records are done.

        Raises:
            JudgeUnavailableError: the judge does not work.
            WorkerError: a worker process ended.
        """
        try:
            waiting = await self._start_workers(self._missing(records, advance))
            pool = self._pool
            # A worker has two turns at a time, so that it never waits for its next one.
            score, size, at_a_time = self._score, 1, max(self._concurrency, pool.capacity if pool else 0)
            if pool is not None and len(self._setup.metrics) == len(self._metrics):
                score, size, at_a_time = partial(self._score_in_worker, pool), _BATCH, pool.capacity
            elif pool is None and not self._judge_metrics:
                score, size, at_a_time = self._score_here, _BATCH if self._is_all_rules else 1, self._threads

            # They share the iterator: each record is taken once.
            async def take() -> None:
                while batch := list(islice(waiting, size)):
                    await score(batch)
                    advance(len(batch))

            await work_together(take, at_a_time)
            self._end()
        finally:
            # Also those that several metrics wait for together.
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            if self._pool is not None:
                await self._pool.close()
            self._executor.shutdown(wait=False, cancel_futures=True)
            if self._judge is not None:
                await self._judge.aclose()

    def score(self, records: Sequence[Record], advance: Advance = lambda _: None) -> ScoredRecords:
        """Score records, and return them in their order; also in a notebook, which runs an event loop.

        Raises:
            JudgeUnavailableError: the judge does not work.
            WorkerError: a worker process ended.
        """
        run_on_thread(self.run(enumerate(records), advance))
        return ScoredRecords(self._journal)

    def keep(self, index: int, record: Record) -> None:
        """Note a record with all its results."""
        self.counts = self.counts.plus(Counts.of([record]))
        # The engine has made the texts of the results from the redacted turn.
        kept = record.redacted(self._privacy).model_copy(update={"results": record.results})
        self._note(str(index), kept.to_json().encode())

    def _note(self, key: str, found: bytes) -> None:
        self._journal.append(key, found, self._budget.spent.model_dump())

    def _missing(self, records: Iterable[tuple[int, Record]], advance: Advance) -> Iterator[tuple[int, Record]]:
        for index, record in records:
            if str(index) in self._journal:
                advance(1)
            else:
                yield index, record

    async def _start_workers(self, records: Iterator[tuple[int, Record]]) -> Iterator[tuple[int, Record]]:
        """Start worker processes if they are wanted and worth their start, and return the records."""
        number, enough = self._workers, 1
        if number is None:
            # A container may have fewer cores than the machine. macOS and Windows have no such function.
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            number, enough = min(cores, _MAX_WITH_MODELS) if self._loads_models else cores, _WORTH_WORKERS
        if number < 2 or not self._setup.metrics:
            return records
        first = list(islice(records, enough))
        if len(first) == enough:
            self._pool = await WorkerPool.start(self._setup, number)
        return chain(first, records)

    async def _score_in_worker(self, pool: WorkerPool, batch: Batch) -> None:
        """Score records whose metrics are all computed by a worker."""
        counts, lines = await pool.score([record for _, record in batch])
        # The lines go to the journal as they are: this process would be the bottleneck if it read them.
        for (index, _), line in zip(batch, lines, strict=True):
            self._note(str(index), line)
        self.counts = self.counts.plus(counts)

    async def _score_here(self, batch: Batch) -> None:
        """Score records whose metrics are all local, on a thread of this process."""
        records = [record for _, record in batch]
        scored = await asyncio.get_running_loop().run_in_executor(self._executor, self._scorer.score, records)
        for (index, _), record in zip(batch, scored, strict=True):
            self.keep(index, record)

    async def _score(self, batch: Batch) -> None:
        """Score a record with metrics of several kinds."""
        [(index, record)] = batch
        wanted = [metric.name for metric in self._metrics]
        # What an interrupted run has paid for is in the journal, metric by metric.
        results: dict[str, Sequence[Result]] = {
            name: _RESULTS.validate_json(self._journal.raw(key))
            for name in wanted
            if (key := f"{index}/{name}") in self._journal
        }
        results.update(skipped_metrics(record, self._metrics))
        job = self._engine.job(record.turn, set(wanted) - results.keys())
        remote = self._setup.names.intersection(job.names) if self._pool else frozenset()

        async def keep(part: Evaluation) -> None:
            for name in part.durations:
                found = tuple(result for result in part.results if result.metric == name)
                results[name] = found
                # The next run asks again for what the judge did not answer.
                is_answered = not any(_is_outage(result) or is_over_budget(result) for result in found)
                if name in self._judge_metrics and is_answered:
                    self._note(f"{index}/{name}", _RESULTS.dump_json(found))

        async def compute_remotely() -> None:
            if self._pool is not None and remote:
                _, [line] = await self._pool.score([record])
                found = Record.model_validate_json(line).results
                results.update({name: [result for result in found if result.metric == name] for name in remote})

        here = job.only(set(job.names) - remote)
        await asyncio.gather(
            self._engine.evaluate(here, executor=self._executor, on_part=keep),
            compute_remotely(),
        )
        done = self._scorer.with_results(record, chain.from_iterable(results[name] for name in wanted))
        # Results from the journal say nothing about whether the judge works now.
        asked = [result for name in self._judge_metrics.intersection(job.names) for result in results[name]]
        self._keep_or_hold(index, done, asked)

    def _keep_or_hold(self, index: int, record: Record, asked: Collection[Result]) -> None:
        """Write a record, or hold it back if the judge did not answer.

        Args:
            index: its position in the input.
            record: the record with its results.
            asked: the results for which the judge was asked now.

        Raises:
            JudgeUnavailableError: so many records in a row had no answer that the run should stop.
        """
        outage = next(filter(_is_outage, asked), None)
        # An answer that cannot be used is an answer, too.
        if any(isinstance(result, Score) or getattr(result, "error_type", None) in _ANSWER_KINDS for result in asked):
            # The judge works, so the records that wait failed for reasons of their own.
            self._has_answered = True
            self._release()
        elif outage is not None:
            self._held.append((index, record, outage))
            if len(self._held) >= _MAX_HELD:
                raise self._unavailable(outage)
            return
        self.keep(index, record)

    def _release(self) -> None:
        """Write the records that wait."""
        while self._held:
            index, record, _ = self._held.pop()
            self.keep(index, record)

    def _end(self) -> None:
        """Write the records that were held back, unless the judge answered nothing and there is nothing else.

        Raises:
            JudgeUnavailableError: the judge answered nothing, and no other metric made a score.
        """
        if self._held and not self._has_answered:
            outage = self._held[0][2]
            names = self.counts.names | Counts.of(record for _, record, _ in self._held).names
            if names.isdisjoint(self._requested):
                raise self._unavailable(outage)
            self.broken = f"the judge {self._judge} does not work: {outage.message}"
        self._release()

    def _unavailable(self, outage: Failed) -> JudgeUnavailableError:
        kept = ""
        if self._journal.path is not None:
            where = f"The scores so far are kept in {self._journal.path}: " if len(self._journal) else ""
            kept = f". {where}give the same command again to go on"
        return JudgeUnavailableError(f"the judge {self._judge} does not work: {outage.message}{kept}")


def _names_of(metrics: Iterable[Metric]) -> set[str]:
    """Return the names of metrics and of their scores."""
    return set(chain.from_iterable((metric.name, *(score.name for score in metric.scores)) for metric in metrics))


def _is_outage(result: Result) -> TypeGuard[Failed]:
    """Return True if a result failed because the judge could not be used."""
    return isinstance(result, Failed) and result.error_type in _OUTAGE_KINDS
