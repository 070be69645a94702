"""A test set from chunks: the judge writes questions about each chunk, and checks them in a second request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import cycle, islice
from typing import Any, Literal

from rageval_hooks.errors import ConfigurationError, JudgeError, JudgeRejectedError
from rageval_hooks.judges.base import BudgetUsedUpError, Judge
from rageval_hooks.offline.command_judge import Budget, BudgetedJudge
from rageval_hooks.offline.journal import Journal
from rageval_hooks.offline.records.record import TargetText
from rageval_hooks.offline.running import Advance, work_together
from rageval_hooks.offline.testsets.chunks import Chunk, ChunkIndex, spread_order
from rageval_hooks.offline.testsets.questions import REASONS, draft, look_again
from rageval_hooks.offline.testsets.testset import GoldenQuestion, question_id
from rageval_hooks.text.wording import counted
from rageval_hooks.text.words import fold

Kind = Literal["plain", "multi-hop", "unanswerable"]

# Chunks that the author of an unanswerable question sees next to its own: they show what the collection does answer.
_NEIGHBORS = 2

# Chunks that are shown to the judge for the second look at unanswerable questions: those of the author, and the ones
# of the whole collection that are most similar to each question.
_NEAREST = 4

# Of a request without the chunk, approximately, and of an answer: about two sentences.
_PROMPT_TOKENS, _ANSWER_TOKENS = 450, 60

_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class Mix:
    """The shares of special questions in a test set; the others are about one chunk each.

    Attributes:
        multi_hop: questions that only two chunks together answer.
        unanswerable: questions that the documents do not answer.

    Raises:
        ConfigurationError: a share is below 0, or both together are more than 1.
    """

    multi_hop: float = 0.0
    unanswerable: float = 0.0

    def __post_init__(self) -> None:
        # NaN fails every comparison.
        if not (self.multi_hop >= 0 and self.unanswerable >= 0 and self.multi_hop + self.unanswerable <= 1):
            given = f"--multi-hop is {self.multi_hop:g} and --unanswerable {self.unanswerable:g}"
            raise ConfigurationError(f"{given}: give shares from 0 to 1, such as 0.2, and at most 1 together")

    def kinds(self) -> Iterator[Kind]:
        """Yield the kinds of questions without end, such that each beginning has the shares as exactly as possible."""
        plain = 1 - self.multi_hop - self.unanswerable
        shares: dict[Kind, float] = {"plain": plain, "multi-hop": self.multi_hop, "unanswerable": self.unanswerable}
        # By kind: by how much it is behind its share.
        behind = dict.fromkeys(shares, 0.0)
        while True:
            for kind, share in shares.items():
                behind[kind] += share
            # Of equals, the special kinds come first: short test sets should have them, too.
            due = max(reversed(behind), key=behind.__getitem__)
            behind[due] -= 1
            yield due


@dataclass(frozen=True)
class QuestionTask:
    """One chunk with the questions about it.

    Attributes:
        kind: what kind of questions.
        chunk: the chunk.
        styles: of each question.
        others: the second chunk of multi-hop questions; for unanswerable ones, chunks of the same subject.
        collection: hash of all chunks, for questions that none of them may answer.
    """

    kind: Kind
    chunk: Chunk
    styles: tuple[str, ...]
    others: tuple[Chunk, ...] = ()
    collection: str = ""

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks that the author of the questions sees."""
        return (self.chunk, *self.others)

    @property
    def draft(self) -> str:
        """Key of the questions in the journal."""
        return "/".join(("draft", *self._names()))

    @property
    def look(self) -> str:
        """Key of the second look in the journal."""
        # A document that is added later may answer the question.
        return "/".join(("look", *self._names(), *([self.collection] if self.collection else [])))

    def _names(self) -> list[str]:
        # Ids of a store stay when a text changes, but the questions are about the text.
        names = [[chunk.id, blake2b(chunk.text.encode(), digest_size=8).hexdigest()] for chunk in self.chunks]
        return [*names[0], "+".join(self.styles), *(part for other in names[1:] for part in other)]


def tasks_of(
    chunks: Sequence[Chunk], *, styles: Sequence[str], per_chunk: int, mix: Mix, index: ChunkIndex, seed: int
) -> list[QuestionTask]:
    """Return what is to be asked.

    Chunks keep their kind when a larger limit adds others. A chunk to which no other is linked gets plain questions
    instead of multi-hop ones.

    Args:
        chunks: what the questions are about.
        styles: of plain questions, taken in turn.
        per_chunk: questions about each chunk.
        mix: shares of multi-hop and unanswerable questions.
        index: of all chunks of the documents; empty if all questions are plain.
        seed: that chose the chunks.
    """
    # Kinds follow the order in which a growing limit adds chunks.
    kinds = dict(zip((chunk.id for chunk in spread_order(chunks, seed)), mix.kinds(), strict=False))
    turns = cycle(styles)
    digest = index.digest()
    tasks: list[QuestionTask] = []
    for chunk in chunks:
        own = tuple(islice(turns, per_chunk))
        kind = kinds[chunk.id]
        others = () if kind == "plain" else tuple(index.linked(chunk, 1 if kind == "multi-hop" else _NEIGHBORS))
        if kind == "plain" or (kind == "multi-hop" and not others):
            tasks.append(QuestionTask("plain", chunk, own))
        else:
            collection = digest if kind == "unanswerable" else ""
            tasks.append(QuestionTask(kind, chunk, (kind,) * per_chunk, others, collection))
    return tasks


