"""UMBRELA: how well each passage answers the query, as a grade from 0 to 3.

One call for all passages of a turn, or one per passage. Source: UMBRELA (arXiv 2406.06519); Open RAG Eval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, WithJsonSchema
from pydantic import Field as Described

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import JudgeMetric, ScoreDefinition
from rageval_hooks.metrics.support.judged_turn import AnyJudgement, BatchAnswers, JudgedTurn, ask_in_batches, combined
from rageval_hooks.score import Result
from rageval_hooks.text.words import has_words
from rageval_hooks.turn import Passage

_KEY: Final = "umbrela.grades"
_GRADES: Final = (0, 1, 2, 3)
_MEANING: Final = ("unrelated", "related, does not answer", "some answer, unclear or buried", "dedicated, exact answer")
_FORM: Final = {"type": "integer", "enum": list(_GRADES)}
_SHARED_BY: Final = ("umbrela", "ranking", "nuggets")
"""The metrics that use the grades. The first of them that runs reports what they cost."""

PARAMETERS: Final = {"temperature": 0, "top_p": 1, "seed": 42, "presence_penalty": 0.5, "frequency_penalty": 0}
"""Sampling parameters of these calls; the judge leaves out what a model does not take."""


def _has_words(passage: Passage) -> bool:
    return has_words(passage.text) and not passage.is_image


def _integer_or_none(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# Only the grade counts: a wrong form of the steps before it must not void the grade.
_Thought = Annotated[int | None, BeforeValidator(_integer_or_none), WithJsonSchema(_FORM)]


class PassageGrade(BaseModel):
    """The judge's grade of one passage. The judge weighs match and trustworthiness first; only the grade counts."""

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


class Umbrela(JudgeMetric):
    """UMBRELA grades of all retrieved passages: one per passage, and their mean.

    Long lists are graded in batches, at the same time. A passage that the judge does not mention, or gives a grade that
    does not exist, is failed; the mean says how many grades are missing. A passage without words is skipped. If the
    judge grades a passage twice, the lower grade holds.

    Args:
        per_passage: one call per passage, as in the paper. The judge still sees all passages, since all prompts of a
            turn begin with the same bytes; it is asked about one.
        batch: the most passages per call.

    Raises:
        ConfigurationError: ``batch`` is less than 1.
    """

    name = "umbrela"
    version = "2"
    scores = (
        ScoreDefinition(
            name="umbrela", description="per passage: how well it answers the query, 0 to 3", high=3.0, unit="grade"
        ),
        ScoreDefinition(name="umbrela.mean", description="mean of the passages' grades", high=3.0, unit="grade"),
    )
    requires = ("query", "passages")
    family = "retrieval"
    answerable_only = True
    source = "UMBRELA (arXiv 2406.06519); Open RAG Eval"
    calls = "1 per 20 passages; per_passage=True: 1 each"

    def __init__(self, per_passage: bool = False, *, batch: int = 20) -> None:
        if batch < 1:
            raise ConfigurationError(f"batch of umbrela must be at least 1, not {batch}")
        self.per_passage = per_passage
        self.batch = 1 if per_passage else batch

    def expected_calls(self, passages: int) -> Mapping[str, int]:
        """Return one call per batch of passages."""
        return {self.name: math.ceil(passages / self.batch)}

    async def evaluate(self, case: JudgedTurn) -> Iterable[Result]:
        """Return the mean, then one score per passage."""
        answers = await graded(case)
        results: list[Result] = [self._mean(case, answers)] if answers.judgements or answers.missing else []
        for position, grade in sorted(answers.values.items()):
            answer = answers.answer_of[position]
            [*_, entry] = (entry for entry in answer.value.grades if entry.passage == position)
            score = self.judged(
                float(grade),
                answer,
                explanation=f"{_MEANING[grade]} (intent: {answer.value.intent.strip()})",
                target=case.target(position),
                metadata={"match": entry.match, "trustworthiness": entry.trustworthiness},
            )
            results.append(score)
        empty = [position for position, passage in enumerate(case.turn.retrieved) if not _has_words(passage)]
        if empty:
            results.append(self.skip(f"there is no text in {_named(case, empty)}"))
        if answers.missing:
            # One failed result for all passages without a grade: a span has room for one.
            failed = answers.failure(self.fail)
            message = "; ".join(f"{error.message}: {_named(case, passages)}" for error, passages in answers.reasons())
            metadata = {**failed.metadata, "passages": sorted(answers.missing)}
            results.append(failed.model_copy(update={"message": message, "metadata": metadata}))
        return results

    async def grade(self, case: JudgedTurn) -> BatchAnswers[int, int]:
        """Ask for the grades; use :func:`graded`, which asks once per turn."""
        passages = case.turn.retrieved

        async def ask(part: Sequence[int]) -> Judgement[PassageGrades]:
            which = f"only the passages {', '.join(map(str, part))}" if len(part) > 1 else f"only passage {part[0]}"
            task = _TASK.format(which=f"all {len(part)} passages" if 1 < len(part) == len(passages) else which)
            return await case.ask(task, PassageGrades, about_retrieval=True, parameters=PARAMETERS)

        def read(answer: PassageGrades) -> Iterable[tuple[int, int | None]]:
            return ((entry.passage, entry.grade if entry.grade in _GRADES else None) for entry in answer.grades)

        # A passage without words would be graded 0, which says nothing about the retriever's ranking.
        positions = [position for position, passage in enumerate(passages) if _has_words(passage)]
        return await ask_in_batches(positions, self.batch, ask, read)

    def _mean(self, case: JudgedTurn, answers: BatchAnswers[int, int]) -> Result:
        values = answers.values
        if not values:
            return answers.failure(self.fail, "umbrela.mean")
        grades = list(values.values())
        counts = ", ".join(f"{grades.count(grade)} x {grade}" for grade in reversed(_GRADES))
        total = len(case.turn.retrieved)
        lacking = total - len(values)
        return self.judged(
            sum(grades) / len(grades),
            combined(answers.calls),
            name="umbrela.mean",
            explanation=f"grades: {counts}" + (f"; without a grade: {lacking} of {total}" if lacking else ""),
            metadata={
                "grades": [values.get(position) for position in range(total)],
                "left_out": lacking,
                "dropped": dict(+answers.dropped),
                "calls": len(answers.judgements),
            },
        )


async def graded(case: JudgedTurn) -> BatchAnswers[int, int]:
    """Return the grades of a turn's passages by their positions; they are asked for once per turn.

    If :class:`Umbrela` runs for the turn, the grades are asked for as that metric was set up.
    """
    # Another metric may need the grades of a turn for which no grades are reported.
    umbrela = next(iter(case.metrics(Umbrela)), Umbrela())
    return await case.once(_KEY, lambda: umbrela.grade(case))


def paid_grading(case: JudgedTurn, answers: BatchAnswers[int, int], by: str) -> list[AnyJudgement]:
    """Return the calls for the grades if a metric is the one that reports their cost; else nothing.

    Only one of the metrics that share the grades reports it, so that costs can be added up.

    Args:
        case: the turn.
        answers: the grades.
        by: the metric's name.
    """
    payer = next((name for name in _SHARED_BY if case.runs(name)), by)
    return answers.calls if payer == by else []


def _named(case: JudgedTurn, passages: Iterable[int]) -> str:
    return "passage " + ", ".join(case.passage_name(position) for position in passages)
