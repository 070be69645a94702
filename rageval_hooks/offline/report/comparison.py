"""Two files side by side, question by question."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.report.differences import ChangedTurn, find_texts, most_changed
from rageval_hooks.offline.report.directions import direction_of, worse
from rageval_hooks.offline.report.score_values import words_of
from rageval_hooks.offline.report.statistics import Paired, Resampling, holm, paired, sums
from rageval_hooks.offline.report.summary import Tally
from rageval_hooks.runtime.jsonable import Data, clean_text
from rageval_hooks.text.wording import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ChangedTurn", "Comparison", "Loss", "OtherMakers", "ScoreChange", "compare_files", "find_changed"]

_MOST_LOST = 0.5


class OtherMakers(Data):
    """Versions and models that made a score in two files, where they are not the same: its means do not compare."""

    before: tuple[str, ...]
    after: tuple[str, ...]


class ScoreChange(Data):
    """How one score differs between two files, over the questions that both have a value for.

    Attributes:
        name: of the score.
        direction: whether higher or lower is better.
        test: the paired test; None where no question has a value in both files.
        p_worse: probability of a change at least as bad if nothing had changed, adjusted (Holm) for the number of
            scores that were compared; None without a test.
        makers: who made the score in either file, if others did in the one than in the other for most questions.
        left_out: questions with a value in both files that are left out, because others made it in the one than in the
            other.
    """

    name: str
    direction: Direction
    test: Paired | None = None
    p_worse: float | None = None
    makers: OtherMakers | None = None
    left_out: int = 0

    @property
    def is_worse(self) -> bool:
        """Whether the mean changed for the worse, by however little."""
        return self.test is not None and worse(self.test.difference, self.direction)


class Loss(Data):
    """A score that questions have in the first file, and not in the second.

    Attributes:
        name: of the score.
        had: questions in both files that have a value in the first.
        lost: how many of them have none in the second. Where the score is sampled, one that was not drawn is not lost.
        values: how many the second file has.
        skipped: results of the second file that were skipped.
        failed: results of the second file that failed.
        reason: the most frequent reason of these.
    """

    name: str
    had: int
    lost: int
    values: int
    skipped: int
    failed: int
    reason: str = ""

    @property
    def too_much(self) -> bool:
        """Whether what is left says nothing of the whole: no values, or fewer than half of those that there were."""
        return not self.values or self.lost > _MOST_LOST * self.had


class Comparison(Data):
    """Two files.

    Attributes:
        before: name of the first.
        after: name of the second.
        before_path: where it is.
        after_path: where it is.
        common: questions that both have.
        different: ids that both have for different questions; they are left out.
        only_before: questions that only the first has.
        only_after: questions that only the second has.
        scores: those that both have, in the order of the first.
        only_in_one: names of the scores that only one of them has.
        losses: scores that some questions of the first have, and not in the second.
        changed_by: the score by which turns changed most.
        changed: these turns, the greatest change for the worse first.
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

    def loss_in_words(self, loss: Loss) -> str:
        """Return in words what the second file lacks."""
        counts = ((loss.failed, "failed"), (loss.skipped, "skipped"))
        why = " and ".join(f"{count} {word}" for count, word in counts if count) or "it was not computed"
        why += f": {loss.reason}" if loss.reason else ""
        if not loss.values:
            return f"{loss.name} has no value in {self.after} ({why})"
        return (
            f"{loss.name} has no value in {self.after} for {loss.lost} of the {loss.had} questions that have one in"
            f" {self.before} ({why})"
        )

    def makers_in_words(self, change: ScoreChange) -> str:
        """Return in words who made a score in the one file and in the other."""
        makers = change.makers
        if makers is None:
            return f"{change.name} was made by the same in both"
        return (
            f"in {self.before} it was made by {' and '.join(makers.before)}, in {self.after} by"
            f" {' and '.join(makers.after)}, and their means do not compare"
        )

    def left_out_in_words(self, change: ScoreChange) -> str:
        """Return in words which questions a score is not compared for."""
        return (
            f"{change.name} is compared without {counted(change.left_out, 'question')} for which another version or"
            f" model made it in {self.after} than in {self.before}"
        )


def compare_files(
    before: Tally,
    after: Tally,
    metrics: Sequence[str],
    changed_by: str | None,
    lower: Sequence[str],
    how: Resampling,
    most: int,
) -> Comparison:
    """Compare two files; the texts of the turns that changed are not known yet, see :func:`find_changed`.

    Args:
        before: the first, the baseline.
        after: the second.
        metrics: the scores to compare; all that both have if empty.
        changed_by: the score by which turns changed most.
        lower: scores of which lower is better, beside those that are known to be so.
        how: seed, resamples, level.
        most: how many changed turns to name.
    """
    names = [name for name in before.values if name in after.values and (not metrics or name in metrics)]
    shared = before.ids.keys() & after.ids.keys()
    same = {key for key in shared if before.asks_the_same(after, key)}
    changes: list[ScoreChange] = []
    turns: tuple[ChangedTurn, ...] = ()
    for name in names:
        direction = direction_of(name, before.values[name].metric, lower)
        others, makers = _made_by_others(before, after, name, same)
        ids, first, second, weights = _pairs(before, after, name, same - others)
        test = paired(first, second, weights, how) if ids else None
        changes.append(ScoreChange(name=name, direction=direction, test=test, makers=makers, left_out=len(others)))
        if name == changed_by:
            turns = most_changed(ids, first, second, direction, most)
    return Comparison(
        before=before.name,
        after=after.name,
        before_path=clean_text(before.path),
        after_path=clean_text(after.path),
        common=len(same),
        different=len(shared) - len(same),
        only_before=len(before.ids) - len(shared),
        only_after=len(after.ids) - len(shared),
        scores=_adjusted(changes),
        only_in_one=tuple(name for name in dict.fromkeys((*before.values, *after.values)) if name not in names)
        if not metrics
        else (),
        losses=tuple(
            loss
            for loss in (_loss(before, after, name, same) for name in before.values if not metrics or name in metrics)
            if loss.lost or not loss.values
        ),
        changed_by=changed_by,
        changed=turns,
    )


