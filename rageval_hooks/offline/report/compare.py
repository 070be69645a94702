"""Two files question by question: what is compared, as data, and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.answerability import UNANSWERABLE
from rageval_hooks.offline.report.scored_file import Maker, ScoredFile, ScoreValues
from rageval_hooks.offline.report.statistics import Flags, Floats, Ints, Paired, Resampling, holm, paired, sums
from rageval_hooks.offline.score_definitions import TARGET_RANK, is_quality
from rageval_hooks.runtime.jsonable import Data


class OtherMakers(Data):
    """Versions and models that made a score in two files, where they differ: the two means are not comparable."""

    before: tuple[str, ...]
    after: tuple[str, ...]


class ScoreChange(Data):
    """How one score differs between two files, over the questions with a value in both.

    Attributes:
        name: the score.
        direction: whether higher or lower is better.
        quality: True if the score is about the answers; False for latency, tokens and cost.
        binary: True if the score is a yes or no, so that its mean is a share.
        scale: length of the score's range; None if it has no bounds.
        test: the paired test; None if no question has a value in both files.
        p_worse: probability of a change at least as bad if nothing had changed, adjusted (Holm) for the number of
            scores that were compared; None without a test.
        p_better: likewise of a change at least as good.
        makers: who made the score in each file, if they differ.
    """

    name: str
    direction: Direction
    quality: bool = True
    binary: bool = False
    scale: float | None = None
    test: Paired | None = None
    p_worse: float | None = None
    p_better: float | None = None
    makers: OtherMakers | None = None

    @property
    def count(self) -> int:
        """Number of questions that were compared."""
        return self.test.count if self.test else 0

    @property
    def effect(self) -> float:
        """Size of the change from 0 to 1: of the score's range, or of both means together if it has no range."""
        if self.test is None:
            return 0.0
        whole = self.scale or abs(self.test.before) + abs(self.test.after)
        return min(1.0, abs(self.test.difference) / whole) if whole else 0.0

    @property
    def worsening(self) -> float:
        """By how much the mean changed for the worse; negative if it changed for the better."""
        if self.test is None:
            return 0.0
        return self.test.difference if self.direction == "lower" else -self.test.difference

    def is_significant(self, alpha: float, *, worse: bool) -> bool:
        """Return True if the mean changed significantly in one direction.

        Args:
            alpha: probability of a false alarm.
            worse: for a change for the worse, else for the better.
        """
        p = self.p_worse if worse else self.p_better
        return self.makers is None and p is not None and p < alpha


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
        quality: True if the score is about the answers; False for latency, tokens and cost.
    """

    name: str
    had: int
    lost: int
    lost_to_failures: int
    values: int
    skipped: int
    failed: int
    reason: str = ""
    quality: bool = True

    @property
    def is_too_much(self) -> bool:
        """True if the rest cannot stand for the whole: there are no values, or fewer than half of them are left."""
        return not self.values or self.lost > self.had / 2


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


class FileComparison(Data):
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
        all scores that follow from the rank.
        """
        names: dict[str, list[str]] = {}
        for loss in losses:
            numbers = {"failed": loss.failed, "skipped": loss.skipped}
            why = " and ".join(f"{number} {word}" for word, number in numbers.items() if number) or "not computed"
            if loss.reason:
                why += f": {loss.reason}"
            where = f"no value in {self.after}"
            if loss.values:
                where += f" for {loss.lost} of the {loss.had} questions that have one in {self.before}"
            names.setdefault(f"{where} ({why})", []).append(loss.name)
        return [f"{', '.join(found)} {'has' if len(found) == 1 else 'have'} {lack}" for lack, found in names.items()]

    def describe_makers(self, makers: OtherMakers) -> str:
        """Return in words who made a score in each file."""
        return (
            f"in {self.before} it was made by {' and '.join(makers.before)}, in {self.after} by"
            f" {' and '.join(makers.after)}, so the means are not comparable"
        )


