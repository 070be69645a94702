"""A conversation as a whole: how many answers are good, where it went wrong, and whether it ends with an answer."""

from __future__ import annotations

from collections.abc import Iterable

from rageval_hooks.metrics.base import VERDICT_VALUES
from rageval_hooks.privacy import REDACTED
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Evaluation, Result, Score, verdict_of
from rageval_hooks.text.words import content_keys, fold
from rageval_hooks.turn import Turn

_QUESTION_WORDS = frozenset("who whom whose what which when where why how".split())

GOOD_ANSWERS = "good_answers"
"""The score of a conversation in a backend: the share of its good answers."""


class ConversationSummary(Data):
    """What the turns of a conversation say together.

    Attributes:
        turns: how many there are.
        judged: those with the verdict good, doubtful or bad.
        good: those with the verdict good.
        first_bad: the number of the first turn with a bad answer, from 1; None without one.
        asked_again: the numbers of turns that ask what an earlier one asked.
        unanswered: True if the last question has no answer, or one that declines.
    """

    turns: int
    judged: int
    good: int
    first_bad: int | None = None
    asked_again: tuple[int, ...] = ()
    unanswered: bool = False

    @classmethod
    def of(cls, turns: Iterable[tuple[Turn, Iterable[Result]]], *, is_open: bool = False) -> ConversationSummary:
        """Return the summary of turns with their results, in the order of their times.

        Args:
            turns: the turns.
            is_open: True if a question without an answer follows the last turn.
        """
        labels, asked_again, unanswered = list[str | None](), list[int](), False
        asked = set[tuple[frozenset[str], frozenset[str]]]()
        for turn, results in sorted(turns, key=lambda one: one[0].timing.started_at if one[0].timing else 0):
            # The judge's verdict comes before the local one.
            label = verdict.label if (verdict := verdict_of(results)) is not None else None
            labels.append(label)
            # Where texts are kept off the spans, a verdict says that there was an answer.
            is_empty = label not in VERDICT_VALUES and not turn.response.strip() and "query" not in turn.missing
            unanswered = label == "declined" or is_empty
            # The same words in any order and form: certain, but it misses a question that was put in other words.
            question = (
                frozenset(content_keys(turn.query)),
                _QUESTION_WORDS.intersection(fold(turn.query).replace("?", " ").split()),
            )
            if question[0] and REDACTED not in turn.query:
                if question in asked:
                    asked_again.append(len(labels))
                asked.add(question)
        return cls(
            turns=len(labels),
            judged=sum(label in VERDICT_VALUES for label in labels),
            good=labels.count("good"),
            first_bad=labels.index("bad") + 1 if "bad" in labels else None,
            asked_again=tuple(asked_again),
            unanswered=unanswered or is_open,
        )

    @property
    def good_share(self) -> float | None:
        """The share of good answers; None if no answer has a verdict."""
        return self.good / self.judged if self.judged else None

    @property
    def score(self) -> Score | None:
        """The share of good answers as the score of a session; None if no answer has a verdict."""
        if self.good_share is None:
            return None
        details = self.model_dump(mode="json")
        return Score(name=GOOD_ANSWERS, value=self.good_share, explanation=self.sentence(), metadata=details)

    def sentence(self) -> str:
        """Return the summary in one sentence."""
        parts = [f"{self.good} of {self.judged} answers good"]
        if self.first_bad is not None:
            parts.append(f"the first bad one in turn {self.first_bad}")
        if self.asked_again:
            parts.append(f"the same question again in turn {', '.join(map(str, self.asked_again))}")
        if self.unanswered:
            parts.append("unanswered at its end")
        return "; ".join(parts) + "."


class Conversation(list[Evaluation]):
    """The evaluations of a conversation, one per answer.

    Attributes:
        summary: of the conversation.
    """

    def __init__(self, evaluations: Iterable[Evaluation], *, is_open: bool = False) -> None:
        super().__init__(evaluations)
        self.summary = ConversationSummary.of(((one.turn, one.results) for one in self), is_open=is_open)
