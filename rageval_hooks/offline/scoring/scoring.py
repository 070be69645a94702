"""Scores of a file: many turns at a time, each result noted as it comes, the output in the order of the input."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from rageval_hooks.errors import (
    ConfigurationError,
    JudgeAnswerError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeRejectedError,
    JudgeTruncatedError,
    JudgeUnavailableError,
    TurnError,
)
from rageval_hooks.judges.client.policy import CallPolicy
from rageval_hooks.metrics.base import Metric
from rageval_hooks.offline.jobs.bad_rows import BadRows, check_apart, errors_path
from rageval_hooks.offline.jobs.budget import Budget, BudgetedJudge, Spent, without_budget
from rageval_hooks.offline.jobs.journal import file_hash, journal_path
from rageval_hooks.offline.jobs.progress import Advance
from rageval_hooks.offline.jobs.score_journal import ScoreJournal
from rageval_hooks.offline.records.conversations import read_conversation
from rageval_hooks.offline.records.mapping import ColumnMap
from rageval_hooks.offline.records.reading import Item, read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow, check_file
from rageval_hooks.offline.records.writers import check_outputs, write_output
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.executors import DaemonExecutor
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped, is_about_turn
from rageval_hooks.version import __version__

if TYPE_CHECKING:
    pass

__all__ = ["Scored", "Scoring", "score_file"]

_COMPUTING = 2
_OUTAGES = frozenset(error.kind for error in (JudgeUnavailableError, JudgeRejectedError, JudgeRateLimitedError))
_ANSWERS = frozenset(error.kind for error in (JudgeAnswerError, JudgeRefusedError, JudgeTruncatedError))
_MOST_OUTAGES = 5


@dataclass
class Scored:
    """What came of a file.

    Attributes:
        turns: how many were scored.
        resumed: how many of them in an earlier run that was interrupted.
        bad: rows that could not be used.
        first_bad: the first of them.
        errors: the file that they are in.
        results: how many results of each status there are.
        spent: what the judge took, earlier runs included.
        budget: why the judge was asked no more, if so.
        left_out: questions to the judge that were not asked any more.
        why_not: why the first result that is no score is none.
        broken: what is wrong with the judge, if it has answered nothing, and other scores came out.
        names: of the scores of whole turns.
    """

    turns: int = 0
    resumed: int = 0
    bad: int = 0
    first_bad: BadRow | None = None
    errors: Path | None = None
    results: Counter[str] = field(default_factory=Counter)
    spent: Spent = field(default_factory=Spent)
    budget: str | None = None
    left_out: int = 0
    why_not: str | None = None
    broken: str | None = None
    names: set[str] = field(default_factory=set)

    def count(self, results: Iterable[Result]) -> None:
        """Count the results of a turn."""
        for result in results:
            self.results[result.status] += 1
            if isinstance(result, Score):
                if is_about_turn(result):
                    self.names.add(result.name)
            elif self.why_not is None:
                reason = result.reason if isinstance(result, Skipped) else f"{result.error_type}: {result.message}"
                self.why_not = f"{result.name}: {reason.removeprefix(f'{result.name}: ')}"


class Scoring:
    """The run of metrics over records.

    Args:
        pipeline: metrics, models and judge.
        journal: where the results go.
        budget: how much the judge may take.
        concurrency: turns at a time.

    Attributes:
        broken: what is wrong with the judge, if it has answered nothing, and other scores came out.
    """

    def __init__(self, pipeline: Pipeline, journal: ScoreJournal, budget: Budget, concurrency: int) -> None:
        if concurrency < 1:
            raise ConfigurationError(f"concurrency is {concurrency}: it is a whole number from 1")
        self.broken: str | None = None
        self._pipeline = pipeline
        self._journal = journal
        self._budget = budget
        self._concurrency = concurrency
        self._judge = None if pipeline.judge is None else BudgetedJudge(pipeline.judge, budget)
        self._engine = pipeline.engine.with_judge(self._judge)
        self._asking = [metric for metric in pipeline.metrics if metric.asks_judge]
        self._names = {score.name for metric in pipeline.metrics for score in metric.scores}
        self._names |= {metric.name for metric in pipeline.metrics}
        self._held: list[tuple[int, Record]] = []
        self._outages: list[Failed] = []
        self._answered = bool(self._asking) and journal.has_results(
            lambda results: any(map(_is_answer, self._asked(results)))
        )
        self._executor = DaemonExecutor(min(_COMPUTING, concurrency), "rageval-score")

    async def run(self, records: Iterable[tuple[int, Record]], advance: Advance) -> None:
        """Score the records that the journal does not have; in an event loop of its own.

        Args:
            records: with their positions in the input.
            advance: called as they are done.
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
                await asyncio.sleep(0)  # let it begin, and let an interruption through
            while running:
                running = await _first_done(running)
            self._end()
        finally:
            await _cancel_others()
            await asyncio.gather(*running, return_exceptions=True)  # several may have failed, of which one is raised
            self._executor.shutdown()
            if self._judge is not None:
                await self._judge.aclose()

    async def _score(self, index: int, record: Record, advance: Advance) -> None:
        results: dict[str, tuple[Result, ...]] = self._journal.parts(index)
        job = self._engine.job(record.turn, {metric.name for metric in self._pipeline.metrics} - results.keys())

        async def keep(part: Evaluation) -> None:
            for name in part.durations:
                found = tuple(result for result in part.results if result.metric == name)
                results[name] = self._keep(index, name, found)

        await self._engine.evaluate(job, executor=self._executor, on_part=keep)
        kept = [result for result in record.results if not {result.metric, result.name} & self._names]
        computed = [result for metric in self._pipeline.metrics for result in results[metric.name]]
        done = record.model_copy(update={"results": (*kept, *computed)})
        self._note(index, done, [metric for metric in self._asking if metric.name in job.names])
        advance(1)

    def _keep(self, index: int, name: str, found: tuple[Result, ...]) -> tuple[Result, ...]:
        """Return one metric's results as the record has them; the journal keeps a judge's usable answers."""
        results = tuple(without_budget(result) for result in found)
        judged = any(metric.name == name for metric in self._asking)
        if judged and results == found and not any(map(_is_outage, found)):
            self._journal.part(index, name, results, self._budget.spent)
        return results

    def _note(self, index: int, record: Record, asking: Sequence[Metric]) -> None:
        """Note a record, unless the judge seems not to work at all: then it is left to the next run.

        Raises:
            JudgeUnavailableError: one record after the other has failed so.
        """
        names = {metric.name for metric in asking}
        found = [result for result in self._asked(record.results) if result.metric in names]
        outages = [result for result in found if _is_outage(result)]
        answered = any(map(_is_answer, found))
        self._answered |= answered
        if answered:
            self._release()
        if answered or not outages:
            self._journal.done(index, record, self._budget.spent)
            return
        self._held.append((index, record))
        self._outages += outages
        if len(self._held) >= _MOST_OUTAGES:
            raise self._broken(outages[0])

    def _broken(self, outage: Failed) -> JudgeUnavailableError:
        kept = "" if self._journal.empty else f"What is scored is kept in {self._journal.path}: "
        return JudgeUnavailableError(f"{self._problem(outage)}. {kept}give the same command again to go on")

    def _problem(self, outage: Failed) -> str:
        return f"the judge {self._judge} does not work: {outage.message}"

    def _end(self) -> None:
        """Note what was held back, unless the judge has answered nothing, and there is nothing else.

        Raises:
            JudgeUnavailableError: so it is, and that was not for what it was asked.
        """
        if self._outages and not self._answered and not any(map(_is_about_the_request, self._outages)):
            if not self._has_scores():
                raise self._broken(self._outages[0])
            self.broken = self._problem(self._outages[0])
        self._release()

    def _has_scores(self) -> bool:
        """Whether a score came out, of those that were asked for."""

        def has_score(results: Iterable[Result]) -> bool:
            return any(isinstance(found, Score) and {found.metric, found.name} & self._names for found in results)

        return any(has_score(record.results) for _, record in self._held) or self._journal.has_results(has_score)

    def _asked(self, results: Iterable[Result]) -> list[Result]:
        """Return the results for which the judge may have been asked."""
        names = {metric.name for metric in self._asking}
        return [result for result in results if result.metric in names]

    def _release(self) -> None:
        """Note the records whose judgements failed: the judge works, so it was them."""
        self._outages.clear()
        while self._held:
            self._journal.done(*self._held.pop(), self._budget.spent)


