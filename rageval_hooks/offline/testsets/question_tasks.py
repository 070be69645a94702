"""What is asked about which chunks: the kind, the styles and the keys in the journal of each request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, cycle, islice
from typing import Literal

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.testsets.chunks import Chunk, spread_order
from rageval_hooks.offline.testsets.linking import ChunkIndex
from rageval_hooks.runtime.lazy import cached_property

Kind = Literal["plain", "multi-hop", "unanswerable"]

# Chunks that the author of an unanswerable question sees next to its own: they show what the collection does answer.
_NEIGHBORS = 2


@dataclass(frozen=True, kw_only=True)
class Mix:
    """The shares of special questions in a test set; the others are about one chunk each.

    Attributes:
        multi_hop: questions that only two chunks together answer.
        unanswerable: questions that the documents do not answer.

    Raises:
        ConfigurationError: a share is not between 0 and 1, or both together are more than 1.
    """

    multi_hop: float = 0.0
    unanswerable: float = 0.0

    def __post_init__(self) -> None:
        for option, share in (("--multi-hop", self.multi_hop), ("--unanswerable", self.unanswerable)):
            if not 0 <= share <= 1:
                raise ConfigurationError(f"{option} is {share:g}: it must be a share between 0 and 1, such as 0.2")
        if self.multi_hop + self.unanswerable > 1:
            raise ConfigurationError(
                f"--multi-hop {self.multi_hop:g} and --unanswerable {self.unanswerable:g} are more than 1 together"
            )

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
    def characters(self) -> int:
        """Length of all texts together."""
        return sum(len(chunk.text) for chunk in self.chunks)

    @cached_property
    def draft(self) -> str:
        """Key of the questions in the journal."""
        return f"draft/{self._name}"

    @cached_property
    def look(self) -> str:
        """Key of the second look in the journal."""
        # A document that is added later may answer the question.
        return "/".join(filter(None, ("look", self._name, self.collection)))

    @cached_property
    def _name(self) -> str:
        # Ids of a store stay when a text changes, but the questions are about the text.
        ends = chain.from_iterable((other.id, _hash(other)) for other in self.others)
        return "/".join((self.chunk.id, _hash(self.chunk), "+".join(self.styles), *ends))


def _hash(chunk: Chunk) -> str:
    return blake2b(chunk.text.encode(), digest_size=8).hexdigest()


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
    tasks: list[QuestionTask] = []
    for chunk in chunks:
        own = tuple(islice(turns, per_chunk))
        kind = kinds[chunk.id]
        others = () if kind == "plain" else tuple(index.linked(chunk, 1 if kind == "multi-hop" else _NEIGHBORS))
        if kind == "plain" or (kind == "multi-hop" and not others):
            tasks.append(QuestionTask("plain", chunk, own))
        else:
            collection = index.digest if kind == "unanswerable" else ""
            tasks.append(QuestionTask(kind, chunk, (kind,) * per_chunk, others, collection))
    return tasks
