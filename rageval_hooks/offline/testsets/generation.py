"""A test set from chunks: the judge writes questions about each chunk, and checks them in a second request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rageval_hooks.errors import JudgeError, JudgeRejectedError
from rageval_hooks.judges.base import Judge
from rageval_hooks.offline.jobs.budget import Budget, BudgetedJudge, BudgetSpentError
from rageval_hooks.offline.jobs.journal import Journal
from rageval_hooks.offline.jobs.running import Advance, work_together
from rageval_hooks.offline.records.record import Target
from rageval_hooks.offline.testsets.chunks import Chunk
from rageval_hooks.offline.testsets.linking import ChunkIndex
from rageval_hooks.offline.testsets.question_tasks import QuestionTask
from rageval_hooks.offline.testsets.questions import PROMPTS_VERSION, REASONS, draft, look_again
from rageval_hooks.offline.testsets.testset import GoldenQuestion, question_id
from rageval_hooks.text.wording import counted
from rageval_hooks.text.words import fold

__all__ = ["Generated", "Plan", "Unanswered", "generate", "plan_of", "work_of"]

Unanswered = Literal["mark", "unanswerable", "reject"]
"""What becomes of an ordinary question that its own chunk does not answer: it is kept with a mark, kept as a question
that the documents do not answer, or not kept."""

_PROMPT_TOKENS = 450
"""Approximate tokens of a request without the chunk."""

_CHARACTERS_PER_TOKEN = 4

# Chunks that are shown to the judge for the second look at unanswerable questions: those of the author, and the ones
# of the whole collection that are most similar to each question.
_NEAREST = 4


@dataclass
class Generated:
    """The result of a generation.

    Attributes:
        questions: the accepted and the marked questions, in the order of their chunks.
        rejected: number of rejected questions by reason, a key of :data:`REASONS`.
        failures: number of chunks without an answer of the judge, by error message.
        undone: chunks for which the budget was not sufficient.
        resumed: chunks that were done when it began.
    """

    questions: list[GoldenQuestion] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    undone: int = 0
    resumed: int = 0

    @property
    def complete(self) -> bool:
        """Return True if every chunk was processed."""
        return not self.failures and not self.undone

    @property
    def marked(self) -> int:
        """Number of questions for which the second look found no answer."""
        return sum(question.second_look is not None for question in self.questions)

    def lines(self) -> Iterator[str]:
        """Yield the summary for the user, line by line."""
        count = sum(self.rejected.values())
        yield f"{counted(len(self.questions), 'question')}, {count} rejected{':' if count else ''}"
        kinds = Counter(question.style for question in self.questions)
        if special := [f"{kinds[kind]} {kind}" for kind in ("multi-hop", "unanswerable") if kinds[kind]]:
            yield f"  {', '.join(special)}"
        if self.marked:
            yield f"  {self.marked} marked: {REASONS['unanswered']}"
        for reason, text in REASONS.items():
            if self.rejected[reason]:
                yield f"  {self.rejected[reason]} {text}"
        for reason, number in self.failures.most_common(5):
            yield f"  {counted(number, 'chunk')} without an answer of the judge: {reason}"
        if self.undone:
            yield f"  {counted(self.undone, 'chunk')} not asked about: the budget is used up"


@dataclass(frozen=True)
class Plan:
    """The remaining work.

    Attributes:
        calls: requests to the judge.
        tokens: approximate input tokens of these requests.
        dropped: finished chunks in the journal that would not be part of the test set.
    """

    calls: int
    tokens: int
    dropped: int


def plan_of(tasks: Sequence[QuestionTask], journal: Journal) -> Plan:
    """Return what is left to do.

    Args:
        tasks: what is asked about which chunks.
        journal: what is done.
    """
    calls = tokens = 0
    for task in tasks:
        # Two requests per chunk: one writes the questions, one checks them.
        waiting = (task.draft not in journal) + (task.look not in journal)
        calls += waiting
        tokens += waiting * (_PROMPT_TOKENS + task.characters // _CHARACTERS_PER_TOKEN)
    wanted = {task.draft for task in tasks}
    dropped = sum(key.startswith("draft/") and key not in wanted for key in journal.keys())  # noqa: SIM118 - not a mapping
    return Plan(calls, tokens, dropped)


def work_of(judge: Judge) -> dict[str, Any]:
    """Return what the answers in a journal depend on, apart from chunk and styles."""
    return {"command": "generate", "judge": str(judge), "prompts": PROMPTS_VERSION}


async def generate(
    tasks: Sequence[QuestionTask],
    judge: Judge,
    journal: Journal,
    *,
    index: ChunkIndex | None = None,
    concurrency: int = 4,
    budget: Budget | None = None,
    unanswered: Unanswered = "mark",
    advance: Advance = lambda _: None,
) -> Generated:
    """Generate questions about chunks.

    Each answer of the judge is in the journal at once: nothing is asked twice, even after interruptions.

    Args:
        tasks: what is asked about which chunks; see ``tasks_of``.
        judge: who writes the questions, and checks them.
        journal: of this work; it is kept.
        index: of all chunks of the documents, among which answers to unanswerable questions are looked for; of the
            chunks in ``tasks`` by default.
        concurrency: chunks at a time.
        budget: how much the judge may use.
        unanswered: what becomes of an ordinary question that its own chunk does not answer.
        advance: called when a chunk is done.

    Raises:
        JudgeRejectedError: the judge rejects every request: its key, model or address is wrong.
    """
    work = _Work(BudgetedJudge(judge, budget or Budget()), journal, advance, index or _index_of(tasks))
    # A chunk is done once its questions were checked.
    resumed = sum(task.look in journal for task in tasks)
    waiting = iter(tasks)

    async def take() -> None:
        for task in waiting:
            await work.do(task)

    await work_together(take, min(concurrency, len(tasks)))
    result = Generated(failures=work.failures, undone=work.undone, resumed=resumed)
    _collect(tasks, journal, result, unanswered)
    return result


def _index_of(tasks: Sequence[QuestionTask]) -> ChunkIndex:
    # Only unanswerable questions are compared with all chunks.
    is_needed = any(task.kind == "unanswerable" for task in tasks)
    return ChunkIndex([task.chunk for task in tasks] if is_needed else [])


class _Work:
    """Processes one chunk at a time, and counts failures."""

    def __init__(self, judge: BudgetedJudge, journal: Journal, advance: Advance, index: ChunkIndex) -> None:
        self.judge = judge
        self.index = index
        self.journal = journal
        self.advance = advance
        self.failures: Counter[str] = Counter()
        self.undone = 0

    async def do(self, task: QuestionTask) -> None:
        try:
            # Both answers are paid for, so each is kept as soon as it exists.
            if task.draft not in self.journal:
                self._keep(task.draft, "pairs", await draft(self.judge, task.kind, task.chunks, task.styles))
            if task.look not in self.journal:
                pairs = self.journal[task.draft]["pairs"]
                # Without a question there is nothing to check.
                chunks = self._candidates(task, pairs) if task.kind == "unanswerable" else task.chunks
                reasons = await look_again(self.judge, task.kind, chunks, pairs) if pairs else []
                self._keep(task.look, "reasons", reasons)
        except BudgetSpentError:
            self.undone += 1
        except JudgeError as error:
            # After the first answer the judge works: an error is about one chunk.
            if not len(self.journal) and _is_about_the_judge(error):
                raise
            self.failures[error.message] += 1
        self.advance(1)

    def _candidates(self, task: QuestionTask, pairs: Sequence[Mapping[str, str]]) -> list[Chunk]:
        """Return the chunks in which an answer to the questions would be: the author saw only a few of them."""
        found = {chunk.id: chunk for chunk in task.chunks}
        for pair in pairs:
            found |= {chunk.id: chunk for chunk in self.index.nearest(pair["question"], _NEAREST)}
        return list(found.values())

    def _keep(self, key: str, name: str, found: Any) -> None:
        self.journal.append(key, {name: found}, self.judge.budget.spent.model_dump())


def _is_about_the_judge(error: JudgeError) -> bool:
    """Return True if every request would fail like this one: a wrong key, model or address."""
    return isinstance(error, JudgeRejectedError) and error.details.get("status") not in (400, 422)


def _collect(tasks: Sequence[QuestionTask], journal: Journal, result: Generated, unanswered: Unanswered) -> None:
    seen: set[str] = set()
    for task in tasks:
        if task.look not in journal:
            continue
        pairs, reasons = journal[task.draft]["pairs"], journal[task.look]["reasons"]
        result.rejected["missing"] += len(task.styles) - len(pairs)
        for pair, reason in zip(pairs, reasons, strict=True):
            # "When did it open?" and "when did it open" are the same question.
            asked = " ".join(fold(pair["question"]).split())
            if reason in (None, "unanswered") and asked in seen:
                reason = "duplicate"
            if reason == "unanswered" and task.kind == "plain" and unanswered != "reject":
                seen.add(asked)
                result.questions.append(_marked_question(pair, task, unanswered))
                continue
            if reason is not None:
                result.rejected[reason] += 1
                continue
            seen.add(asked)
            result.questions.append(_question(pair, task))


def _marked_question(pair: dict[str, str], task: QuestionTask, unanswered: Unanswered) -> GoldenQuestion:
    """Return a question that its own chunk does not answer. Another chunk may, so it is only marked by default."""
    # The answer that was written is wrong or guessed, and the chunk is no target of retrieval.
    return GoldenQuestion(
        id=question_id(pair["question"], None),
        question=pair["question"],
        document=task.chunk.document,
        style=pair["style"],
        answerable=unanswered != "unanswerable",
        second_look="unanswered",
    )


def _question(pair: dict[str, str], task: QuestionTask) -> GoldenQuestion:
    chunk = task.chunk
    # An unanswerable question has neither an answer nor a chunk that should be retrieved.
    if task.kind == "unanswerable":
        return GoldenQuestion(
            id=question_id(pair["question"], None),
            question=pair["question"],
            document=chunk.document,
            style=pair["style"],
            answerable=False,
        )
    return GoldenQuestion(
        id=question_id(pair["question"], chunk.id),
        question=pair["question"],
        reference=pair["answer"],
        chunk_id=chunk.id,
        document=chunk.document,
        style=pair["style"],
        chunk=chunk.text,
        more_chunks=tuple(Target(id=other.id, text=other.text, document=other.document) for other in task.others),
    )
