"""An application over a test set: a record for each question and repetition."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from rageval_hooks.offline.apps.answers import Answer, UnreadableAnswerError, read_answer
from rageval_hooks.offline.apps.asking import Asked, ask
from rageval_hooks.offline.apps.loading import App
from rageval_hooks.offline.apps.ranks import rank_of
from rageval_hooks.offline.apps.turn_capture import Capture, joined
from rageval_hooks.offline.jobs.keyed_journal import KeyedJournal
from rageval_hooks.offline.jobs.progress import Advance
from rageval_hooks.offline.jobs.workers import work_together
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.testsets.testset import GoldenQuestion
from rageval_hooks.turn import ErrorInfo, Passage, Timing, Turn

__all__ = ["Ran", "keep_answers", "records_of", "run_questions"]


@dataclass
class Ran:
    """What came of it.

    Attributes:
        records: how many there are.
        failed: how many of them are errors, by the kind of error.
        first_error: one of these, in a line.
        targets: how many of the answered questions know their chunk.
        found: how many of these chunks were retrieved.
        without_passages: answers with which no passage was seen.
        resumed: records that were there when it began.
    """

    records: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    first_error: str | None = None
    targets: int = 0
    found: int = 0
    without_passages: int = 0
    resumed: int = 0

    @property
    def errors(self) -> int:
        """How many records are errors."""
        return sum(self.failed.values())

    def lines(self) -> Iterator[str]:
        """Yield what there is to say, line by line."""
        yield f"{self.records - self.errors} of {self.records} questions answered"
        if self.targets:
            yield f"the chunk with the answer was retrieved for {self.found} of {self.targets}"
        for kind, number in self.failed.most_common():
            yield f"  {number} failed: {kind}"
        if self.first_error is not None:
            yield f"  the first: {self.first_error}"
        if self.without_passages:
            yield (
                f"  {self.without_passages} answers without passages: if some were retrieved, have the application "
                "return (answer, passages)"
            )


async def run_questions(
    questions: Sequence[GoldenQuestion],
    app: App,
    journal: KeyedJournal,
    *,
    repeat: int = 1,
    concurrency: int = 4,
    timeout: float = 300.0,
    advance: Advance = lambda _: None,
) -> Ran:
    """Ask an application every question; each record is in the journal as soon as it is there.

    Args:
        questions: what is asked.
        app: who is asked.
        journal: of this work. What it has already is not asked again.
        repeat: how many times each question is asked.
        concurrency: questions at a time.
        timeout: seconds for each.
        advance: called when a question is done.
    """
    wanted = [(question, run) for run in range(1, repeat + 1) for question in questions]
    resumed = sum(_key(question, run) in journal for question, run in wanted)
    waiting = iter(wanted)

    async def take(capture: Capture) -> None:
        for question, run in waiting:
            key = _key(question, run)
            if key not in journal:
                started = time.time_ns()
                asked = await asyncio.ensure_future(ask(app, question.question, capture, timeout))
                journal.append(key, _record(question, run, app, asked, started).model_dump(mode="json"))
            advance(1)

    with Capture().attached() as capture:
        await work_together(partial(take, capture), min(concurrency, len(wanted)))
    ran = Ran(resumed=resumed)
    for record in records_of(questions, repeat, journal):
        _count(record, ran)
    return ran


def records_of(questions: Sequence[GoldenQuestion], repeat: int, journal: KeyedJournal) -> Iterator[Record]:
    """Yield the records of a journal, in the order of the questions, the repetitions of each together."""
    for question in questions:
        for run in range(1, repeat + 1):
            key = _key(question, run)
            if key in journal:
                yield Record.model_validate(journal[key])


def keep_answers(
    records: Iterable[Record], questions: Sequence[GoldenQuestion], repeat: int, journal: KeyedJournal
) -> None:
    """Take over the answers of an earlier run, so that only what failed there is asked again."""
    texts = {question.id: question.question for question in questions}
    for record in records:
        same = record.turn.query == texts.get(record.id) and record.run <= repeat
        key = f"{record.run}/{record.id}"
        if same and record.turn.status != "error" and key not in journal:
            journal.append(key, record.model_copy(update={"results": ()}).model_dump(mode="json"))


def _key(question: GoldenQuestion, run: int) -> str:
    return f"{run}/{question.id}"


def _record(question: GoldenQuestion, run: int, app: App, asked: Asked, started: int) -> Record:
    turn = _turn(question, app, asked, started)
    return Record(
        id=question.id,
        run=run,
        turn=turn,
        target=question.chunk_id,
        rank=rank_of(question, turn.passages),
        document=question.document,
    )


def _turn(question: GoldenQuestion, app: App, asked: Asked, started: int) -> Turn:
    seen = joined(asked.turns)
    error = None if asked.error is None else ErrorInfo.of(asked.error)
    answer = Answer()
    if error is None:
        try:
            answer = read_answer(asked.result)
        except UnreadableAnswerError as problem:
            # A retriever alone has no answer, but passages: enough for ranks.
            if not (app.framework and seen is not None and (seen.response or not seen.is_rag)):
                error = ErrorInfo.of(problem)
    turn = answer.turn or seen or Turn(name="app")
    response = (turn.response or answer.text) if app.framework else (answer.text or turn.response)
    style = {"style": question.style} if question.style else {}
    return turn.model_copy(
        update={
            "id": turn.id or question.id,
            "query": question.question,
            "response": response or "",
            "passages": _passages(answer, turn),
            "retrieval_queries": tuple(query for query in turn.retrieval_queries if query != question.question),
            "reference": question.reference if question.reference is not None else turn.reference,
            "timing": turn.timing or Timing(started_at=started, ended_at=time.time_ns()),
            "span": turn.span if turn.span is not None and turn.span.external else None,
            "status": "error" if error is not None else "ok" if turn.status == "error" else turn.status,
            "error": error,
            "metadata": {**turn.metadata, **style},
        }
    )


def _passages(answer: Answer, turn: Turn) -> tuple[Passage, ...]:
    """Return the passages that the application names, else those that were seen; the latter know more of the same."""
    if answer.passages is None:
        return turn.passages or (() if answer.context is None else (Passage(text=answer.context),))
    same = [passage.text for passage in answer.passages] == [passage.text for passage in turn.passages]
    return turn.passages if same else answer.passages


def _count(record: Record, ran: Ran) -> None:
    ran.records += 1
    error = record.turn.error
    if record.turn.status == "error" and error is not None:
        ran.failed[error.type] += 1
        if ran.first_error is None:
            ran.first_error = f"{error.type}: {error.message}"[:500]
        return
    if not record.turn.passages:
        ran.without_passages += 1
    if record.target is not None:
        ran.targets += 1
        ran.found += record.rank is not None
