"""``nuggets``: which of the facts that an answer could have, by the passages, the response has.

Source: AutoNuggetizer (arXiv 2411.09607); Open RAG Eval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

from rageval_hooks.errors import JudgeError
from rageval_hooks.metrics.base import Field, JudgeMetric, PassageScope, Results, ScoreDefinition
from rageval_hooks.metrics.judged.no_answer import declined
from rageval_hooks.metrics.judged.nugget_list import (
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
from rageval_hooks.metrics.judged.umbrela import graded, paid_grading, planned_grading
from rageval_hooks.metrics.support.batching import BatchAnswers
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.metrics.support.spending import AnyJudgement, combined, wasted, with_spending
from rageval_hooks.score import Failed, Result

_MEANINGS: Final = {
    "all": "mean support of the nuggets by the response: 1, 0.5 (partial) or 0 each",
    "vital": "mean support of the vital nuggets",
    "weighted": "mean support of the nuggets; those that are okay count half as much as vital ones",
    "all_strict": "share of the nuggets that the response supports in full",
    "vital_strict": "share of the vital nuggets that the response supports in full",
    "weighted_strict": "share, weighted likewise, of the nuggets that the response supports in full",
}
_MAX_KEPT: Final = 20


def nugget_score(name: str, importance: Sequence[Importance | None], support: Sequence[float]) -> float | None:
    """Return one of the six scores.

    Args:
        name: ``all``, ``vital``, ``weighted``, or one of them with ``_strict``: then partial support counts 0.
        importance: of each nugget.
        support: of each nugget: 1, 0.5 or 0.

    Returns:
        None if no nugget counts for this score.
    """
    strict = name.endswith("_strict")
    total = weighed = 0.0
    for item, value in zip(importance, support, strict=True):
        weight = _weight(name.removesuffix("_strict"), item)
        total += weight
        weighed += weight * (float(value >= 1) if strict else value)
    return weighed / total if total else None


def _weight(name: str, importance: Importance | None) -> float:
    if name == "all" or importance == "vital":
        return 1.0
    return 0.5 if name == "weighted" else 0.0


class Nuggets(JudgeMetric):
    """The share of nuggets that the response has: all, the vital ones, and weighted; each also counted strictly.

    Nuggets come from the passages of the prompt that UMBRELA grades 1 or more (one grading, shared with ``umbrela`` and
    ``ranking``). These are read in windows of 10, in at most 5 rounds, each of which sees the nuggets of the rounds
    before, for at most 30 nuggets of 1 to 12 words. Their importance is asked in batches of 10; 20 are kept, vital ones
    first; their support by the response is asked in batches of 10. If one window holds all relevant passages and gives
    no more than one batch of nuggets, the judge weighs the nuggets as it writes them: then there are 2 calls besides
    the grading.

    If ``no_answer`` runs too and says that the system declined to answer, all six are skipped without a call.
    """

    name: ClassVar[str] = "nuggets"
    version: ClassVar[str] = "3"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = tuple(
        ScoreDefinition(name=f"nuggets.{name}", description=description) for name, description in _MEANINGS.items()
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages", "response")
    passages: ClassVar[PassageScope] = "prompt"
    family: ClassVar[str] = "generation"
    answerable_only: ClassVar[bool] = True
    source: ClassVar[str] = "AutoNuggetizer (arXiv 2411.09607); Open RAG Eval"
    calls: ClassVar[str] = "2 to 10, and those of umbrela, shared"

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return the grading's calls and its own."""
        found, rounds = min(30, size.nuggets), rounds_for(size.passages)
        # Few nuggets from one window are weighed in the call that finds them: one step less to wait for.
        together = size.passages <= WINDOW and found <= BATCH
        weighing = 0 if together else math.ceil(found / BATCH)
        kept = min(_MAX_KEPT, found)
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
                f"support of {kept} nuggets by the response",
                math.ceil(kept / BATCH),
                after=(created, "nuggets.importance"),
            ),
        )

    async def evaluate(self, case: JudgedTurn) -> Results:
        """Return the six scores; each is failed if something that it depends on is missing."""
        reason = await declined(case)
        if reason is not None:
            return self.skip_all(reason)
        grades = await graded(case)
        grading = paid_grading(case, grades, self.name)
        # With some grades the nuggets come from the passages that are graded; without any there is nothing to read.
        if grades.missing and not grades.values:
            return [
                with_spending(grades.failure(partial(self.fail, name=score.name)), grading) for score in self.scores
            ]
        # UMBRELA 1 is "related, but does not answer". Such passages still hold facts that belong into an answer.
        relevant = [position for position in case.prompt_positions if grades.values.get(position, 0) >= 1]
        if not relevant:
            return self.skip_all("there are no nuggets: no passage of the prompt is graded 1 or more")
        creation = await create(case, relevant)
        calls = [*creation.judgements]
        if creation.failure is not None:
            return with_spending(self.fail(creation.failure), [*calls, *wasted(creation.failure), *grading])
        # Skipped and not 0: without nuggets there is nothing that the response could lack.
        if not creation.nuggets:
            return self.skip_all("there are no nuggets: the judge finds nothing in the passages that helps to answer")
        nuggets, weights = await _weighed(case, creation)
        calls += weights.calls
        unweighed = _first_error(weights.missing)
        if unweighed is not None and len(nuggets) > _MAX_KEPT:
            # Which 20 of them are kept depends on the importance that is missing.
            return [with_spending(self.fail(unweighed, score.name), [*calls, *grading]) for score in self.scores]
        kept = keep(nuggets)
        support = await assign(case, kept)
        calls += support.calls
        metadata = {
            "found": len(nuggets),
            "kept": len(kept),
            "rounds": creation.rounds,
            "passages": relevant,
            "passages_unread": list(creation.unread),
            "passages_ungraded": sorted(grades.missing),
            "dropped": dict(+(creation.dropped + weights.dropped + support.dropped)),
            "calls": len([call for call in calls if call.value is not None]),
        }
        # The six scores differ only in which nuggets count, and by how much.
        assigned = _AssignedNuggets(kept, support, unweighed, [*calls, *grading], metadata)
        return [self._result(name, assigned) for name in _MEANINGS]

    def _result(self, name: str, assigned: _AssignedNuggets) -> Result:
        full_name = f"nuggets.{name}"
        # Only the vital and the weighted scores depend on the importance.
        if assigned.unweighed is not None and not name.startswith("all"):
            return self._failed(assigned.unweighed, full_name, "importance", assigned)
        # Support that is missing for an okay nugget does not harm the score of the vital ones.
        counting = assigned.numbers(vital_only=name.startswith("vital"))
        unknown = {number: error for number, error in assigned.support.missing.items() if number in counting}
        error = _first_error(unknown)
        if error is not None:
            return self._failed(error, full_name, "support", assigned)
        importance = [assigned.nuggets[number - 1].importance for number in counting]
        value = nugget_score(name, importance, [assigned.support.values[number] for number in counting])
        if value is None:
            return self.skip("no nugget is vital", full_name)
        return self.judged(
            value,
            combined(assigned.calls),
            name=full_name,
            explanation="\n".join(map(assigned.line, counting)),
            metadata={**assigned.metadata, "nuggets": assigned.as_data()},
        )

    def _failed(self, error: JudgeError, name: str, what: str, assigned: _AssignedNuggets) -> Failed:
        failed = self.fail(error, name)
        update = {
            "message": f"no {what} of some nuggets: {error.message}",
            "metadata": {**failed.metadata, "nuggets": assigned.as_data()},
        }
        return with_spending(failed.model_copy(update=update), assigned.calls)


