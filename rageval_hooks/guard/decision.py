"""A guard's decision about one answer."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from rageval_hooks.errors import RagevalError
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.runtime.selecting import instances
from rageval_hooks.score import Result, Score

__all__ = ["Action", "AnswerBlockedError", "GuardDecision", "Verdict"]

Verdict = Literal["supported", "unsupported", "refusal", "no_claims", "unchecked"]
Action = Literal["passed", "flagged", "replaced", "raised", "regenerated"]

_BLOCKING: frozenset[Action] = frozenset(("replaced", "raised", "regenerated"))


class GuardDecision(Data):
    """A guard's verdict on an answer, and its action.

    Attributes:
        verdict: ``supported`` and ``unsupported`` by the scores; ``refusal`` if the answer declines to answer, and
            ``no_claims`` if it has no words that could be compared: both always pass. ``unchecked`` if the check
            failed, took too long or had no passages: ``on_error`` decides.
        action: what the guard did with the answer.
        answer: what the user gets: the answer itself, or the fallback.
        checked: the text that was checked.
        reason: why, in a sentence; it names the scores and not the texts.
        results: the results of the metrics.
        seconds: how long the check took.
        attempt: 1 for the first answer, 2 for the first regenerated one.
    """

    verdict: Verdict
    action: Action = "passed"
    answer: Text
    checked: Text
    reason: Text = ""
    results: tuple[Result, ...] = ()
    seconds: float = Field(default=0.0, ge=0)
    attempt: int = Field(default=1, ge=1)

    @property
    def blocked(self) -> bool:
        """True if the user does not get the answer that was checked."""
        return self.action in _BLOCKING

    def summary(self) -> dict[str, Any]:
        """Return the decision without its texts, for a message's metadata."""
        scores = {score.name: score.value for score in instances(self.results, Score)}
        return {"verdict": self.verdict, "action": self.action, "reason": self.reason, "scores": scores}


class AnswerBlockedError(RagevalError):
    """A guard blocked an answer, and ``on_fail`` is "raise".

    Args:
        message: what is wrong; it quotes no text.
        decision: the guard's decision, with the answer.
    """

    def __init__(self, message: str, decision: GuardDecision) -> None:
        super().__init__(message)
        self.decision = decision
