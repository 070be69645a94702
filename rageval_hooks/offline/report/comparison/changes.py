"""What differs between two files, as data: scores, losses, and the turns that changed most."""

from __future__ import annotations

from collections.abc import Iterable

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.report.definitions import is_worse
from rageval_hooks.offline.report.statistics import Paired
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.text.wording import counted

__all__ = ["ChangedTurn", "Comparison", "Loss", "OtherMakers", "ScoreChange"]

# A score that was skipped for more than half of the questions says nothing about the whole.
_MOST_SKIPPED = 0.5


class OtherMakers(Data):
    """Versions and models that made a score in two files, where they differ: the two means are not comparable."""

    before: tuple[str, ...]
    after: tuple[str, ...]


class ScoreChange(Data):
    """How one score differs between two files, over the questions with a value in both.

    Attributes:
        name: the score.
        direction: whether higher or lower is better.
        test: the paired test; None if no question has a value in both files.
        p_worse: probability of a change at least as bad if nothing had changed, adjusted (Holm) for the number of
            scores that were compared; None without a test.
        p_better: likewise of a change at least as good.
        makers: who made the score in each file, if they differ for most questions.
        not_compared: questions with a value in both files that are excluded, because different makers made them.
    """

    name: str
    direction: Direction
    test: Paired | None = None
    p_worse: float | None = None
    p_better: float | None = None
    makers: OtherMakers | None = None
    not_compared: int = 0

    @property
    def is_tested(self) -> bool:
        """True if the score was tested, and the same makers made it in both files."""
        return self.test is not None and self.makers is None

    @property
    def is_worse(self) -> bool:
        """True if the mean changed for the worse, by however little."""
        return self.test is not None and is_worse(self.test.difference, self.direction)

    @property
    def count(self) -> int:
        """Number of questions that were compared."""
        return self.test.count if self.test else 0

    @property
    def changed(self) -> int:
        """Number of questions whose value changed."""
        return self.test.changed if self.test else 0

    def is_significant(self, alpha: float, *, worse: bool) -> bool:
        """Return True if the score was tested and changed significantly in one direction.

        Args:
            alpha: probability of a false alarm.
            worse: for a change for the worse, else for the better.
        """
        p = self.p_worse if worse else self.p_better
        return self.is_tested and p is not None and p < alpha


class Loss(Data):
    """A score that questions have in the first file, but not in the second.

    Attributes:
        name: the score.
        had: questions in both files that have a value in the first.
        lost: how many of them have none in the second. For a sampled score, those that were sampled out do not count.
        lost_to_failures: how many of the lost ones are lost because the turn or the metric failed.
        values: number of values in the second file.
        skipped: results of the second file that were skipped.
        failed: results of the second file that failed.
        reason: the most frequent reason.
    """

    name: str
    had: int
    lost: int
    lost_to_failures: int
    values: int
    skipped: int
    failed: int
    reason: str = ""

    @property
    def is_too_much(self) -> bool:
        """True if the rest cannot stand for the whole: there are no values, or fewer than half of them are left."""
        return not self.values or self.lost > _MOST_SKIPPED * self.had


class ChangedTurn(Data):
    """A question whose score changed much.

    Attributes:
        id: the question's id.
        before: mean of its values in the first file.
        after: mean of its values in the second.
        query: the question.
        response_before: its first answer in the first file.
        response_after: its first answer in the second.
    """

    id: str
    before: float
    after: float
    query: str = ""
    response_before: str = ""
    response_after: str = ""


class Comparison(Data):
    """Two files.

    Attributes:
        before: name of the first.
        after: name of the second.
        before_path: path of the first.
        after_path: path of the second.
        common: questions that both have.
        different: ids that stand for different questions in the two files; they are not compared.
        only_before: questions that only the first has.
        only_after: questions that only the second has.
        scores: scores that both have, in the order of the first.
        only_in_one: scores that only one of them has.
        losses: scores that some questions of the first have, but not in the second.
        changed_by: the score by which turns changed most.
        changed: these turns, the largest change for the worse first.
    """

    before: str
    after: str
    before_path: str
    after_path: str
    common: int
    only_before: int
    only_after: int
    scores: tuple[ScoreChange, ...]
    only_in_one: tuple[str, ...] = ()
    different: int = 0
    losses: tuple[Loss, ...] = ()
    changed_by: str | None = None
    changed: tuple[ChangedTurn, ...] = ()

    def describe_losses(self, losses: Iterable[Loss]) -> list[str]:
        """Return in words what the second file lacks: one sentence per cause, with the names of its scores.

        Scores that are missing for the same reason share a sentence. For example, a file without target passages lacks
        the rank and all scores that follow from it.
        """
        names: dict[str, list[str]] = {}
        for loss in losses:
            names.setdefault(self._describe_lack(loss), []).append(loss.name)
        sentences = []
        for lack, members in names.items():
            verb = "has" if len(members) == 1 else "have"
            sentences.append(f"{', '.join(members)} {verb} {lack}")
        return sentences

    def _describe_lack(self, loss: Loss) -> str:
        why = _describe_cause(loss)
        if not loss.values:
            return f"no value in {self.after} ({why})"
        questions = f"{loss.lost} of the {loss.had} questions that have one in {self.before}"
        return f"no value in {self.after} for {questions} ({why})"

    def describe_makers(self, change: ScoreChange) -> str:
        """Return in words who made a score in each file."""
        makers = change.makers
        if makers is None:
            return f"{change.name} was made by the same in both"
        return (
            f"in {self.before} it was made by {' and '.join(makers.before)}, in {self.after} by"
            f" {' and '.join(makers.after)}, so the means are not comparable"
        )

    def describe_excluded(self, change: ScoreChange) -> str:
        """Return in words which questions are excluded from the comparison of a score."""
        return (
            f"{change.name} is compared without {counted(change.not_compared, 'question')} for which another version or"
            f" model made it in {self.after} than in {self.before}"
        )


def _describe_cause(loss: Loss) -> str:
    numbers = {"failed": loss.failed, "skipped": loss.skipped}
    why = " and ".join(f"{number} {word}" for word, number in numbers.items() if number) or "not computed"
    return f"{why}: {loss.reason}" if loss.reason else why