# --------------------------------------------------------------------------- asking


@dataclass
class Generated:
    """The result of a generation.

    Attributes:
        questions: the accepted and the marked questions, in the order of their chunks.
        rejected: number of rejected questions by reason, a key of :data:`REASONS`.
        failures: number of chunks without an answer of the judge, by error message.
        undone: chunks for which the budget was not sufficient.
    """

    questions: list[GoldenQuestion] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    undone: int = 0

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


def plan_of(tasks: Sequence[QuestionTask], journal: Journal) -> tuple[int, int, int]:
    """Return what is left to do: requests to the judge, about how many input tokens and output tokens they have.

    Args:
        tasks: what is asked about which chunks.
        journal: what is done.
    """
    calls = tokens = 0
    for task in tasks:
        # Two requests per chunk: one writes the questions, one checks them.
        waiting = (task.draft not in journal) + (task.look not in journal)
        calls += waiting
        characters = sum(len(chunk.text) for chunk in task.chunks)
        tokens += waiting * (_PROMPT_TOKENS + characters // _CHARACTERS_PER_TOKEN)
    return calls, tokens, calls * _ANSWER_TOKENS


def dropped_by(tasks: Sequence[QuestionTask], journal: Journal) -> int:
    """Return how many finished chunks in the journal would not be part of the test set."""
    wanted = {task.draft for task in tasks}
    return sum(key.startswith("draft/") and key not in wanted for key in journal.keys())  # noqa: SIM118 - not a mapping


async def generate(
    tasks: Sequence[QuestionTask],
    judge: Judge,
    journal: Journal,
    *,
    index: ChunkIndex,
    concurrency: int,
    budget: Budget,
    unanswered: str,
    advance: Advance,
) -> Generated:
    """Generate questions about chunks.

    Each answer of the judge is in the journal at once: nothing is asked twice, even after interruptions.

    Args:
        tasks: what is asked about which chunks; see ``tasks_of``.
        judge: who writes the questions, and checks them.
        journal: of this work; it is kept.
        index: of all chunks of the documents, among which answers to unanswerable questions are looked for.
        concurrency: chunks at a time.
        budget: how much the judge may use.
        unanswered: what becomes of an ordinary question that its own chunk does not answer: it is kept with a mark
            (``mark``), kept as a question that the documents do not answer (``unanswerable``), or not kept
            (``reject``).
        advance: called when a chunk is done.

    Raises:
        JudgeRejectedError: the judge rejects every request: its key, model or address is wrong.
    """
    writer = BudgetedJudge(judge, budget)
    result = Generated()

    async def process(task: QuestionTask) -> None:
        # Both answers are paid for, so each is kept as soon as it exists.
        if task.draft not in journal:
            pairs = await draft(writer, task.kind, task.chunks, task.styles)
            journal.append(task.draft, {"pairs": pairs}, budget.spent.model_dump())
        if task.look not in journal:
            pairs = journal[task.draft]["pairs"]
            chunks = {chunk.id: chunk for chunk in task.chunks}
            # The author saw only a few of the chunks that may answer a question that should have no answer.
            for pair in pairs if task.kind == "unanswerable" else ():
                chunks |= {chunk.id: chunk for chunk in index.nearest(pair["question"], _NEAREST)}
            # Without a question there is nothing to check.
            reasons = await look_again(writer, task.kind, list(chunks.values()), pairs) if pairs else []
            journal.append(task.look, {"reasons": reasons}, budget.spent.model_dump())

    # Workers share this iterator: each chunk is taken once.
    waiting = iter(tasks)

    async def work() -> None:
        for task in waiting:
            try:
                await process(task)
            except BudgetUsedUpError:
                result.undone += 1
            except JudgeError as error:
                # After the first answer the judge works: an error is about one chunk. Before it, every request would
                # fail like this one, unless it was refused for its text: a wrong key, model or address.
                is_about_text = error.details.get("status") in (400, 422)
                if not len(journal) and isinstance(error, JudgeRejectedError) and not is_about_text:
                    raise
                result.failures[error.message] += 1
            advance(1)

    await work_together(work, min(concurrency, len(tasks)))
    _collect(tasks, journal, result, unanswered)
    return result


def _collect(tasks: Sequence[QuestionTask], journal: Journal, result: Generated, unanswered: str) -> None:
    """Add the accepted questions to the result, and count the rejected ones."""
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
            is_marked = reason == "unanswered" and task.kind == "plain" and unanswered != "reject"
            if reason is not None and not is_marked:
                result.rejected[reason] += 1
                continue
            seen.add(asked)
            is_answerable = task.kind != "unanswerable" and not (is_marked and unanswered == "unanswerable")
            chunk = task.chunk
            answer: dict[str, Any] = {"id": question_id(pair["question"], None)}
            # An unanswerable question has no answer, and no chunk that should be retrieved. A marked one may be
            # answered by another chunk; the answer that was written is wrong or guessed.
            if is_answerable and not is_marked:
                answer = {
                    "id": question_id(pair["question"], chunk.id),
                    "reference": pair["answer"],
                    "chunk_id": chunk.id,
                    "chunk": chunk.text,
                    "more_chunks": tuple(TargetText(id=o.id, text=o.text, document=o.document) for o in task.others),
                }
            result.questions.append(
                GoldenQuestion(
                    question=pair["question"],
                    document=chunk.document,
                    style=pair["style"],
                    answerable=is_answerable,
                    second_look="unanswered" if is_marked else None,
                    **answer,
                )
            )
