"""Measures of a ranking: precision@k, ap@k and the rank of the first relevant or of a known passage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rageval_hooks.turn import Passage

__all__ = [
    "average_precision_at",
    "first_relevant",
    "hit_at",
    "precision_at",
    "rank_of_target",
    "reciprocal_rank",
]


def precision_at(relevant: Sequence[bool], k: int) -> float:
    """Return the share of relevant passages among the first ``k``.

    Args:
        relevant: True for each passage that is relevant, best rank first.
        k: at least 1; a shorter list has nothing relevant beyond its end.
    """
    return sum(map(bool, relevant[:k])) / k


def average_precision_at(relevant: Sequence[bool], k: int) -> float:
    """Return the mean, over the relevant ranks among the first ``k``, of the precision there; 0 without such ranks.

    The usual definition divides by the number of relevant documents in the collection. That is not known here, since
    only retrieved passages are graded.
    """
    ranks = _relevant_ranks(relevant[:k])
    # The precision at the third relevant rank is 3 / rank.
    precisions = [found / rank for found, rank in enumerate(ranks, start=1)]
    return sum(precisions) / len(ranks) if ranks else 0.0


def _relevant_ranks(relevant: Iterable[bool]) -> list[int]:
    """Return the ranks, from 1, of the relevant passages."""
    return [rank for rank, is_relevant in enumerate(relevant, start=1) if is_relevant]


def first_relevant(relevant: Iterable[bool]) -> int | None:
    """Return the rank, from 1, of the first relevant passage; None without one."""
    return min(_relevant_ranks(relevant), default=None)


def rank_of_target(
    passages: Sequence[Passage], target_id: str | None = None, target_text: str | None = None
) -> int | None:
    """Return the rank, from 1, of a known passage; None if it was not retrieved.

    Args:
        passages: the retrieved passages, best first.
        target_id: the id of the passage that has the answer.
        target_text: its text, used if no passage has the id; white space does not matter.
    """
    wanted = (target_text or "").split()
    # Neither a target without an id nor one without a text is any passage that lacks it.
    if target_id is not None:
        by_id = first_relevant(passage.id == target_id for passage in passages)
        if by_id is not None:
            return by_id
    if not wanted:
        return None
    return first_relevant(passage.text.split() == wanted for passage in passages)


def hit_at(rank: int | None, k: int) -> bool:
    """Return True if a rank is among the first ``k``."""
    return rank is not None and rank <= k


def reciprocal_rank(rank: int | None) -> float:
    """Return 1 / rank; 0 for None."""
    return 0.0 if rank is None else 1 / rank
