"""UMBRELA: how well each passage answers the query, as a grade from 0 to 3.

One call for all passages of a turn, or one per passage. Source: UMBRELA (arXiv 2406.06519); seed 004.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, BeforeValidator, WithJsonSchema
from pydantic import Field as Described

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition, passage_name
from rageval_hooks.metrics.support.batching import Labels, ask_in_batches, combined
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.score import Failed, Result, Target

__all__ = ["PARAMETERS", "PassageGrade", "PassageGrades", "Umbrela", "graded", "paid_grading", "planned_grading"]

_KEY: Final = "umbrela.grades"
_GRADES: Final = (0, 1, 2, 3)
_MEANING: Final = ("unrelated", "related, does not answer", "some answer, unclear or buried", "dedicated, exact answer")
_FORM: Final = {"type": "integer", "enum": list(_GRADES)}

PARAMETERS: Final = {"temperature": 0, "top_p": 1, "seed": 42, "presence_penalty": 0.5, "frequency_penalty": 0}
"""Sampling parameters of these calls; the judge leaves out what a model does not take."""


def _integer_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_Thought = Annotated[int | None, BeforeValidator(_integer_or_none), WithJsonSchema(_FORM)]
"""What does not count: another form of it does not void the grade."""


class PassageGrade(BaseModel):
    """What the judge says of one passage. Only the grade counts; the others are there to be thought of first."""

    passage: int = Described(description="the passage's number")
    match: _Thought = Described(default=None, description="how well its content matches the intent, 0 to 3")
    trustworthiness: _Thought = Described(default=None, description="how far it can be trusted, 0 to 3")
    grade: Annotated[int, WithJsonSchema(_FORM)] = Described(description="the grade, 0 to 3")


class PassageGrades(BaseModel):
    """The judge's answer."""

    intent: str = Described(description="in one sentence, what the user wants to know")
    grades: list[PassageGrade] = Described(description="one entry per passage")


_TASK = """\
Task: grade how well passages answer the question. Grade {which}, each by itself, whatever stands in the others.
0: the passage has nothing to do with the question.
1: it is related to the question, but does not answer it.
2: it holds some answer, but unclear, or buried among other things.
3: it is dedicated to the question and holds the exact answer.
First name the intent behind the question. Then, per passage: how well its content matches that intent; how far it can
be trusted; and, from both, the grade. Use only the numbers of the passages above."""