@dataclass(frozen=True)
class _AssignedNuggets:
    """The nuggets of a turn, and what the judge says of them.

    Attributes:
        nuggets: the nuggets that count; their numbers are from 1.
        support: by number, the support by the response.
        unweighed: the error behind the importance that is missing; None if none is.
        calls: the judge calls behind all this.
        metadata: of each score.
    """

    nuggets: Sequence[Nugget]
    support: BatchAnswers[int, float]
    unweighed: JudgeError | None
    calls: Sequence[AnyJudgement]
    metadata: Mapping[str, Any]

    def numbers(self, *, vital_only: bool) -> list[int]:
        """Return the numbers of all nuggets, or of the vital ones."""
        numbers = range(1, 1 + len(self.nuggets))
        return [number for number in numbers if not vital_only or self.nuggets[number - 1].importance == "vital"]

    def line(self, number: int) -> str:
        """Return the line of an explanation on one nugget."""
        nugget = self.nuggets[number - 1]
        importance = nugget.importance or "not weighed"
        return f"{number} {importance}, {support_name(self.support.values[number])}: “{nugget.text}”"

    def as_data(self) -> list[dict[str, Any]]:
        """Return the nuggets as JSON-able data."""
        return as_data(self.nuggets, self.support.values)


async def _weighed(case: JudgedTurn, creation: Creation) -> tuple[list[Nugget], BatchAnswers[int, Importance]]:
    """Return the nuggets with their importance; asks for it unless the call that found them has said it."""
    nuggets = creation.nuggets
    if len(nuggets) <= BATCH and all(nugget.importance is not None for nugget in nuggets):
        # The call that found them has weighed them.
        return nuggets, BatchAnswers()
    weights = await weigh(case, nuggets)
    weighed = [replace(nugget, importance=weights.values.get(number)) for number, nugget in enumerate(nuggets, start=1)]
    return weighed, weights


def _first_error(missing: Mapping[int, JudgeError]) -> JudgeError | None:
    return next(iter(missing.values()), None)
