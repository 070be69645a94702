"""precision@k, ap@k and mrr of the retrieved passages, from their UMBRELA grades.

Source: Open RAG Eval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import Field, JudgeMetric, ScoreDefinition
from rageval_hooks.metrics.judged.umbrela import graded, paid_grading, planned_grading
from rageval_hooks.metrics.support.judge_calls import AnyJudgement, BatchAnswers, combined, with_spending
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.score import Failed, Result
from rageval_hooks.settings import Settings

Relevance = bool | None
"""Of one passage: relevant or not; None if it has no grade."""

Formula = Callable[[Sequence[bool]], float]


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


def reciprocal_rank(rank: int | None) -> float:
    """Return 1 / rank; 0 for None."""
    return 0.0 if rank is None else 1 / rank


def _definitions(ks: Sequence[int]) -> tuple[ScoreDefinition, ...]:
    precision = "share of the first {k} passages that are relevant"
    average = "mean of the precision at the ranks of the relevant ones among the first {k} passages"
    return (
        *(ScoreDefinition(name=f"precision@{k}", description=precision.format(k=k)) for k in ks),
        *(ScoreDefinition(name=f"ap@{k}", description=average.format(k=k)) for k in ks),
        ScoreDefinition(name="mrr", description="1 / rank of the first relevant passage; 0 without one"),
    )


class Ranking(JudgeMetric):
    """precision@k, ap@k and mrr of all retrieved passages, from UMBRELA grades that are asked for once per turn.

    A score that depends on a passage without a grade is failed. A passage without words is not relevant: it holds a
    rank that a useful passage could have had.

    Args:
        relevant: the least grade of a relevant passage.
        ks: the ranks to cut at.

    Raises:
        ConfigurationError: ``relevant`` is not a grade, or a rank is less than 1.
    """

    name: ClassVar[str] = "ranking"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = _definitions((1, 3, 5))
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages")
    family: ClassVar[str] = "retrieval"
    answerable_only: ClassVar[bool] = True
    source: ClassVar[str] = "Open RAG Eval; arXiv 2406.06519 for the grades"
    calls: ClassVar[str] = "those of umbrela, shared"

    def __init__(self, relevant: int = 2, *, ks: Sequence[int] = (1, 3, 5)) -> None:
        if relevant not in (1, 2, 3):
            raise ConfigurationError(f"the least grade of a relevant passage must be 1, 2 or 3, not {relevant!r}")
        if not ks or any(k < 1 for k in ks):
            raise ConfigurationError(f"ks must be ranks from 1, not {ks!r}")
        self.relevant = relevant
        self.ks = tuple(dict.fromkeys(ks))
        self.scores = _definitions(self.ks)  # type: ignore[misc]  # an instance has as many scores as ranks

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Make the metric with the setting ``k_values``."""
        return cls(ks=settings.k_values)

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return the grading's calls."""
        return (planned_grading(size),)

    async def evaluate(self, case: JudgedTurn) -> Iterable[Result]:
        """Return the scores; those that depend on a missing grade are failed."""
        answers = await graded(case)
        calls = paid_grading(case, answers, self.name)
        if answers.missing and not answers.judgements:
            return [self._without_grades(answers, calls, score.name) for score in self.scores]
        count = len(case.turn.retrieved)
        relevance = [self._relevance(answers, position) for position in range(count)]
        grades = [answers.values.get(position) for position in range(count)]
        turn = _GradedTurn(self, answers, _judgement(answers, calls), {"grades": grades, "relevant": self.relevant})
        results: list[Result] = []
        for k in self.ks:
            if k > count:
                results.append(self.skip(f"the turn has only {count} passages", f"precision@{k}"))
            else:
                results.append(turn.score(f"precision@{k}", relevance[:k], partial(precision_at, k=k)))
        results += [turn.score(f"ap@{k}", relevance[:k], partial(average_precision_at, k=k)) for k in self.ks]
        # Grades behind the first relevant passage do not matter for mrr, so they may be missing.
        until_first = relevance[: 1 + relevance.index(True)] if True in relevance else relevance
        results.append(turn.score("mrr", until_first, _reciprocal_first))
        return results

    def _without_grades(self, answers: BatchAnswers[int, int], calls: Sequence[AnyJudgement], name: str) -> Failed:
        return with_spending(answers.failure(partial(self.fail, name=name)), calls)

    def _relevance(self, answers: BatchAnswers[int, int], position: int) -> Relevance:
        if position in answers.missing:
            return None
        return answers.values.get(position, 0) >= self.relevant


class _GradedTurn:
    """Makes the scores of one turn.

    Args:
        metric: the metric.
        answers: the grades.
        judgement: the calls behind the grades as one.
        metadata: of each score.
    """

    def __init__(
        self, metric: Ranking, answers: BatchAnswers[int, int], judgement: AnyJudgement, metadata: dict[str, Any]
    ) -> None:
        self._metric = metric
        self._answers = answers
        self._judgement = judgement
        self._metadata = metadata

    def score(self, name: str, relevance: Sequence[Relevance], formula: Formula) -> Result:
        """Return one score; failed if the relevance of a passage is not known."""
        unknown = [position for position, value in enumerate(relevance) if value is None]
        if unknown:
            return self._failed(name, unknown)
        known = [bool(value) for value in relevance]
        ranks = [str(rank) for rank, value in enumerate(known, start=1) if value]
        return self._metric.judged(
            formula(known),
            self._judgement,
            name=name,
            explanation=f"relevant at rank {', '.join(ranks) or 'none'} of {len(known)}",
            metadata=self._metadata,
        )

    def _failed(self, name: str, unknown: Sequence[int]) -> Failed:
        error = self._answers.missing[unknown[0]]
        ranks = ", ".join(str(position + 1) for position in unknown)
        failed = with_spending(self._metric.fail(error, name), [self._judgement])
        return failed.model_copy(update={"message": f"no grade at rank {ranks}: {error.message}"})


def _judgement(answers: BatchAnswers[int, int], calls: Sequence[AnyJudgement]) -> AnyJudgement:
    """Return the calls as one; without their cost if another metric reports it."""
    if calls:
        return combined(calls)
    return replace(combined(answers.judgements), usage=None, cost=None)


def _reciprocal_first(relevant: Sequence[bool]) -> float:
    return reciprocal_rank(first_relevant(relevant))
