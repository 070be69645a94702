"""A test set from chunks: the judge writes questions about each, and looks at them a second time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from rageval_hooks.errors import JudgeError, JudgeRejectedError
from rageval_hooks.judges.base import Judge
from rageval_hooks.offline.jobs.budget import Budget, BudgetedJudge, BudgetSpentError
from rageval_hooks.offline.jobs.keyed_journal import KeyedJournal
from rageval_hooks.offline.jobs.progress import Advance
from rageval_hooks.offline.jobs.workers import work_together
from rageval_hooks.offline.testsets.chunks import Chunk
from rageval_hooks.offline.testsets.questions import PROMPTS_VERSION, REASONS, draft, second_look
from rageval_hooks.offline.testsets.testset import GoldenQuestion, question_id
from rageval_hooks.text.wording import counted
from rageval_hooks.text.words import fold

__all__ = ["Generated", "generate", "work_of"]


@dataclass
class Generated:
    """What came of it.

    Attributes:
        questions: the good ones, in the order of their chunks.
        left_out: why the others are not among them, a key of :data:`REASONS` each, and how many there are.
        failures: why the judge gave no answer about a chunk, and how many there are.
        undone: chunks that the budget did not suffice for.
        resumed: chunks that were done when it began.
    """

    questions: list[GoldenQuestion] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    undone: int = 0
    resumed: int = 0

    @property
    def complete(self) -> bool:
        """Whether every chunk was asked about."""
        return not self.failures and not self.undone

    def lines(self) -> Iterator[str]:
        """Yield what there is to say, line by line."""
        count = sum(self.left_out.values())
        yield f"{counted(len(self.questions), 'question')}, {count} left out{':' if count else ''}"
        for reason, text in REASONS.items():
            if self.left_out[reason]:
                yield f"  {self.left_out[reason]} {text}"
        for reason, number in self.failures.most_common(5):
            yield f"  {counted(number, 'chunk')} without an answer of the judge: {reason}"
        if self.undone:
            yield f"  {counted(self.undone, 'chunk')} not asked about: the budget is used up"


def work_of(judge: Judge) -> dict[str, Any]:
    """Return what the answers in a journal depend on, beside chunk and styles."""
    return {"command": "generate", "judge": str(judge), "prompts": PROMPTS_VERSION}


async def generate(
    chunks: Sequence[Chunk],
    judge: Judge,
    journal: KeyedJournal,
    *,
    styles: Sequence[str] = ("factual",),
    per_chunk: int = 1,
    concurrency: int = 4,
    budget: Budget | None = None,
    advance: Advance = lambda _: None,
) -> Generated:
    """Make questions about chunks.

    What the judge answers is kept in the journal at once: nothing is asked twice, however often it is interrupted.

    Args:
        chunks: what the questions are about.
        judge: who writes them, and checks them.
        journal: of this work; it is left as it is in the end.
        styles: taken in turn.
        per_chunk: questions about each chunk.
        concurrency: chunks at a time.
        budget: how much the judge may take.
        advance: called when a chunk is done.

    Raises:
        JudgeRejectedError: the judge takes no request at all: its key, model or address is wrong.
    """
    work = _Work(BudgetedJudge(judge, budget or Budget()), journal, advance)
    places = [_Place(chunk, _styles(styles, index, per_chunk)) for index, chunk in enumerate(chunks)]
    resumed = sum(place.look in journal for place in places)
    waiting = iter(places)

    async def take() -> None:
        for place in waiting:
            await work.do(place)

    await work_together(take, min(concurrency, len(places)))
    result = Generated(failures=work.failures, undone=work.undone, resumed=resumed)
    _collect(places, journal, result)
    return result


def _styles(styles: Sequence[str], index: int, per_chunk: int) -> tuple[str, ...]:
    return tuple(styles[(index * per_chunk + number) % len(styles)] for number in range(per_chunk))


class _Place:
    """A chunk, the styles of the questions about it, and the keys of the answers in the journal."""

    def __init__(self, chunk: Chunk, styles: tuple[str, ...]) -> None:
        self.chunk = chunk
        self.styles = styles
        text = blake2b(chunk.text.encode(), digest_size=8).hexdigest()
        name = f"{chunk.id}/{text}/{'+'.join(styles)}"
        self.draft = f"draft/{name}"
        self.look = f"look/{name}"


class _Work:
    """Asks about one chunk at a time, and remembers what went wrong."""

    def __init__(self, judge: BudgetedJudge, journal: KeyedJournal, advance: Advance) -> None:
        self.judge = judge
        self.journal = journal
        self.advance = advance
        self.failures: Counter[str] = Counter()
        self.undone = 0

    async def do(self, place: _Place) -> None:
        try:
            if place.draft not in self.journal:
                self._keep(place.draft, "pairs", await draft(self.judge, place.chunk, place.styles))
            if place.look not in self.journal:
                pairs = self.journal[place.draft]["pairs"]
                self._keep(place.look, "reasons", await second_look(self.judge, place.chunk, pairs))
        except BudgetSpentError:
            self.undone += 1
        except JudgeError as error:
            if not len(self.journal) and _is_about_the_judge(error):
                raise
            self.failures[error.message] += 1
        self.advance(1)

    def _keep(self, key: str, name: str, found: Any) -> None:
        self.journal.append(key, {name: found, "spent": self.judge.budget.spent.model_dump()})


def _is_about_the_judge(error: JudgeError) -> bool:
    """Whether every request would fail in this way: a wrong key, model or address, and not a question it dislikes."""
    return isinstance(error, JudgeRejectedError) and error.details.get("status") not in (400, 422)


def _collect(places: Sequence[_Place], journal: KeyedJournal, result: Generated) -> None:
    seen: set[str] = set()
    for place in places:
        if place.look not in journal:
            continue
        pairs, reasons = journal[place.draft]["pairs"], journal[place.look]["reasons"]
        result.left_out["missing"] += len(place.styles) - len(pairs)
        for pair, reason in zip(pairs, reasons, strict=True):
            asked = " ".join(fold(pair["question"]).split())
            if reason is None and asked in seen:
                reason = "duplicate"
            if reason is not None:
                result.left_out[reason] += 1
                continue
            seen.add(asked)
            result.questions.append(_question(pair, place.chunk))


def _question(pair: dict[str, str], chunk: Chunk) -> GoldenQuestion:
    return GoldenQuestion(
        id=question_id(pair["question"], chunk.id),
        question=pair["question"],
        reference=pair["answer"],
        chunk_id=chunk.id,
        document=chunk.document,
        style=pair["style"],
        chunk=chunk.text,
    )
