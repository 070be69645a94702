"""Scoring records: many turns at a time through the engine, each result in the journal as soon as it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain

from rageval_hooks.errors import ConfigurationError, JudgeUnavailableError
from rageval_hooks.offline.jobs.budget import Budget, BudgetedJudge, without_budget
from rageval_hooks.offline.jobs.progress import Advance
from rageval_hooks.offline.jobs.score_journal import ScoreJournal
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.outages import Outages, is_answer, is_outage
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.executors import DaemonExecutor
from rageval_hooks.score import Evaluation, Failed, Result, Score

__all__ = ["ScoringRun"]

# Local models share the cores of one machine: more threads make each of them slower.
_LOCAL_THREADS = 2


class ScoringRun:
    """One run of metrics over records.

    Args:
        pipeline: metrics, models and judge.
        journal: where the results go.
        budget: how much the judge may take.
        concurrency: turns at a time.

    Attributes:
        broken: what is wrong with the judge, if it answered nothing while other metrics made scores.

    Raises:
        ConfigurationError: the concurrency is less than 1.
    """

    def __init__(self, pipeline: Pipeline, journal: ScoreJournal, budget: Budget, concurrency: int) -> None:
        if concurrency < 1:
            raise ConfigurationError(f"concurrency is {concurrency}: it must be a whole number from 1")
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
        self._executor = DaemonExecutor(min(_LOCAL_THREADS, concurrency), "rageval-score")

    async def run(self, records: Iterable[tuple[int, Record]], advance: Advance) -> None:
        """Score the records that the journal does not have. Needs an event loop that runs nothing else.

        Args:
            records: with their positions in the input.
            advance: called as records are done.

        Raises:
            JudgeUnavailableError: the judge does not work.
        """
        running: set[asyncio.Task[None]] = set()
        try:
            for index, record in records:
                if self._journal.has(index):
                    advance(1)
                    continue
                while len(running) >= self._concurrency:
                    running = await _first_done(running)
                running.add(asyncio.create_task(self._score(index, record, advance)))
                # Lets the task start, and lets an interruption through.
                await asyncio.sleep(0)
            while running:
                running = await _first_done(running)
            self._end()
        finally:
            await _cancel_others()
            # Several tasks may have failed; one of the errors is raised already.
            await asyncio.gather(*running, return_exceptions=True)
            self._executor.shutdown()
            if self._judge is not None:
                await self._judge.aclose()

    async def _score(self, index: int, record: Record, advance: Advance) -> None:
        # What an interrupted run has paid for is in the journal, metric by metric.
        results: dict[str, tuple[Result, ...]] = self._journal.parts(index)
        wanted = [metric.name for metric in self._pipeline.metrics]
        job = self._engine.job(record.turn, set(wanted) - results.keys())

        async def keep(part: Evaluation) -> None:
            for name in part.durations:
                found = tuple(result for result in part.results if result.metric == name)
                results[name] = self._keep(index, name, found)

        await self._engine.evaluate(job, executor=self._executor, on_part=keep)
        computed = list(chain.from_iterable(results[name] for name in wanted))
        done = record.model_copy(update={"results": (*self._others(record), *computed)})
        # Results from the journal say nothing about whether the judge works now.
        asked = self._judge_metrics.intersection(job.names)
        outage = self._outages.add(index, done, [result for result in computed if result.metric in asked])
        if outage is not None:
            raise self._unavailable(outage)
        advance(1)

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
