"""``no_answer``: did the system answer, or decline? Other judge metrics use the same answer of the judge."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic import Field as Described

from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import JudgeMetric, ScoreDefinition
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.score import Result

_KEY = "no_answer.attempt"
# Not the judge's own words: they may quote the turn's texts, and reasons are shown where those are hidden.
_DECLINED = "the system declined to answer (see no_answer)"


class AnswerAttempt(BaseModel):
    """The judge's answer on the response as a whole."""

    explanation: str = Described(description="in one sentence, what the answer does: answer, or decline and why")
    attempted: bool = Described(description="true if it tries to answer the question, false if it declines")


_TASK = """\
Task: say whether the answer attempts to answer the question.
It does if it gives any information that is meant as an answer: also if that is wrong, partial, hedged, or not supported
by the passages. It does not if it says only that it cannot or will not answer, that it does not know, that the passages
do not say, if it asks back, or if it talks of something else to avoid the question."""


class NoAnswer(JudgeMetric):
    """1 if the system attempted an answer, even a wrong one; 0 if it declined.

    The name is that of the test in the literature; a higher value means that more questions were answered. The label is
    ``answered`` or ``declined``. Where this metric runs, the generation metrics of a declined turn are skipped: a
    refusal is neither unsupported nor incomplete.
    """

    name = "no_answer"
    version = "2"
    scores = (
        ScoreDefinition(
            name="no_answer",
            description="1 if the response attempts an answer, even a wrong one; 0 for a refusal, despite the name",
            labels=("answered", "declined"),
            binary=True,
        ),
    )
    requires = ("query", "response")
    family = "generation"
    source = "Open RAG Eval"
    calls = "1"

    async def evaluate(self, case: JudgedTurn) -> Result:
        """Return the score."""
        judgement = await _attempt(case)
        attempted = judgement.value.attempted
        label = "answered" if attempted else "declined"
        # Some places show no label, and a 1 under this name reads as its opposite.
        explanation = ": ".join(filter(None, (label, judgement.value.explanation.strip())))
        return self.judged(float(attempted), judgement, label=label, explanation=explanation)


async def _attempt(case: JudgedTurn) -> Judgement[AnswerAttempt]:
    """Return the judge's answer; it is asked once, even if several metrics use it."""
    return await case.once(_KEY, lambda: case.ask(_TASK, AnswerAttempt, about_response=True))


async def declined(case: JudgedTurn) -> str | None:
    """Return the reason to skip a response that declines to answer; None if the response is to be judged.

    Only where :class:`NoAnswer` runs for the turn. If that fails, the response is judged as any other.
    """
    if not case.runs(NoAnswer.name):
        return None
    try:
        judgement = await _attempt(case)
    except Exception:  # the metric itself reports it
        return None
    return None if judgement.value.attempted else _DECLINED