def find_changed(comparison: Comparison, before: Tally, after: Tally) -> Comparison:
    """Return the comparison with the texts of the turns that changed: reads the files a second time."""
    return comparison.model_copy(update={"changed": find_texts(comparison.changed, before.path, after.path)})


def _made_by_others(
    before: Tally, after: Tally, name: str, same: Collection[str]
) -> tuple[set[str], OtherMakers | None]:
    """Return the questions for which others made a score in the one file than in the other; none if these are most.

    Then, and where no question has a value in both, it is returned who made the score instead.
    """
    mine, others = before.values[name], after.values[name]
    if mine.is_comparable(others):
        return set(), None
    matches = mine.matches(others)
    first, second = (_makers_by_question(file, name) for file in (before, after))
    both = first.keys() & second.keys() & set(same)
    unlike = {key for key in both if not all(second[key] <= matches[maker] for maker in first[key])}
    if both and len(both) - len(unlike) >= _MOST_LOST * len(both):
        return unlike, None
    makers_before, makers_after = (tuple(map(words_of, values.makers)) for values in (mine, others))
    return set(), OtherMakers(before=makers_before, after=makers_after)


def _makers_by_question(file: Tally, name: str) -> dict[str, set[int]]:
    values, ids = file.values[name], list(file.ids)
    found: dict[str, set[int]] = {}
    for question, maker in zip(file.questions[values.rows].tolist(), values.made_by, strict=True):
        found.setdefault(ids[question], set()).add(maker)
    return found


def _loss(before: Tally, after: Tally, name: str, same: Collection[str]) -> Loss:
    values = after.values.get(name)
    had = _with_value(before, name).intersection(same)
    lost = had - (_with_value(after, name) if values else set())
    if before.values[name].sampled or (values and values.sampled):
        lost &= after.without(name)
    skipped, failed = after.missing(name)
    reason = next((reason for reason, _ in (failed or skipped).most_common(1)), "")
    return Loss(
        name=name,
        had=len(had),
        lost=len(lost),
        values=len(values) if values else 0,
        skipped=skipped.total(),
        failed=failed.total(),
        reason=reason,
    )


def _with_value(file: Tally, name: str) -> set[str]:
    ids, questions = list(file.ids), file.questions
    return {ids[index] for index in questions[file.values[name].rows].tolist()}


def _pairs(
    before: Tally, after: Tally, name: str, same: Collection[str]
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the questions with a value in both files, their values (mean over runs) and weights.

    Two samples were drawn, so a pair stands for the product of what its two sides stand for.
    """
    import numpy as np

    first, second = (_by_question(file, name) for file in (before, after))
    ids = [key for key in first if key in second and key in same]
    both = np.array([(*first[key], *second[key]) for key in ids], dtype=np.float64).reshape(-1, 4)
    return ids, both[:, 0], both[:, 2], both[:, 1] * both[:, 3]


def _by_question(file: Tally, name: str) -> dict[str, tuple[float, float]]:
    """Return id → (weighted mean of its values, mean of their weights)."""
    import numpy as np

    values = file.values[name]
    questions = file.questions[values.rows]
    present, counts = np.unique(questions, return_counts=True)
    total, weight = sums(values.values, values.weights, questions)
    ids = list(file.ids)
    values, weights = (total / weight).tolist(), (weight / counts).tolist()
    return {ids[index]: (values[k], weights[k]) for k, index in enumerate(present.tolist())}


def _adjusted(changes: Sequence[ScoreChange]) -> tuple[ScoreChange, ...]:
    """Add the probabilities of a change for the worse, adjusted for the number of scores.

    A score that is the same for every question can show nothing, and does not count as one of them.
    """
    tested = [index for index, change in enumerate(changes) if change.test is not None and change.test.changed]
    raw = []
    for index in tested:
        change, test = changes[index], changes[index].test
        if test is not None:
            raw.append(test.p_lower if change.direction == "higher" else test.p_higher)
    adjusted = dict(zip(tested, holm(raw), strict=True))
    return tuple(
        change.model_copy(update={"p_worse": adjusted.get(index, 1.0)}) if change.test is not None else change
        for index, change in enumerate(changes)
    )