class Umbrela(Metric):
    """UMBRELA grades: one per passage, and their mean. Long lists are graded in batches, at the same time.

    A passage that the judge leaves out, or gives a grade that does not exist, is failed, and the mean says how many it
    lacks. One without text is skipped. Graded twice, the lower grade holds.

    Args:
        per_passage: one call per passage, as in the paper. The passages are before the judge all the same, since all
            calls of a turn begin with the same bytes; it is asked about one.
        batch: how many passages are graded in one call, at most.

    Raises:
        ConfigurationError: the batch is empty.
    """

    name: ClassVar[str] = "umbrela"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(
            name="umbrela", description="per passage: how well it answers the query, 0 to 3", high=3.0, unit="grade"
        ),
        ScoreDefinition(name="umbrela.mean", description="mean of the passages' grades", high=3.0, unit="grade"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages")
    family: ClassVar[str] = "retrieval"
    source: ClassVar[str] = "UMBRELA (arXiv 2406.06519); seed 004"
    calls: ClassVar[str] = "1 per 20 passages; per_passage=True: 1 each"

    def __init__(self, per_passage: bool = False, *, batch: int = 20) -> None:
        if batch < 1:
            raise ConfigurationError(f"umbrela grades at least 1 passage per call, not {batch}")
        self.per_passage = per_passage
        self.batch = 1 if per_passage else batch

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return its calls, all at the same time."""
        return (PlannedCall(_KEY, f"grades of {size.passages} passages", math.ceil(size.passages / self.batch)),)

    async def evaluate(self, case: JudgedTurn) -> Iterable[Result]:
        """Return the mean, then one score per passage."""
        labels = await graded(case)
        results = [*self._mean(case, labels), *self._grades(case, labels)]
        empty = [index for index in range(len(case.turn.passages)) if not _has_text(case, index)]
        if empty:
            results.append(self.skip(f"there is no text in {_named(case, empty)}"))
        if labels.missing:
            results.append(self._missing(case, labels))
        return results

    async def grade(self, case: JudgedTurn) -> Labels[int, int]:
        """Ask for the grades; see :func:`graded`, which asks once per turn."""

        async def ask(part: Sequence[int]) -> Judgement[PassageGrades]:
            task = _TASK.format(which=_which(part, len(case.turn.passages)))
            return await case.ask(task, PassageGrades, parameters=PARAMETERS)

        passages = [index for index in range(len(case.turn.passages)) if _has_text(case, index)]
        return await ask_in_batches(passages, self.batch, ask, _read, min)

    def _missing(self, case: JudgedTurn, labels: Labels[int, int]) -> Failed:
        """Return one failure for all passages without a grade: a span has one place for it."""
        failed = labels.failure(self.fail)
        message = "; ".join(f"{error.message}: {_named(case, passages)}" for error, passages in labels.reasons())
        metadata = {**failed.metadata, "passages": sorted(labels.missing)}
        return failed.model_copy(update={"message": message, "metadata": metadata})

    def _mean(self, case: JudgedTurn, labels: Labels[int, int]) -> Iterable[Result]:
        if labels.missing and not labels.values:
            yield labels.failure(lambda error: self.fail(error, "umbrela.mean"))
            return
        values = labels.values
        counts = ", ".join(f"{sum(v == grade for v in values.values())} x {grade}" for grade in reversed(_GRADES))
        lacking = len(case.turn.passages) - len(values)
        yield self.judged(
            sum(values.values()) / len(values),
            combined(labels.spent),
            name="umbrela.mean",
            explanation=f"grades: {counts}" + (f"; {lacking} of {len(case.turn.passages)} left out" if lacking else ""),
            metadata={
                "grades": [values.get(index) for index in range(len(case.turn.passages))],
                "left_out": lacking,
                "dropped": dict(+labels.dropped),
                "calls": len(labels.judgements),
            },
        )

    def _grades(self, case: JudgedTurn, labels: Labels[int, int]) -> Iterable[Result]:
        said = {(id(j), entry.passage): entry for j in labels.judgements for entry in j.value.grades}
        for index in sorted(labels.values):
            grade, judgement = labels.values[index], labels.by[index]
            entry = said[id(judgement), index]
            yield self.judged(
                float(grade),
                judgement,
                explanation=f"{_MEANING[grade]} (intent: {judgement.value.intent.strip()})",
                target=Target(kind="passage", index=index, id=case.turn.passages[index].id),
                metadata={"match": entry.match, "trustworthiness": entry.trustworthiness},
            )


async def graded(case: JudgedTurn) -> Labels[int, int]:
    """Return the grades of a turn's passages by their positions; asked once, whichever metrics use them.

    If :class:`Umbrela` runs for the turn, it is asked as that one was set up.
    """
    umbrela = next(iter(case.metrics(Umbrela)), None) or Umbrela()
    return await case.once(_KEY, lambda: umbrela.grade(case))


def paid_grading(case: JudgedTurn, labels: Labels[int, int], by: str) -> list[Judgement[Any]]:
    """Return the calls for the grades if a metric is the one to report what they took; else nothing.

    Of the metrics that share them, that is the first that runs for the turn, so that costs can be added up.
    """
    running = {metric.name for metric in case.metrics(Metric)}  # type: ignore[type-abstract]
    payer = next((name for name in ("umbrela", "ranking", "nuggets") if name in running), by)
    return labels.spent if payer == by else []


def planned_grading(size: TurnSize) -> PlannedCall:
    """Return the calls behind :func:`graded`, for the plans of the metrics that use it."""
    return Umbrela().plan(size)[0]


def _read(answer: Any) -> Iterable[tuple[int, int | None]]:
    for entry in answer.grades:
        yield entry.passage, entry.grade if entry.grade in _GRADES else None


def _has_text(case: JudgedTurn, index: int) -> bool:
    return bool(case.turn.passages[index].text.strip())


def _which(part: Sequence[int], count: int) -> str:
    if len(part) == count > 1:
        return f"all {count} passages"
    return f"only passage {part[0]}" if len(part) == 1 else f"only the passages {', '.join(map(str, part))}"


def _named(case: JudgedTurn, passages: Iterable[int]) -> str:
    return "passage " + ", ".join(passage_name(case.turn, index) for index in passages)
