"""Nuggets: which of the facts that an answer could hold, by the passages, the response does hold.

Source: AutoNuggetizer (arXiv 2411.09607); seed 004.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from rageval_hooks.errors import JudgeError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition
from rageval_hooks.metrics.no_answer import declined
from rageval_hooks.metrics.support.batching import Labels, combined, in_vain, with_spent
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.nugget_list import (
    BATCH,
    WINDOW,
    Creation,
    Importance,
    Nugget,
    as_data,
    assign,
    create,
    keep,
    rounds_for,
    support_name,
    weigh,
)
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.metrics.umbrela import graded, paid_grading, planned_grading
from rageval_hooks.score import Failed, Result

__all__ = ["Nuggets", "nugget_score"]

_NAMES: Final = ("all", "vital", "weighted", "all_strict", "vital_strict", "weighted_strict")
_TOO_MANY: Final = 20


def nugget_score(name: str, importance: Sequence[Importance | None], support: Sequence[float]) -> float | None:
    """Return one of the six scores.

    Args:
        name: ``all``, ``vital``, ``weighted``, or one of them with ``_strict``: then partial support does not count.
        importance: of each nugget.
        support: of each nugget: 1, 0.5 or 0.

    Returns:
        None where no nugget counts for this score.
    """
    strict = name.endswith("_strict")
    weights = [_weight(name.removesuffix("_strict"), item) for item in importance]
    total = sum(weights)
    if not total:
        return None
    values = (float(value >= 1) if strict else value for value in support)
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / total


def _weight(name: str, importance: Importance | None) -> float:
    if name == "all":
        return 1.0
    if importance == "vital":
        return 1.0
    return 0.5 if name == "weighted" else 0.0


class Nuggets(Metric):
    """The share of nuggets that the response holds: all, the vital ones, and weighted; each also counted strictly.

    The passages that UMBRELA grades 1 or more (one grading, shared with ``umbrela`` and ``ranking``) are read in
    windows of 10, in at most 5 rounds, each of which sees what was found before, for at most 30 nuggets of 1 to 12
    words; their importance is asked in batches of 10; 20 are kept, vital ones first; their support by the response is
    asked in batches of 10. Where one window holds all relevant passages and no more than one batch of nuggets comes out
    of it, the judge weighs the nuggets as it writes them: then it takes 2 calls beside the grading. More nuggets are
    weighed in batches by calls of their own.

    Where ``no_answer`` runs too and says that the system declined to answer, all six are skipped, and nobody is asked.
    """

    name: ClassVar[str] = "nuggets"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = tuple(
        ScoreDefinition(name=f"nuggets.{name}", description=description)
        for name, description in (
            ("all", "mean support of the nuggets by the response: 1, 0.5 (partial) or 0 each"),
            ("vital", "mean support of the vital nuggets"),
            ("weighted", "mean support of the nuggets; those that are okay count half as much as vital ones"),
            ("all_strict", "share of the nuggets that the response supports in full"),
            ("vital_strict", "share of the vital nuggets that the response supports in full"),
            ("weighted_strict", "share, weighted likewise, of the nuggets that the response supports in full"),
        )
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages", "response")
    family: ClassVar[str] = "generation"
    source: ClassVar[str] = "AutoNuggetizer (arXiv 2411.09607); seed 004"
    calls: ClassVar[str] = "2 to 10, and those of umbrela, shared"

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return the grading's calls and its own."""
        found, rounds = min(30, size.nuggets), rounds_for(size.passages)
        together = size.passages <= WINDOW and found <= BATCH
        weighing = 0 if together else math.ceil(found / BATCH)
        created = "nuggets.creation"
        return (
            planned_grading(size),
            PlannedCall(
                created,
                "nuggets and their importance" if together else f"nuggets, in rounds over {WINDOW} passages",
                rounds,
                after=("umbrela.grades", "no_answer.attempt"),
                sequential=rounds > 1,
            ),
            PlannedCall("nuggets.importance", f"importance of {found} nuggets", weighing, after=(created,)),
            PlannedCall(
                "nuggets.assignment",
                f"support of {min(20, found)} nuggets by the response",
                math.ceil(min(20, found) / BATCH),
                after=(created, "nuggets.importance"),
            ),
        )

    async def evaluate(self, case: JudgedTurn) -> Result | Iterable[Result]:
        """Return the six scores; each is failed if something that it hangs on is missing."""
        reason = await declined(case)
        if reason is not None:
            return self.skip_all(reason)
        grades = await graded(case)
        paid = paid_grading(case, grades, self.name)
        if grades.missing and not grades.values:
            return [with_spent(grades.failure(partial(self.fail, name=score.name)), paid) for score in self.scores]
        relevant = [index for index in sorted(grades.values) if grades.values[index] >= 1]
        if not relevant:
            return self.skip_all("there are no nuggets: no passage is graded 1 or more")
        creation = await create(case, relevant)
        own = [*creation.judgements]
        if creation.failure is not None:
            return with_spent(self.fail(creation.failure), [*own, *in_vain(creation.failure), *paid])
        if not creation.nuggets:
            return self.skip_all("there are no nuggets: the judge finds nothing in the passages that helps to answer")
        nuggets, weights = await _weighed(case, creation)
        own += weights.spent
        lacking = _reason(weights.missing)
        if lacking is not None and len(nuggets) > _TOO_MANY:  # which of them count is not known
            return [with_spent(self.fail(lacking, score.name), [*own, *paid]) for score in self.scores]
        kept = keep(nuggets)
        support = await assign(case, kept)
        metadata = {
            "found": len(nuggets),
            "kept": len(kept),
            "rounds": creation.rounds,
            "passages": relevant,
            "passages_unread": list(creation.unread),
            "passages_ungraded": sorted(grades.missing),
            "dropped": dict(+(creation.dropped + weights.dropped + support.dropped)),
        }
        own += support.spent
        metadata["calls"] = sum(judgement.value is not None for judgement in own)
        return [self._result(name, kept, support, lacking, [*own, *paid], metadata) for name in _NAMES]

    def _result(
        self,
        name: str,
        nuggets: Sequence[Nugget],
        support: Labels[int, float],
        lacking: JudgeError | None,
        spent: Sequence[Judgement[Any]],
        metadata: Mapping[str, Any],
    ) -> Result:
        full_name = f"nuggets.{name}"
        if lacking is not None and not name.startswith("all"):
            return with_spent(self._failed(lacking, full_name, "importance", nuggets, support), spent)
        vital_only = name.startswith("vital")
        counting = [
            number for number, nugget in enumerate(nuggets, start=1) if nugget.importance == "vital" or not vital_only
        ]
        unknown = {number: support.missing[number] for number in counting if number in support.missing}
        error = _reason(unknown)
        if error is not None:
            return with_spent(self._failed(error, full_name, "support", nuggets, support), spent)
        value = nugget_score(
            name, [nuggets[number - 1].importance for number in counting], [support.values[n] for n in counting]
        )
        if value is None:
            return self.skip("no nugget is vital", full_name)
        return self.judged(
            value,
            combined(spent),
            name=full_name,
            explanation=_explain(nuggets, counting, support),
            metadata={**metadata, "nuggets": as_data(nuggets, support.values)},
        )

    def _failed(
        self, error: JudgeError, name: str, what: str, nuggets: Sequence[Nugget], support: Labels[int, float]
    ) -> Failed:
        failed = self.fail(error, name)
        return failed.model_copy(
            update={
                "message": f"no {what} of some nuggets: {error.message}",
                "metadata": {**failed.metadata, "nuggets": as_data(nuggets, support.values)},
            }
        )


async def _weighed(case: JudgedTurn, creation: Creation) -> tuple[list[Nugget], Labels[int, Importance]]:
    """Return the nuggets with their importance; asks for it unless one call has said it of one batch of them."""
    nuggets = creation.nuggets
    if len(nuggets) <= BATCH and all(nugget.importance is not None for nugget in nuggets):
        return nuggets, Labels()
    weights = await weigh(case, nuggets)
    return [replace(nugget, importance=weights.values.get(n)) for n, nugget in enumerate(nuggets, start=1)], weights


def _reason(missing: Mapping[int, JudgeError]) -> JudgeError | None:
    return next(iter(missing.values()), None)


def _explain(nuggets: Sequence[Nugget], counting: Iterable[int], support: Labels[int, float]) -> str:
    return "\n".join(
        f"{number} {nuggets[number - 1].importance or 'not weighed'}, {support_name(support.values[number])}: "
        f"“{nuggets[number - 1].text}”"
        for number in counting
    )
