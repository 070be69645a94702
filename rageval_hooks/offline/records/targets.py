"""Where the target passage, which holds the answer, is among the retrieved passages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rageval_hooks.offline.records.record import Record
from rageval_hooks.text.words import fold
from rageval_hooks.turn import Passage

# Names of the id in the metadata of vector stores and of test sets.
_METADATA_IDS = ("chunk_id", "id", "_id", "node_id", "passage_id", "doc_id")
_LEAST_SHARE = 0.5
BETWEEN_TEXTS = "\n\n\n"
"""Separates several texts of a target: chunks have at most one blank line between paragraphs."""


class TargetIds:
    """Says whether the ids of target passages and those of retrieved passages can be compared.

    The ids of a test set that was generated from files are hashes, which no vector store knows. A target that is not
    found by such an id is unknown, not missed. Ids are comparable once a retrieved passage has the id of any target.

    Args:
        targets: ids of the targets that are known from the start.
    """

    def __init__(self, targets: Iterable[str | None] = ()) -> None:
        self._targets = {target for target in targets if target}
        self._passages: set[str] = set()
        self.comparable = False

    def add(self, target: str | None, passages: Iterable[Passage]) -> None:
        """Take in a target and the passages that were retrieved for it."""
        if self.comparable:
            return
        if target is not None:
            self._targets.add(target)
        self._passages.update(*map(_ids_of, passages))
        self.comparable = not self._targets.isdisjoint(self._passages)


def place_target(record: Record, ids: TargetIds) -> Record:
    """Return a record with the rank of its target passage, or with the fact that it was missed.

    A rank that the record has already is kept. Without passages, and if neither the text of the target nor a comparable
    id is known, both stay unknown.
    """
    # Without passages it is not known what the retriever found.
    if record.rank is not None or record.missed or not record.has_target or not record.turn.passages:
        return record
    rank = rank_of_all(record)
    if rank is not None:
        return record.model_copy(update={"rank": rank})
    # Text can always be compared. An id that no store knows says nothing.
    return record.model_copy(update={"missed": True}) if ids.comparable or have_texts(record) else record


def rank_of_all(record: Record) -> int | None:
    """Return the rank up to which every target of a record was retrieved; None if one of them was not."""
    last: int | None = None
    for target in record.targets:
        rank = target_rank(target.id, target.text, record.turn.passages)
        # A multi-hop question needs all of its passages.
        if rank is None:
            return None
        last = max(rank, last or rank)
    return last


def have_texts(record: Record) -> bool:
    """Return True if the texts of all targets are known, so that a target that is not found was not retrieved."""
    return record.has_target and all(target.text is not None for target in record.targets)


def target_rank(target: str | None, text: str | None, passages: Sequence[Passage]) -> int | None:
    """Return the rank of the first passage that is the target.

    A passage is the target if it has the target's id, as its own or in its metadata; or if it holds the target's text,
    or at least half of it. White space, case and typographic variants make no difference.

    Args:
        target: id of the target.
        text: text of the target; several texts are separated by blank lines, and any of them counts.
        passages: what was retrieved, in order.

    Returns:
        The rank from 1; None if no passage is the target.
    """
    wanted = [part for part in map(_flat, (text or "").split(BETWEEN_TEXTS)) if part]
    for rank, passage in enumerate(passages, 1):
        if target is not None and target in _ids_of(passage):
            return rank
        found = _flat(passage.text) if wanted else ""
        for part in wanted:
            # Stores cut texts into other chunks. Most of the target is enough, a shared heading is not.
            if part in found or (len(found) >= _LEAST_SHARE * len(part) and found in part):
                return rank
    return None


def _ids_of(passage: Passage) -> set[str]:
    """Return the ids that a passage has, its own and those in its metadata."""
    ids = [passage.id, *map(passage.metadata.get, _METADATA_IDS)]
    return {str(value) for value in ids if isinstance(value, (str, int, float))}


def _flat(text: str) -> str:
    return " ".join(fold(text).split())