# --------------------------------------------------------------------------- comparing


def compare_files(
    before: ScoredFile,
    after: ScoredFile,
    metrics: Sequence[str],
    changed_by: str | None,
    how: Resampling,
    most: int,
) -> FileComparison:
    """Compare two files.

    Args:
        before: the first, the baseline.
        after: the second.
        metrics: scores to compare; all that both have if empty.
        changed_by: the score by which turns changed most.
        how: seed, resamples, level.
        most: number of changed turns to show.
    """
    # Per question of the first file its number in the second; -1 if only the first has it.
    numbers = np.array([after.ids.get(question, -1) for question in before.ids])
    shared = numbers >= 0
    # Rows without an id have their number as the id, which in another file may be another question.
    mine, theirs = before.query_hashes, after.query_hashes[numbers]
    same = shared & ((mine == theirs) | (mine == 0) | (theirs == 0))
    chosen = [name for name in before.values if not metrics or name in metrics]
    names = [name for name in chosen if name in after.values]
    changes: list[ScoreChange] = []
    changed: list[ChangedTurn] = []
    for name in names:
        values, others = before.values[name], after.values[name]
        first, first_weights = _means(before, name)
        second, second_weights = (found[numbers] for found in _means(after, name))
        used = same & ~np.isnan(first) & ~np.isnan(second)
        # Two samples were drawn, so a pair stands for the product of what its two sides stand for.
        weights = first_weights * second_weights
        definition = before.define(name)
        high = None if after.define(name).high is None else definition.high
        changes.append(
            ScoreChange(
                name=name,
                direction=definition.direction,
                quality=is_quality(name, values.metric),
                binary=definition.binary,
                scale=None if high is None else high - definition.low,
                test=paired(first[used], second[used], weights[used], how) if used.any() else None,
                makers=_other_makers(values, others),
            )
        )
        if name == changed_by:
            gain = np.where(used, (second - first) * (-1 if definition.direction == "lower" else 1), 0.0)
            # The largest changes, those for the worse first. A stable sort keeps the order of the file among equals.
            largest = [int(place) for place in np.argsort(-np.abs(gain), kind="stable")[:most] if gain[place]]
            largest.sort(key=lambda place: gain[place])
            for place in largest:
                # With its first answers.
                old = before.record(int((before.questions == place).argmax()))
                new = after.record(int((after.questions == numbers[place]).argmax()))
                changed.append(
                    ChangedTurn(
                        id=old.id,
                        before=float(first[place]),
                        after=float(second[place]),
                        query=old.turn.query,
                        response_before=old.turn.response,
                        response_after=new.turn.response,
                    )
                )
    losses = [_loss(before, after, name, numbers, same) for name in chosen]
    every_name = dict.fromkeys((*before.values, *after.values))
    return FileComparison(
        before=before.name,
        after=after.name,
        before_path=before.path,
        after_path=after.path,
        common=int(same.sum()),
        different=int((shared & ~same).sum()),
        only_before=len(before.ids) - int(shared.sum()),
        only_after=len(after.ids) - int(shared.sum()),
        scores=_adjusted(changes),
        only_in_one=() if metrics else tuple(name for name in every_name if name not in names),
        # A score without any value in the second file is lost, even if no common question had it in the first.
        losses=tuple(loss for loss in losses if loss.lost or not loss.values),
        changed_by=changed_by,
        changed=tuple(changed),
    )


def _means(file: ScoredFile, name: str) -> tuple[Floats, Floats]:
    """Return per question the weighted mean over its runs, NaN without a value, and the mean of their weights.

    One number per question: the answers to it are not independent, and would make a test too sure.
    """
    values = file.values[name]
    present, counts = np.unique(values.questions, return_counts=True)
    total, weight = sums(values.values, values.weights, values.questions)
    found = np.full((2, len(file.ids)), np.nan)
    found[0, present], found[1, present] = total / weight, weight / counts
    return found[0], found[1]


