"""How high the relevant passages stand: precision@k, ap@k and mrr, from grades or from a known target.

Source: seed 004 (from UMBRELA's grades) and seed 003 (a known target passage).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from rageval_hooks.errors import ConfigurationError, JudgeError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition
from rageval_hooks.metrics.support.batching import Labels, combined, with_spent
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.metrics.umbrela import graded, paid_grading, planned_grading
from rageval_hooks.score import Result
from rageval_hooks.turn import Passage

__all__ = [
    "Ranking",
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
        relevant: whether each passage is, in their order.
        k: at least 1; a list that is shorter has nothing relevant beyond its end.
    """
    return sum(map(bool, relevant[:k])) / k


def average_precision_at(relevant: Sequence[bool], k: int) -> float:
    """Return the mean, over the relevant ranks among the first ``k``, of the precision there; 0 if there are none.

    The recall that the usual definition has in its denominator is not known here: only what was retrieved was graded.
    """
    ranks = [rank for rank, is_relevant in enumerate(relevant[:k], start=1) if is_relevant]
    return sum(found / rank for found, rank in enumerate(ranks, start=1)) / len(ranks) if ranks else 0.0


def first_relevant(relevant: Iterable[bool]) -> int | None:
    """Return the rank, from 1, of the first relevant passage; None if there is none."""
    return next((rank for rank, is_relevant in enumerate(relevant, start=1) if is_relevant), None)


def rank_of_target(
    passages: Sequence[Passage], target_id: str | None = None, target_text: str | None = None
) -> int | None:
    """Return the rank, from 1, of a known passage; None when it was missed.

    Args:
        passages: what was retrieved, best first.
        target_id: the id of the passage that holds the answer.
        target_text: its text, for where no passage has that id; white space does not matter.
    """
    if target_id is not None:
        rank = first_relevant(passage.id == target_id for passage in passages)
        if rank is not None:
            return rank
    wanted = (target_text or "").split()
    return first_relevant(passage.text.split() == wanted for passage in passages) if wanted else None


def hit_at(rank: int | None, k: int) -> bool:
    """Return whether a rank is among the first ``k``."""
    return rank is not None and rank <= k


def reciprocal_rank(rank: int | None) -> float:
    """Return 1 / rank; 0 for None."""
    return 0.0 if rank is None else 1 / rank


def _definitions(ks: Sequence[int]) -> tuple[ScoreDefinition, ...]:
    return (
        *(
            ScoreDefinition(name=f"precision@{k}", description=f"share of the first {k} passages that are relevant")
            for k in ks
        ),
        *(
            ScoreDefinition(
                name=f"ap@{k}",
                description=f"mean of the precision at the ranks of the relevant ones among the first {k} passages",
            )
            for k in ks
        ),
        ScoreDefinition(name="mrr", description="1 / rank of the first relevant passage; 0 if there is none"),
    )


class Ranking(Metric):
    """precision@k, ap@k and mrr, from the UMBRELA grades of the turn, which are asked for once.

    A score that hangs on a passage without a grade is failed, not guessed. A passage without text is not relevant.

    Args:
        relevant: the least grade of a relevant passage.
        ks: at which ranks to cut.

    Raises:
        ConfigurationError: the grade is none, or a rank is less than 1.
    """

    name: ClassVar[str] = "ranking"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = _definitions((1, 3, 5))
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages")
    family: ClassVar[str] = "retrieval"
    source: ClassVar[str] = "seed 004; arXiv 2406.06519 for the grades"
    calls: ClassVar[str] = "those of umbrela, shared"

    def __init__(self, relevant: int = 2, *, ks: Sequence[int] = (1, 3, 5)) -> None:
        if relevant not in (1, 2, 3):
            raise ConfigurationError(f"the least grade of a relevant passage is 1, 2 or 3, not {relevant!r}")
        if not ks or any(k < 1 for k in ks):
            raise ConfigurationError(f"ks are ranks from 1, not {ks!r}")
        self.relevant = relevant
        self.ks = tuple(dict.fromkeys(ks))
        self.scores = _definitions(self.ks)  # type: ignore[misc]  # as many as there are ranks

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return the grading's calls."""
        return (planned_grading(size),)

    async def evaluate(self, case: JudgedTurn) -> Iterable[Result]:
        """Return the scores; those that hang on a grade that is missing are failed."""
        labels = await graded(case)
        spent = paid_grading(case, labels, self.name)
        if labels.missing and not labels.judgements:
            return [with_spent(labels.failure(partial(self.fail, name=score.name)), spent) for score in self.scores]
        count = len(case.turn.passages)
        known = [self._is_relevant(labels, index) for index in range(count)]
        judgement = combined(spent) if spent else replace(combined(labels.judgements), usage=None, cost=None)
        metadata = {"grades": [labels.values.get(index) for index in range(count)], "relevant": self.relevant}
        results: list[Result] = []
        for k in self.ks:
            if k > count:
                results.append(self.skip(f"the turn has only {count} passages", f"precision@{k}"))
            else:
                results.append(self._score(f"precision@{k}", known[:k], labels, judgement, metadata, precision_at, k))
        results += [
            self._score(f"ap@{k}", known[:k], labels, judgement, metadata, average_precision_at, k) for k in self.ks
        ]
        before = known[: 1 + known.index(True)] if True in known else known
        results.append(
            self._score(
                "mrr", before, labels, judgement, metadata, lambda found: reciprocal_rank(first_relevant(found))
            )
        )
        return results

    def _is_relevant(self, labels: Labels[int, int], index: int) -> bool | None:
        if index in labels.missing:
            return None
        return labels.values.get(index, 0) >= self.relevant

    def _score(
        self,
        name: str,
        known: Sequence[bool | None],
        labels: Labels[int, int],
        judgement: Judgement[Any],
        metadata: dict[str, Any],
        formula: Any,
        *arguments: Any,
    ) -> Result:
        unknown = [index for index, value in enumerate(known) if value is None]
        if unknown:
            error: JudgeError = labels.missing[unknown[0]]
            failed = with_spent(self.fail(error, name), [judgement])
            lacking = ", ".join(str(index + 1) for index in unknown)
            return failed.model_copy(update={"message": f"no grade at rank {lacking}: {error.message}"})
        return self.judged(
            formula(known, *arguments),
            judgement,
            name=name,
            explanation=f"relevant at rank {_ranks(known)} of {len(known)}",
            metadata=metadata,
        )


def _ranks(known: Sequence[bool | None]) -> str:
    return ", ".join(str(rank) for rank, value in enumerate(known, start=1) if value) or "none"
