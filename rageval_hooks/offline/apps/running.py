"""Asks an application every question of a test set, keeps a record per question and repetition, and counts them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rageval_hooks.offline.answerability import is_refusal
from rageval_hooks.offline.apps.answers import record_of
from rageval_hooks.offline.apps.asking import Capture, ask
from rageval_hooks.offline.apps.loading import App, adapt
from rageval_hooks.offline.jobs.journal import Journal
from rageval_hooks.offline.jobs.running import Advance, work_together
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.targets import TargetIds, place_target
from rageval_hooks.offline.testsets.testset import GoldenQuestion
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy

_LONGEST_ERROR = 500

Asking = tuple[GoldenQuestion, int]
"""A question and the number of its repetition."""


async def run_questions(
    questions: Sequence[GoldenQuestion],
    app: App,
    journal: Journal,
    *,
    repeat: int = 1,
    concurrency: int = 4,
    timeout: float = 300.0,
    privacy: PrivacyPolicy = NO_PRIVACY,
    advance: Advance = lambda _: None,
) -> RunSummary:
    """Ask an application every question. Each record is in the journal as soon as it exists.

    Args:
        questions: what to ask.
        app: the application.
        journal: of this work; what it has is not asked again.
        repeat: how often each question is asked.
        concurrency: questions at a time.
        timeout: seconds for each question.
        privacy: what the journal may hold; the application is asked the original questions.
        advance: called when a question is done.
    """
    waiting = waiting_in(questions, repeat, journal)
    advance(len(questions) * repeat - len(waiting))

    def keep(question: GoldenQuestion, run: int, record: Record) -> None:
        keep_record(question, run, record, journal, privacy)
        advance(1)

    await ask_all(waiting, app, keep, concurrency=concurrency, timeout=timeout)
    return summarize(records_of(questions, repeat, journal))


async def ask_all(
    askings: Sequence[Asking],
    app: App,
    keep: Callable[[GoldenQuestion, int, Record], None],
    *,
    concurrency: int,
    timeout: float,
) -> None:
    """Ask an application some questions.

    Args:
        askings: the questions, and the numbers of their repetitions.
        app: the application.
        keep: called with each question, its repetition and its record, as soon as there is one.
        concurrency: questions at a time.
        timeout: seconds for each question.
    """
    # Workers share this iterator: each question is taken once.
    rest = iter(askings)

    async def take(capture: Capture) -> None:
        for question, run in rest:
            keep(question, run, await _ask_one(question, run, app, capture, timeout))

    with Capture().attached() as capture:
        await work_together(partial(take, capture), min(concurrency, len(askings)))


def keep_record(question: GoldenQuestion, run: int, record: Record, journal: Journal, privacy: PrivacyPolicy) -> None:
    """Put a record into the journal, redacted."""
    journal.append(_key(question, run), record.redacted(privacy).model_dump(mode="json"))


async def _ask_one(question: GoldenQuestion, run: int, app: App, capture: Capture, timeout: float) -> Record:
    started = time.time_ns()
    # A separate task: what the application sets in the context does not reach the next question.
    asked = await asyncio.ensure_future(ask(app, question.question, capture, timeout))
    return record_of(question, run, *asked, knows_answer=app.framework, started=started)


def ask_once(target: Any, question: GoldenQuestion, *, input_key: str | None = None, timeout: float = 300.0) -> Record:
    """Ask an application one question, and return the record of its answer.

    Args:
        target: what ``rageval-hooks run --app`` accepts: a runnable, a query engine, a function of the question.
        question: the question.
        input_key: the key of the question in the application's input.
        timeout: seconds.

    Raises:
        ConfigurationError: the object cannot be asked.
    """
    app = adapt(target, input_key)

    async def work() -> Record:
        with Capture().attached() as capture:
            return await _ask_one(question, 1, app, capture, timeout)

    # In a thread of its own: the caller may have a running event loop.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work()).result()


def waiting_in(questions: Sequence[GoldenQuestion], repeat: int, journal: Journal) -> list[Asking]:
    """Return the questions that are still to be asked, each repetition on its own."""
    askings = ((question, run) for run in range(1, repeat + 1) for question in questions)
    return [(question, run) for question, run in askings if _key(question, run) not in journal]


def records_of(questions: Sequence[GoldenQuestion], repeat: int, journal: Journal) -> Iterator[Record]:
    """Yield the records of a journal in the order of the questions, each with the rank of its target."""
    # Whether ids can be compared depends on the whole run, so records are read twice.
    ids = TargetIds(question.chunk_id for question in questions)
    for record in _recorded(questions, repeat, journal):
        ids.add(record.target, record.turn.passages)
        if ids.comparable:
            break
    for record in _recorded(questions, repeat, journal):
        yield place_target(record, ids)


def _recorded(questions: Sequence[GoldenQuestion], repeat: int, journal: Journal) -> Iterator[Record]:
    for question in questions:
        for run in range(1, repeat + 1):
            key = _key(question, run)
            if key in journal:
                yield Record.model_validate(journal[key])


def keep_answers(records: Iterable[Record], journal: Journal) -> None:
    """Copy records of an earlier run of these questions into the journal, so that only what is missing is asked."""
    for record in records:
        key = f"{record.run}/{record.id}"
        if key not in journal:
            # Ranks are computed again: they depend on the whole run.
            fresh = record.model_copy(update={"results": (), "rank": None, "missed": False})
            journal.append(key, fresh.model_dump(mode="json"))


def _key(question: GoldenQuestion, run: int) -> str:
    return f"{run}/{question.id}"


@dataclass
class RunSummary:
    """Counts over the records of a run.

    Attributes:
        records: number of records.
        failed: number of records that are errors, by the type of the error.
        first_error: one of these, in a line.
        found: answered questions whose target passage was retrieved.
        missed: answered questions whose target passage was not retrieved.
        unknown: answered questions with a target that cannot be looked for.
        declined: answered questions marked as unanswerable whose answer is a refusal, by rules.
        not_declined: those whose answer claims something.
        without_passages: answers for which no passage was seen.
    """

    records: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    first_error: str | None = None
    found: int = 0
    missed: int = 0
    unknown: int = 0
    declined: int = 0
    not_declined: int = 0
    without_passages: int = 0

    @property
    def errors(self) -> int:
        """Number of records that are errors."""
        return sum(self.failed.values())

    def add(self, record: Record) -> None:
        """Count a record."""
        self.records += 1
        error = record.turn.error
        if record.turn.status == "error" and error is not None:
            self.failed[error.type] += 1
            # One message is enough to see what is wrong; the records have all of them.
            if self.first_error is None:
                self.first_error = f"{error.type}: {error.message}"[:_LONGEST_ERROR]
            return
        if not record.turn.passages:
            self.without_passages += 1
        if not record.answerable:
            refused = is_refusal(record.turn.response)
            self.declined += refused is True
            self.not_declined += refused is False
        elif record.has_target:
            self.found += record.rank is not None
            self.missed += record.missed
            self.unknown += record.rank is None and not record.missed

    def lines(self) -> Iterator[str]:
        """Yield the summary for the user, line by line."""
        yield f"{self.records - self.errors} of {self.records} questions answered"
        # A rank that is unknown counts neither as found nor as missed.
        if known := self.found + self.missed:
            yield f"the chunk with the answer was retrieved for {self.found} of {known}"
        if self.unknown:
            yield (
                f"for {self.unknown} of them the rank of the chunk is unknown: no retrieved passage has an id of the "
                "test set, and the test set has no text of the chunk in a column 'chunk'"
            )
        if unanswerable := self.declined + self.not_declined:
            yield f"the application declined {self.declined} of {unanswerable} questions marked as unanswerable"
        for kind, number in self.failed.most_common():
            yield f"  {number} failed: {kind}"
        if self.first_error is not None:
            yield f"  the first: {self.first_error}"
        if self.without_passages:
            yield (
                f"  {self.without_passages} answers without passages: if some were retrieved, have the application "
                "return (answer, passages)"
            )


def summarize(records: Iterable[Record]) -> RunSummary:
    """Return the summary of the records of a run."""
    summary = RunSummary()
    for record in records:
        summary.add(record)
    return summary
