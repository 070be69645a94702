"""Questions that the documents do not answer: a refusal is the right response to them."""

from __future__ import annotations

from rageval_hooks.metrics.base import VERDICT_VALUES
from rageval_hooks.privacy import REDACTED
from rageval_hooks.score import VERDICT, Result, Score
from rageval_hooks.text.refusals import says_nothing

UNANSWERABLE = "the question is marked as unanswerable"
"""Why metrics that need an answer are skipped."""

SHOULD_DECLINE = "the question is marked as unanswerable, and the answer does not decline"


def is_refusal(response: str) -> bool | None:
    """Return True if a response claims nothing, by rules; None if it is hidden.

    An empty response is a refusal here: it claims nothing. An answer in a language that the rules do not know counts as
    an answer.
    """
    if response == REDACTED:
        return None
    return not response.strip() or says_nothing(response)


def verdict_if_unanswerable(result: Result, response: str) -> Result:
    """Return the verdict about the answer to a question that is marked as unanswerable: an answer is bad.

    Results other than verdicts, and the verdict of an answer that declines, stay as they are.
    """
    if result.name != VERDICT or result.label == "declined" or is_refusal(response) is not False:
        return result
    return Score(
        name=VERDICT,
        metric=result.metric,
        value=VERDICT_VALUES["bad"],
        label="bad",
        cause="should_decline",
        explanation=SHOULD_DECLINE,
        version=result.version or "1",
    )
