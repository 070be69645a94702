"""``reference``: how much of a reference answer is in the response, and how much of the response is in it.

One judge call. Source: “Test procedure and metrics for RAG in 5 minutes”.
"""

from __future__ import annotations

from pydantic import BaseModel
from pydantic import Field as Described

from rageval_hooks.errors import JudgeAnswerError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import JudgeMetric, Results, ScoreDefinition
from rageval_hooks.metrics.judged.no_answer import declined
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.score import Result


class ReferenceComparison(BaseModel):
    """The judge's answer."""

    missing: str = Described(description="what the reference says and the answer lacks; empty if nothing")
    extra: str = Described(description="what the answer says and the reference does not; empty if nothing")
    completeness: float = Described(description="share of the reference that is in the answer, 0 to 1")
    conciseness: float = Described(description="share of the answer that is part of the reference, 0 to 1")


_TASK = """\
{reference}

Task: compare the answer with the reference, which is a known good answer. The passages do not matter here.
1. Name what the reference says and the answer lacks or contradicts. Completeness is the share of the reference's
   information that is in the answer, from 0 (none) to 1 (all). What the answer says beyond it does not matter.
2. Name what the answer says and the reference does not. Conciseness is the share of the answer's information that is
   part of the reference, from 0 (none) to 1 (all).
The same information in other words is the same information."""


class Reference(JudgeMetric):
    """Completeness and conciseness of the response, compared with the turn's reference answer.

    If ``no_answer`` runs too and says that the system declined to answer, both are skipped without a call.
    """

    name = "reference"
    version = "2"
    scores = (
        ScoreDefinition(
            name="reference.completeness",
            description="share of the reference answer that is in the response",
            headline=1,
        ),
        ScoreDefinition(
            name="reference.conciseness", description="share of the response that is part of the reference answer"
        ),
    )
    requires = ("query", "response", "reference")
    family = "reference"
    source = "“Test procedure and metrics for RAG in 5 minutes”"
    calls = "1"

    async def evaluate(self, case: JudgedTurn) -> Results:
        """Return the two scores; one whose value is out of range is failed."""
        reason = await declined(case)
        if reason is not None:
            return self.skip_all(reason)
        task = _TASK.format(reference=case.delimiters.quote("reference", case.turn.reference or ""))
        judgement = await case.ask(task, ReferenceComparison, about_response=True)
        answer = judgement.value
        missing = f"Missing: {answer.missing.strip() or 'nothing'}"
        extra = f"Beyond the reference: {answer.extra.strip() or 'nothing'}"
        return [
            self._result("reference.completeness", answer.completeness, judgement, missing),
            self._result("reference.conciseness", answer.conciseness, judgement, extra),
        ]

    def _result(self, name: str, value: float, judgement: Judgement[ReferenceComparison], explanation: str) -> Result:
        if not 0 <= value <= 1:
            message = f"the judge gave {repr(value).removesuffix('.0')}, which is not from 0 to 1"
            return self.fail(JudgeAnswerError(message, **judgement.details()), name)
        # A judge may give -0.0: adding 0.0 makes it 0.0.
        return self.judged(value + 0.0, judgement, name=name, explanation=explanation)
