"""precision@k, ap@k and mrr of the retrieved passages, from their UMBRELA grades.

Source: Open RAG Eval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import JudgeMetric, ScoreDefinition
from rageval_hooks.metrics.judged.umbrela import Umbrela, graded, paid_grading
from rageval_hooks.metrics.support.judged_turn import JudgedTurn, combined, with_spending
from rageval_hooks.plugins import Option
from rageval_hooks.score import Result
from rageval_hooks.settings import Ranks

_DEFAULT_RANKS = (1, 3, 5)


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


def reciprocal_rank(relevant: Sequence[bool]) -> float:
    """Return 1 / rank of the first relevant passage; 0 without one."""
    return max((1 / rank for rank in _relevant_ranks(relevant)), default=0.0)


def _relevant_ranks(relevant: Iterable[bool]) -> list[int]:
    """Return the ranks, from 1, of the relevant passages."""
    return [rank for rank, is_relevant in enumerate(relevant, start=1) if is_relevant]


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
        ks: the ranks to cut at; None for the setting ``k_values``.

    Raises:
        ConfigurationError: ``relevant`` is not a grade, or a rank is less than 1.
    """

    name = "ranking"
    version = "2"
    scores = _definitions(_DEFAULT_RANKS)
    requires = ("query", "passages")
    family = "retrieval"
    answerable_only = True
    source = "Open RAG Eval; arXiv 2406.06519 for the grades"
    calls = "those of umbrela, shared"
    options: ClassVar = {
        "k_values": Option(
            keyword="ks",
            type=Ranks,
            default=_DEFAULT_RANKS,
            about="the ranks at which `ranking` cuts precision@k and ap@k.",
            valid="ranks from 1, separated by commas: '1,3,5'",
        )
    }

    def __init__(self, relevant: int = 2, *, ks: Sequence[int] | None = None) -> None:
        if relevant not in (1, 2, 3):
            raise ConfigurationError(f"the least grade of a relevant passage must be 1, 2 or 3, not {relevant!r}")
        if ks is not None and (not ks or any(k < 1 for k in ks)):
            raise ConfigurationError(f"ks must be ranks from 1, not {ks!r}")
        self.relevant = relevant
        self.ks = ks
        self._define_scores()

    def take_options(self, values: Mapping[str, Any]) -> None:
        """Set the ranks; there are as many scores."""
        super().take_options(values)
        self._define_scores()

    def _define_scores(self) -> None:
        self._ranks = tuple(dict.fromkeys(self.ks or _DEFAULT_RANKS))
        self.scores = _definitions(self._ranks)  # type: ignore[misc]  # an instance has as many scores as ranks

    def expected_calls(self, passages: int) -> Mapping[str, int]:
        """Return the grading's calls."""
        return Umbrela().expected_calls(passages)

    async def evaluate(self, case: JudgedTurn) -> Iterable[Result]:
        """Return the scores; those that depend on a missing grade are failed."""
        answers = await graded(case)
        calls = paid_grading(case, answers, self.name)
        if answers.missing and not answers.judgements:
            return [with_spending(answers.failure(self.fail, score.name), calls) for score in self.scores]
        count = len(case.turn.retrieved)
        grades = [answers.values.get(position) for position in range(count)]
        # None for a passage that the judge gave no grade.
        relevance = [
            None if position in answers.missing else (grade or 0) >= self.relevant
            for position, grade in enumerate(grades)
        ]
        # Grades behind the first relevant passage do not matter for mrr, so they may be missing.
        until_first = relevance[: 1 + relevance.index(True)] if True in relevance else relevance
        formulas: list[tuple[str, Sequence[bool | None], Callable[[Sequence[bool]], float]]] = [
            *((f"precision@{k}", relevance[:k], partial(precision_at, k=k)) for k in self._ranks if k <= count),
            *((f"ap@{k}", relevance[:k], partial(average_precision_at, k=k)) for k in self._ranks),
            ("mrr", until_first, reciprocal_rank),
        ]
        # The calls as one, without their cost if another metric reports it.
        judgement = combined(calls) if calls else replace(combined(answers.judgements), usage=None, cost=None)
        results: list[Result] = [
            self.skip(f"the turn has only {count} passages", f"precision@{k}") for k in self._ranks if k > count
        ]
        for name, part, formula in formulas:
            unknown = [position for position, value in enumerate(part) if value is None]
            if unknown:
                error = answers.missing[unknown[0]]
                ranks = ", ".join(str(position + 1) for position in unknown)
                failed = with_spending(self.fail(error, name), [judgement])
                results.append(failed.model_copy(update={"message": f"no grade at rank {ranks}: {error.message}"}))
                continue
            known = [*map(bool, part)]
            score = self.judged(
                formula(known),
                judgement,
                name=name,
                explanation=f"relevant at rank {', '.join(map(str, _relevant_ranks(known))) or 'none'} of {len(known)}",
                metadata={"grades": grades, "relevant": self.relevant},
            )
            results.append(score)
        return results
