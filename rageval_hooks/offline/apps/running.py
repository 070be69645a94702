"""Asks an application every question of a test set, and keeps a record per question and repetition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from rageval_hooks.offline.apps.asking import ask
from rageval_hooks.offline.apps.loading import App
from rageval_hooks.offline.apps.outcomes import record_of
from rageval_hooks.offline.apps.summary import RunSummary, summarize
from rageval_hooks.offline.apps.turn_capture import Capture
from rageval_hooks.offline.jobs.journal import Journal
from rageval_hooks.offline.jobs.running import Advance, work_together
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.targets import TargetIds, place_target
from rageval_hooks.offline.testsets.testset import GoldenQuestion
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy

__all__ = ["count_waiting", "keep_answers", "records_of", "run_questions"]

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
    wanted = list(_askings(questions, repeat))
    resumed = len(wanted) - count_waiting(questions, repeat, journal)
    # Workers share this iterator: each question is taken once.
    waiting = iter(wanted)

    async def take(capture: Capture) -> None:
        for question, run in waiting:
            if _key(question, run) not in journal:
                record = await _ask_one(question, run, app, capture, timeout)
                journal.append(_key(question, run), record.redacted(privacy).model_dump(mode="json"))
            advance(1)

    with Capture().attached() as capture:
        await work_together(partial(take, capture), min(concurrency, len(wanted)))
    return summarize(records_of(questions, repeat, journal), resumed)


async def _ask_one(question: GoldenQuestion, run: int, app: App, capture: Capture, timeout: float) -> Record:
    started = time.time_ns()
    # A separate task: what the application sets in the context does not reach the next question.
    asked = await asyncio.ensure_future(ask(app, question.question, capture, timeout))
    return record_of(question, run, app, asked, started)


def count_waiting(questions: Sequence[GoldenQuestion], repeat: int, journal: Journal) -> int:
    """Return how many questions are still to be asked, each repetition counted."""
    return sum(_key(question, run) not in journal for question, run in _askings(questions, repeat))


def records_of(questions: Sequence[GoldenQuestion], repeat: int, journal: Journal) -> Iterator[Record]:
    """Yield the records of a journal in the order of the questions, each with the rank of its target."""
    # Whether ids can be compared depends on the whole run, so records are read twice.
    ids = TargetIds(question.chunk_id for question in questions)
    for record in _recorded(questions, repeat, journal):
        ids.add(record.target, record.turn.passages)
        if ids.comparable:
            break
    for record in _recorded(questions, repeat, journal):
        yield place_target(record, ids) if record.turn.status != "error" else record


def _recorded(questions: Sequence[GoldenQuestion], repeat: int, journal: Journal) -> Iterator[Record]:
    for question in questions:
        for run in range(1, repeat + 1):
            key = _key(question, run)
            if key in journal:
                yield Record.model_validate(journal[key])


def keep_answers(
    records: Iterable[Record],
    questions: Sequence[GoldenQuestion],
    repeat: int,
    journal: Journal,
    privacy: PrivacyPolicy = NO_PRIVACY,
) -> None:
    """Copy records of an earlier run into the journal, so that only what is missing is asked.

    Args:
        records: of the earlier run.
        questions: of this run; records of other questions are ignored.
        repeat: how often each question is asked.
        journal: of this run.
        privacy: with which the earlier run has written its questions.
    """
    texts = {question.id: privacy.text(question.question) for question in questions}
    for record in records:
        same = record.turn.query == texts.get(record.id) and record.run <= repeat
        key = f"{record.run}/{record.id}"
        if same and key not in journal:
            # Ranks are computed again: they depend on the whole run.
            fresh = record.model_copy(update={"results": (), "rank": None, "missed": False})
            journal.append(key, fresh.model_dump(mode="json"))


def _askings(questions: Sequence[GoldenQuestion], repeat: int) -> Iterator[Asking]:
    for run in range(1, repeat + 1):
        for question in questions:
            yield question, run


def _key(question: GoldenQuestion, run: int) -> str:
    return f"{run}/{question.id}"