def _is_outage(result: Result) -> TypeGuard[Failed]:
    return isinstance(result, Failed) and result.error_type in _OUTAGES


def _is_answer(result: Result) -> bool:
    """Whether the judge works: it has answered, if only something that cannot be used."""
    return isinstance(result, Score) or (isinstance(result, Failed) and result.error_type in _ANSWERS)


def _is_about_the_request(outage: Failed) -> bool:
    """Whether the judge did not like this question, rather than any: a provider may refuse a text so."""
    details = outage.metadata.get("judge")
    return isinstance(details, Mapping) and details.get("status") in (400, 413, 422)


async def _first_done(running: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return running


async def _cancel_others() -> None:
    """End what is still under way in this event loop, which is ours alone: also what several metrics wait for."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def score_file(
    path: Path,
    outputs: Sequence[Path],
    pipeline: Pipeline,
    *,
    errors: Path | None = None,
    columns: str = "native",
    concurrency: int = 8,
    max_calls: int | None = None,
    max_cost: float | None = None,
    required: Iterable[str] = ("query", "response"),
    restart: bool = False,
    context: Path | None = None,
    mapping: ColumnMap | None = None,
    encoding: str | None = None,
    note: Callable[[str], object] = lambda _: None,
    advance: Advance = lambda _: None,
) -> Scored:
    """Score the turns of a file.

    Args:
        path: the file; see :func:`rageval_hooks.offline.records.files.read_records`.
        outputs: the files to write, ``.jsonl`` or ``.csv``. Beside the first stands the journal until they are there.
        pipeline: metrics, models and judge.
        errors: where rows that cannot be used go; by default beside the first output.
        columns: of CSV files: ``native`` or ``open-rag-eval``.
        concurrency: turns at a time.
        max_calls: requests to the judge; None for no limit.
        max_cost: USD for the judge; None for no limit.
        required: fields whose columns must be there.
        restart: forget what an interrupted run has left.
        context: what was retrieved, where the file is a conversation.
        mapping: columns of the fields, as the user named them.
        encoding: of a text file; None to detect it.
        note: called with decisions about the file that the user should know.
        advance: called as turns are done.

    Raises:
        ConfigurationError: a setting is wrong, or an interrupted run was of something else.
        TurnError: the file cannot be read, a column is missing, or no row of it can be used.
        JudgeUnavailableError: the judge does not work, and not one score came out, or it was given up; what is done
            is in the journal.
        OSError: something cannot be written.
        KeyboardInterrupt: what is done is in the journal; the same call goes on.
    """
    inputs = [path] if context is None else [path, context]
    for item in inputs:
        check_file(item)
    check_outputs(outputs, columns)
    bad_rows = BadRows(errors or errors_path(outputs[0]), always=errors is not None)
    check_apart(inputs, outputs, bad_rows.path)
    settings = _settings(pipeline, inputs)
    with ScoreJournal(journal_path(outputs[0]), settings, restart=restart) as journal:
        budget = Budget(max_calls, max_cost, journal.spent)
        scored = Scored(resumed=journal.resumed, errors=bad_rows.path)
        with bad_rows as bad:
            if context is None:
                items = read_items(path, required, mapping=mapping, encoding=encoding, note=note)
            else:
                items = read_conversation(path, context)
            records = _records(items, bad)
            scoring = Scoring(pipeline, journal, budget, concurrency)
            asyncio.run(scoring.run(records, advance))
        scored.bad, scored.first_bad = bad.count, bad.first
        for record in journal.records():
            scored.turns += 1
            scored.count(record.results)
        if not scored.turns:
            raise _nothing(path, bad)
        for output in outputs:
            write_output(output, journal.records, columns)
        journal.remove()
    scored.broken = scoring.broken
    scored.spent, scored.left_out = budget.spent, budget.refused
    scored.budget = budget.reason if budget.refused else None
    return scored


def _records(items: Iterable[tuple[int, Item]], errors: BadRows) -> Iterator[tuple[int, Record]]:
    index = 0
    for _, item in items:
        if isinstance(item, BadRow):
            errors.add(item)
        else:
            yield index, item
            index += 1


def _nothing(path: Path, errors: BadRows) -> TurnError:
    if errors.first is None:
        return TurnError(f"{path} has no rows")
    return TurnError(
        f"no row of {path} can be used: line {errors.first.line}: {errors.first.reason} "
        f"(all {errors.count} are in {errors.path})"
    )


def _settings(pipeline: Pipeline, inputs: Sequence[Path]) -> Mapping[str, Any]:
    """Return what decides on the results, by the names that a user knows."""
    settings = pipeline.settings
    patience = CallPolicy.model_fields  # how often and how long the judge is asked may change
    return {
        "command": "score",
        "version of rageval-hooks": __version__,
        "input": [file_hash(path) for path in inputs],
        "metrics": [f"{metric.name} {metric.version}" for metric in pipeline.metrics],
        "models": settings.models.model_dump(mode="json") if any(m.models for m in pipeline.metrics) else None,
        "judge": None if pipeline.judge is None else str(pipeline.judge),
        "judge options": {name: value for name, value in settings.judge_options.items() if name not in patience},
        "thresholds": settings.thresholds,
    }
