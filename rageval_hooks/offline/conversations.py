"""The verdict of a conversation: how many answers are good, where it went wrong, and whether it ends with an answer."""

from __future__ import annotations

from collections.abc import Iterable

from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import VERDICT, Evaluation, Result, verdict_first
from rageval_hooks.text.words import content_keys, fold
from rageval_hooks.turn import Turn

_QUESTION_WORDS = frozenset("who whom whose what which when where why how".split())


class ConversationVerdict(Data):
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

    @property
    def good_share(self) -> float | None:
        """The share of good answers; None if no answer has a verdict."""
        return self.good / self.judged if self.judged else None

    def sentence(self) -> str:
        """Return the verdict in one sentence."""
        parts = [f"{self.good} of {self.judged} answers good"]
        if self.first_bad is not None:
            parts.append(f"the first bad one in turn {self.first_bad}")
        if self.asked_again:
            parts.append(f"the same question again in turn {', '.join(map(str, self.asked_again))}")
        if self.unanswered:
            parts.append("unanswered at its end")
        return "; ".join(parts) + "."


class ConversationReader:
    """Takes the turns of a conversation, in their order, and says its verdict."""

    def __init__(self) -> None:
        self._labels: list[str | None] = []
        self._asked = set[tuple[frozenset[str], frozenset[str]]]()
        self._asked_again: list[int] = []
        self._unanswered = False

    def add(self, turn: Turn, results: Iterable[Result]) -> None:
        """Add the next turn with its results."""
        # The judge's verdict comes before the local one.
        label = next((result.label for result in verdict_first(results) if result.name == VERDICT), None)
        self._labels.append(label)
        self._unanswered = label == "declined" or not turn.response.strip()
        # The same words in any order and form: certain, but it misses a question that was put in other words.
        question = (
            frozenset(content_keys(turn.query)),
            _QUESTION_WORDS.intersection(fold(turn.query).replace("?", " ").split()),
        )
        if question[0] and question in self._asked:
            self._asked_again.append(len(self._labels))
        self._asked.add(question)

    def verdict(self, *, is_open: bool = False) -> ConversationVerdict:
        """Return the verdict of the turns so far.

        Args:
            is_open: True if a question without an answer follows the last turn.
        """
        labels = self._labels
        return ConversationVerdict(
            turns=len(labels),
            judged=sum(label in ("good", "doubtful", "bad") for label in labels),
            good=labels.count("good"),
            first_bad=labels.index("bad") + 1 if "bad" in labels else None,
            asked_again=tuple(self._asked_again),
            unanswered=self._unanswered or is_open,
        )


class Conversation(list[Evaluation]):
    """The evaluations of a conversation, one per answer.

    Attributes:
        verdict: of the conversation.
    """

    def __init__(self, evaluations: Iterable[Evaluation], *, is_open: bool = False) -> None:
        super().__init__(evaluations)
        reader = ConversationReader()
        for evaluation in self:
            reader.add(evaluation.turn, evaluation.results)
        self.verdict = reader.verdict(is_open=is_open)
