"""Where the chunk that holds the answer stands among the passages that were retrieved."""

from __future__ import annotations

from collections.abc import Sequence

from rageval_hooks.offline.testsets.testset import GoldenQuestion
from rageval_hooks.text.words import fold
from rageval_hooks.turn import Passage

__all__ = ["rank_of"]

_METADATA_IDS = ("chunk_id", "id", "_id", "node_id", "passage_id", "doc_id")
_LEAST_SHARE = 0.5


def rank_of(question: GoldenQuestion, passages: Sequence[Passage]) -> int | None:
    """Return the rank of the question's chunk.

    A passage is the chunk if it has its id, as its own or in its metadata. Where none has, by text: the chunk stands in
    the passage, or the passage is at least half of the chunk. White space, case and typographic forms count as alike.

    Returns:
        The position of the first such passage, from 1; None if there is none, or the chunk is not known.
    """
    if question.chunk_id is not None:
        for rank, passage in enumerate(passages, 1):
            if question.chunk_id in _ids(passage):
                return rank
    chunk = _flat(question.chunk or "")
    if not chunk:
        return None
    for rank, passage in enumerate(passages, 1):
        text = _flat(passage.text)
        if chunk in text or (len(text) >= _LEAST_SHARE * len(chunk) and text in chunk):
            return rank
    return None


def _ids(passage: Passage) -> set[str]:
    found = [passage.id, *(passage.metadata.get(name) for name in _METADATA_IDS)]
    return {str(value) for value in found if value is not None and not isinstance(value, (dict, list))}


def _flat(text: str) -> str:
    return " ".join(fold(text).split())
