"""Scores records: many turns at a time through the engine, each result into the journal as soon as it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Iterator, Sequence
from itertools import chain, islice

from rageval_hooks.errors import ConfigurationError, JudgeUnavailableError
from rageval_hooks.offline.jobs.budget import Budget, BudgetedJudge, without_budget
from rageval_hooks.offline.jobs.memory_journal import MemoryJournal
from rageval_hooks.offline.jobs.progress import Advance
from rageval_hooks.offline.jobs.score_journal import ScoreJournal
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.detail import Details, with_details
from rageval_hooks.offline.scoring.outages import Outages, is_answer, is_outage
from rageval_hooks.offline.scoring.record_scorer import RecordScorer
from rageval_hooks.offline.scoring.summary import Counts
from rageval_hooks.offline.scoring.unanswerable import skipped_metrics
from rageval_hooks.offline.scoring.worker_pool import WorkerPool, loads_models, usual_workers, worker_setup
from rageval_hooks.online.job import Job
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.executors import DaemonExecutor
from rageval_hooks.score import Evaluation, Failed, Result, Score

__all__ = ["ScoringRun"]

# Local models share the cores of one machine: more threads make each of them slower.
_LOCAL_THREADS = 2
# Records that a worker or a thread gets at once: few enough to lose little in an interruption.
_BATCH = 16
# With fewer records, workers take longer to start than the records take without them.
_WORTH_WORKERS = 500


class ScoringRun:
    """One run of metrics over records.

    Args:
        pipeline: metrics, models and judge.
        journal: where the results go.
        budget: how much the judge may take.
        concurrency: turns at a time.
        workers: processes for the local metrics; None for one per core if there are many records.
        details: which scores keep their explanation and metadata.
        counts: receives the counts of the results.

    Attributes:
        broken: what is wrong with the judge, if it answered nothing while other metrics made scores.

    Raises:
        ConfigurationError: the concurrency or the number of workers is less than 1.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        journal: ScoreJournal | MemoryJournal,
        budget: Budget,
        *,
        concurrency: int,
        workers: int | None,
        details: Details,
        counts: Counts,
    ) -> None:
        for name, number in (("concurrency", concurrency), ("workers", workers)):
            if number is not None and number < 1:
                raise ConfigurationError(f"{name} is {number}: it must be a whole number from 1")
        self.broken: str | None = None
        self._pipeline = pipeline
        self._journal = journal
        self._budget = budget
        self._concurrency = concurrency
        self._judge = None if pipeline.judge is None else BudgetedJudge(pipeline.judge, budget)
        self._engine = pipeline.engine.with_judge(self._judge)
        self._judge_metrics = {metric.name for metric in pipeline.metrics if metric.asks_judge}
        scores = chain.from_iterable(metric.scores for metric in pipeline.metrics)
        self._names = {metric.name for metric in pipeline.metrics} | {score.name for score in scores}
        answered_before = bool(self._judge_metrics) and journal.has_results(self._has_answer)
        self._outages = Outages(self._write, has_answered=answered_before)
        self._is_all_rules = _is_all_rules(pipeline)
        # Rules in Python would wait for each other. Models, and the user's own metrics, may wait for something else.
        self._threads = 1 if self._is_all_rules else min(_LOCAL_THREADS, concurrency)
        self._executor = DaemonExecutor(self._threads, "rageval-score")
        self._scorer = RecordScorer(self._engine, self._names, details)
        self._workers = workers
        self._details = details
        self._counts = counts
        self._setup = worker_setup(pipeline, self._names, details)
        self._pool: WorkerPool | None = None

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
            if self._pool is not None and self._is_all_remote:
                batches = _batches(waiting, _BATCH)
                await _run_all((self._score_batch(batch, advance) for batch in batches), self._pool.capacity)
            elif self._pool is None and not self._judge_metrics:
                batches = _batches(waiting, _BATCH if self._is_all_rules else 1)
                await _run_all((self._score_here(batch, advance) for batch in batches), self._threads)
            else:
                # A worker has two turns at a time, so that it never waits for its next one.
                at_a_time = max(self._concurrency, self._pool.capacity if self._pool else 0)
                await _run_all((self._score(index, record, advance) for index, record in waiting), at_a_time)
            self._end()
        finally:
            await _cancel_others()
            if self._pool is not None:
                await self._pool.close()
            self._executor.shutdown()
            if self._judge is not None:
                await self._judge.aclose()

    def _missing(self, records: Iterable[tuple[int, Record]], advance: Advance) -> Iterator[tuple[int, Record]]:
        for index, record in records:
            if self._journal.has(index):
                advance(1)
            else:
                yield index, record

    async def _start_workers(self, records: Iterator[tuple[int, Record]]) -> Iterator[tuple[int, Record]]:
        """Start worker processes if they are wanted and worth their start, and return the records."""
        number = usual_workers(self._pipeline) if self._workers is None else self._workers
        if number < 2 or not self._setup.metrics:
            return records
        enough = _WORTH_WORKERS if self._workers is None else 1
        first = list(islice(records, enough))
        if len(first) == enough:
            self._pool = await WorkerPool.start(self._setup, number)
        return chain(first, records)

    @property
    def _is_all_remote(self) -> bool:
        """Return True if the workers compute every metric."""
        return len(self._setup.metrics) == len(self._pipeline.metrics)

    async def _score_batch(self, batch: Sequence[tuple[int, Record]], advance: Advance) -> None:
        """Score records whose metrics are all computed by a worker."""
        pool = self._pool
        if pool is None:
            raise RuntimeError("there are no workers")
        reply = await pool.score([record for _, record in batch])
        # The lines go to the journal as they are: this process would be the bottleneck if it read them.
        for (index, _), line in zip(batch, reply.lines, strict=True):
            self._journal.done_as_json(index, line, self._budget.spent)
        self._counts.merge(reply.results, reply.names)
        advance(len(batch))

    async def _score_here(self, batch: Sequence[tuple[int, Record]], advance: Advance) -> None:
        """Score records whose metrics are all local, on a thread of this process."""
        records = [record for _, record in batch]
        scored = await asyncio.get_running_loop().run_in_executor(self._executor, self._scorer.score, records)
        for (index, _), record in zip(batch, scored, strict=True):
            self._write(index, record)
        advance(len(batch))

    async def _score(self, index: int, record: Record, advance: Advance) -> None:
        # What an interrupted run has paid for is in the journal, metric by metric.
        results: dict[str, tuple[Result, ...]] = self._journal.parts(index)
        results.update(skipped_metrics(record, self._pipeline.metrics))
        wanted = [metric.name for metric in self._pipeline.metrics]
        job = self._engine.job(record.turn, set(wanted) - results.keys())

        await self._evaluate(index, record, job, results)
        computed = list(chain.from_iterable(results[name] for name in wanted))
        detailed = [with_details(result, self._details) for result in computed]
        done = record.model_copy(update={"results": (*self._others(record), *detailed)})
        # Results from the journal say nothing about whether the judge works now.
        asked = self._judge_metrics.intersection(job.names)
        outage = self._outages.add(index, done, [result for result in computed if result.metric in asked])
        if outage is not None:
            raise self._unavailable(outage)
        advance(1)

    async def _evaluate(self, index: int, record: Record, job: Job, results: dict[str, tuple[Result, ...]]) -> None:
        """Compute a job's metrics, by a worker where it can, and add their results."""

        async def keep(part: Evaluation) -> None:
            for name in part.durations:
                found = tuple(result for result in part.results if result.metric == name)
                results[name] = self._keep(index, name, found)

        remote = self._setup.names.intersection(job.names) if self._pool else frozenset()
        here = job.only(set(job.names) - remote)
        work: list[Awaitable[object]] = []
        if here.metrics:
            work.append(self._engine.evaluate(here, executor=self._executor, on_part=keep))
        if remote:
            work.append(self._score_remotely(record, remote, results))
        await asyncio.gather(*work)

    async def _score_remotely(
        self, record: Record, names: Collection[str], results: dict[str, tuple[Result, ...]]
    ) -> None:
        """Have a worker compute the local metrics of one record."""
        if self._pool is None:
            raise RuntimeError("there are no workers")
        reply = await self._pool.score([record])
        found = Record.model_validate_json(reply.lines[0]).results
        for name in names:
            results[name] = tuple(result for result in found if result.metric == name)

    def _others(self, record: Record) -> list[Result]:
        """Return the results of a record that this run does not compute."""
        return [result for result in record.results if not self._is_requested(result)]

    def _is_requested(self, result: Result) -> bool:
        return not self._names.isdisjoint((result.metric, result.name))

    def _keep(self, index: int, name: str, found: tuple[Result, ...]) -> tuple[Result, ...]:
        """Return one metric's results as the record has them; usable answers of the judge go to the journal at once."""
        results = tuple(without_budget(result) for result in found)
        # A result that changes here lacks calls that the budget prevented: the next run asks again.
        is_paid = name in self._judge_metrics and results == found
        if is_paid and not any(map(is_outage, found)):
            self._journal.part(index, name, results, self._budget.spent)
        return results

    def _write(self, index: int, record: Record) -> None:
        self._journal.done(index, record, self._budget.spent)
        self._counts.add(record.results)

    def _end(self) -> None:
        """Write the records that were held back, unless the judge answered nothing and there is nothing else.

        Raises:
            JudgeUnavailableError: the judge answered nothing, and no other metric made a score.
        """
        outage = self._outages.unanswered()
        if outage is not None:
            if not self._has_scores():
                raise self._unavailable(outage)
            self.broken = self._problem(outage)
        self._outages.release()

    def _unavailable(self, outage: Failed) -> JudgeUnavailableError:
        if self._journal.path is None:
            return JudgeUnavailableError(self._problem(outage))
        kept = "" if self._journal.empty else f"The scores so far are kept in {self._journal.path}: "
        return JudgeUnavailableError(f"{self._problem(outage)}. {kept}give the same command again to go on")

    def _problem(self, outage: Failed) -> str:
        return f"the judge {self._judge} does not work: {outage.message}"

    def _has_scores(self) -> bool:
        """Return True if one of the requested metrics made a score."""
        held = chain.from_iterable(record.results for record in self._outages.held)
        return self._has_score(held) or self._journal.has_results(self._has_score)

    def _has_score(self, results: Iterable[Result]) -> bool:
        return any(isinstance(result, Score) and self._is_requested(result) for result in results)

    def _has_answer(self, results: Iterable[Result]) -> bool:
        return any(is_answer(result) for result in results if result.metric in self._judge_metrics)


def _is_all_rules(pipeline: Pipeline) -> bool:
    """Return True if no metric needs a model, and none is the user's own."""
    return not loads_models(pipeline) and all(metric.family != "custom" for metric in pipeline.metrics)


def _batches(records: Iterator[tuple[int, Record]], size: int) -> Iterator[Sequence[tuple[int, Record]]]:
    while batch := list(islice(records, size)):
        yield batch


async def _run_all(work: Iterable[Coroutine[None, None, None]], at_a_time: int) -> None:
    """Run coroutines, so many at a time; the first error is raised."""
    running: set[asyncio.Task[None]] = set()
    try:
        for coroutine in work:
            running.add(asyncio.create_task(coroutine))
            # Lets the task start, and lets an interruption through.
            await asyncio.sleep(0)
            while len(running) >= at_a_time:
                running = await _first_done(running)
        while running:
            running = await _first_done(running)
    finally:
        for task in running:
            task.cancel()
        # Several tasks may have failed; one of the errors is raised already.
        await asyncio.gather(*running, return_exceptions=True)


async def _first_done(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return running


async def _cancel_others() -> None:
    """Cancel all other tasks of the event loop, also those that several metrics wait for together."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