def _other_makers(before: ScoreValues, after: ScoreValues) -> OtherMakers | None:
    """Return the makers of a score in two files if they differ; None if its values can be compared.

    What a file does not state ("") counts as the same. A score that needed no model (of an empty answer, for example)
    is the same under any model, provided that the two files have a maker in common.
    """
    if before.metric != after.metric and None not in (before.metric, after.metric):
        # Two metrics share the name: `mrr` is made from grades, or from the rank of a known target.
        return OtherMakers(before=(f"{before.metric}",), after=(f"{after.metric}",))

    def is_same(one: Maker, other: Maker) -> bool:
        return all(mine == theirs or "" in (mine, theirs) for mine, theirs in zip(one, other, strict=True))

    pairs = [(one, other) for one in before.makers for other in after.makers if is_same(one, other)]
    matched = ({one for one, _ in pairs}, {other for _, other in pairs})
    unmatched = [*(before.makers.keys() - matched[0]), *(after.makers.keys() - matched[1])]
    if all(pairs and model is None for _, model in unmatched):
        return None
    return OtherMakers(before=before.described_makers(), after=after.described_makers())


def _loss(before: ScoredFile, after: ScoredFile, name: str, numbers: Ints, same: Flags) -> Loss:
    """Return how many questions lack a score in the second file.

    Args:
        before: the first file.
        after: the second.
        name: the score.
        numbers: per question of the first file, its number in the second.
        same: per question, whether it is compared.
    """
    old, new = before.values[name], after.values.get(name)
    had = before.outcomes(name)[0] & same
    # By the numbers of the first file; questions that only it has are not in `same`.
    valued, missing, where_failed = (flags[numbers] for flags in after.outcomes(name))
    lost = had & ~valued
    # A turn that was sampled out has no result at all; one that is skipped or failed has.
    if old.sampled or (new is not None and new.sampled):
        lost &= missing
    skipped, failed = after.missing(name)
    # Questions without an answer have no value in either file: they explain a loss only if nothing else does.
    if len(skipped) + len(failed) > 1:
        skipped.pop(UNANSWERABLE, None)
    # A failure explains more than a skip, which may be a consequence of it.
    reason = next((reason for reason, _ in (failed or skipped).most_common(1)), "")
    if not reason and old.metric == TARGET_RANK and not after.ranks:
        reason = "its records have no target passages"
    return Loss(
        name=name,
        had=int(had.sum()),
        lost=int(lost.sum()),
        lost_to_failures=int((lost & where_failed).sum()),
        values=len(new.values) if new is not None else 0,
        quality=is_quality(name, old.metric),
        skipped=skipped.total(),
        failed=failed.total(),
        reason=reason,
    )


def _adjusted(changes: Sequence[ScoreChange]) -> tuple[ScoreChange, ...]:
    """Add the one-sided probabilities, adjusted for the number of scores.

    Scores of quality and of usage are adjusted separately: more latencies should not hide a change of quality. A score
    with the same value for every question cannot show anything, so it does not count as one of them.
    """
    adjusted: dict[str, tuple[float, float]] = {}
    for quality in (True, False):
        tests = {c.name: (c.direction, c.test) for c in changes if c.quality == quality and c.test and c.test.changed}
        lower = [test.p_lower if direction == "higher" else test.p_higher for direction, test in tests.values()]
        higher = [test.p_higher if direction == "higher" else test.p_lower for direction, test in tests.values()]
        adjusted.update(zip(tests, zip(holm(lower), holm(higher), strict=True), strict=True))
    found = []
    for change in changes:
        # An unchanged score was not tested: nothing speaks for a change in either direction.
        worse, better = adjusted.get(change.name, (1.0, 1.0)) if change.test else (None, None)
        found.append(change.model_copy(update={"p_worse": worse, "p_better": better}))
    return tuple(found)
