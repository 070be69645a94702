"""Compares two files question by question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.answerability import UNANSWERABLE
from rageval_hooks.offline.report.comparison.changes import ChangedTurn, Comparison, Loss, OtherMakers, ScoreChange
from rageval_hooks.offline.report.definitions import direction_of
from rageval_hooks.offline.report.derived import TARGET_RANK
from rageval_hooks.offline.report.score_values import ScoreValues, describe_maker
from rageval_hooks.offline.report.statistics import Resampling, holm, paired, sums
from rageval_hooks.offline.report.tally import FileTally
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.runtime.selecting import common, without

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["compare_files"]

# If fewer of the questions have a value by the same makers, the two means are not comparable.
_LEAST_COMPARABLE = 0.5


def compare_files(
    before: FileTally,
    after: FileTally,
    metrics: Sequence[str],
    changed_by: str | None,
    lower: Sequence[str],
    how: Resampling,
    most: int,
) -> Comparison:
    """Compare two files.

    Args:
        before: the first, the baseline.
        after: the second.
        metrics: scores to compare; all that both have if empty.
        changed_by: the score by which turns changed most.
        lower: scores for which lower is better, in addition to those that say so themselves.
        how: seed, resamples, level.
        most: number of changed turns to show.
    """
    names = common(_chosen(before.values, metrics), after.values)
    shared = before.ids.keys() & after.ids.keys()
    # Rows without an id have their number as the id: in another file it may be another question.
    same = {key for key in shared if before.asks_the_same(after, key)}
    changes: list[ScoreChange] = []
    changed: tuple[ChangedTurn, ...] = ()
    for name in names:
        direction = direction_of(name, before.values[name].metric, lower)
        excluded, makers = _made_differently(before, after, name, same)
        pairs = _Pairs(before, after, name, same - excluded)
        test = paired(pairs.before, pairs.after, pairs.weights, how) if pairs.ids else None
        changes.append(
            ScoreChange(name=name, direction=direction, test=test, makers=makers, not_compared=len(excluded))
        )
        if name == changed_by:
            changed = pairs.most_changed(direction, most)
    every_name = dict.fromkeys((*before.values, *after.values))
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
        only_in_one=() if metrics else tuple(without(every_name, names)),
        losses=_losses(before, after, metrics, same),
        changed_by=changed_by,
        changed=_with_texts(changed, before, after),
    )


class _Pairs:
    """The questions with a value in both files: their values (mean over runs) and weights.

    Two samples were drawn, so a pair stands for the product of what its two sides stand for.
    """

    def __init__(self, before: FileTally, after: FileTally, name: str, wanted: Collection[str]) -> None:
        import numpy as np

        # One row per question: the answers to it are not independent, and would make the test too sure.
        first, second = _by_question(before, name), _by_question(after, name)
        self.ids = [key for key in first if key in second and key in wanted]
        table = np.array([(*first[key], *second[key]) for key in self.ids], dtype=np.float64).reshape(-1, 4)
        self.before: NDArray[np.float64] = table[:, 0]
        self.after: NDArray[np.float64] = table[:, 2]
        self.weights: NDArray[np.float64] = table[:, 1] * table[:, 3]

    def most_changed(self, direction: Direction, most: int) -> tuple[ChangedTurn, ...]:
        """Return the questions whose values changed most, without their texts; changes for the worse first."""
        import numpy as np

        change = self.after - self.before
        # A stable sort keeps the order of the file among equal changes.
        order = np.argsort(-np.abs(change), kind="stable")[:most]
        found = [int(index) for index in order if change[index]]
        found.sort(key=lambda index: change[index] if direction == "higher" else -change[index])
        return tuple(
            ChangedTurn(id=self.ids[index], before=float(self.before[index]), after=float(self.after[index]))
            for index in found
        )


def _by_question(file: FileTally, name: str) -> dict[str, tuple[float, float]]:
    """Return id → (weighted mean of its values, mean of their weights)."""
    import numpy as np

    values = file.values[name]
    questions = file.questions[values.rows]
    present, counts = np.unique(questions, return_counts=True)
    total, weight = sums(values.values, values.weights, questions)
    ids = list(file.ids)
    means, weights = (total / weight).tolist(), (weight / counts).tolist()
    return {ids[question]: (means[k], weights[k]) for k, question in enumerate(present.tolist())}


def _with_texts(turns: Sequence[ChangedTurn], before: FileTally, after: FileTally) -> tuple[ChangedTurn, ...]:
    first_rows, second_rows = _first_rows(before), _first_rows(after)
    found = []
    for turn in turns:
        first, second = before.store[first_rows[turn.id]], after.store[second_rows[turn.id]]
        texts = {
            "query": first.turn.query,
            "response_before": first.turn.response,
            "response_after": second.turn.response,
        }
        found.append(turn.model_copy(update=texts))
    return tuple(found)


def _first_rows(file: FileTally) -> dict[str, int]:
    """Return id → number of the question's first record."""
    import numpy as np

    _, rows = np.unique(file.questions, return_index=True)
    return dict(zip(file.ids, rows.tolist(), strict=True))


def _made_differently(
    before: FileTally, after: FileTally, name: str, same: Collection[str]
) -> tuple[set[str], OtherMakers | None]:
    """Return the questions whose values have different makers in the two files.

    If these are most of the questions, excluding them would leave too little: then none is excluded, and the makers of
    both files are returned, so that the score is not judged at all.
    """
    mine, theirs = before.values[name], after.values[name]
    if mine.metric != theirs.metric and None not in (mine.metric, theirs.metric):
        # Two metrics share the name: `mrr` is made from grades, or from the rank of a known target.
        return set(), OtherMakers(before=(f"{mine.metric}",), after=(f"{theirs.metric}",))
    if mine.is_comparable(theirs):
        return set(), None
    matches = mine.matching_makers(theirs)
    first, second = _makers_by_question(before, name), _makers_by_question(after, name)
    both = first.keys() & second.keys() & set(same)
    different = set()
    for key in both:
        # Every maker of the second file's values has to match every maker of the first file's.
        allowed = frozenset.intersection(*(matches[maker] for maker in first[key]))
        if not second[key] <= allowed:
            different.add(key)
    comparable = len(both) - len(different)
    if both and comparable >= _LEAST_COMPARABLE * len(both):
        return different, None
    return set(), OtherMakers(before=_described(mine), after=_described(theirs))


def _described(values: ScoreValues) -> tuple[str, ...]:
    return tuple(map(describe_maker, values.makers))


def _makers_by_question(file: FileTally, name: str) -> dict[str, set[int]]:
    values, ids = file.values[name], list(file.ids)
    found: dict[str, set[int]] = {}
    for question, maker in zip(file.questions[values.rows].tolist(), values.maker_numbers, strict=True):
        found.setdefault(ids[question], set()).add(maker)
    return found


def _losses(before: FileTally, after: FileTally, metrics: Sequence[str], same: Collection[str]) -> tuple[Loss, ...]:
    losses = [_loss(before, after, name, same) for name in _chosen(before.values, metrics)]
    # A score without any value in the second file is lost, even if no common question had it in the first.
    return tuple(loss for loss in losses if loss.lost or not loss.values)


def _chosen(names: Iterable[str], metrics: Collection[str]) -> list[str]:
    """Return the names that a report is about; without a choice, all of them."""
    return common(names, metrics) if metrics else list(names)


def _loss(before: FileTally, after: FileTally, name: str, same: Collection[str]) -> Loss:
    values = after.values.get(name)
    had = _ids_with_value(before, name).intersection(same)
    lost = had - _ids_with_value(after, name)
    # A turn that was sampled out has no result at all; one that is skipped or failed has.
    if before.values[name].sampled or (values is not None and values.sampled):
        lost &= after.ids_without(name)
    skipped, failed = _causes(after, name)
    return Loss(
        name=name,
        had=len(had),
        lost=len(lost),
        lost_to_failures=len(lost & after.ids_where_failed(name)),
        values=len(values) if values is not None else 0,
        skipped=skipped.total(),
        failed=failed.total(),
        reason=_loss_reason(before, after, name),
    )


def _causes(after: FileTally, name: str) -> tuple[Counter[str], Counter[str]]:
    """Return why a score was skipped and failed, as far as that explains a loss."""
    skipped, failed = after.missing(name)
    # Questions without an answer have no value in either file: they explain a loss only if nothing else does.
    if len(skipped) + len(failed) > 1:
        skipped.pop(UNANSWERABLE, None)
    return skipped, failed


def _loss_reason(before: FileTally, after: FileTally, name: str) -> str:
    skipped, failed = _causes(after, name)
    # A failure explains more than a skip, which may be a consequence of it.
    for reason, _ in (failed or skipped).most_common(1):
        return reason
    if before.values[name].metric == TARGET_RANK and not after.ranks:
        return "its records have no target passages"
    return ""


def _ids_with_value(file: FileTally, name: str) -> set[str]:
    if name not in file.values:
        return set()
    ids, questions = list(file.ids), file.questions
    return {ids[index] for index in questions[file.values[name].rows].tolist()}


def _adjusted(changes: Sequence[ScoreChange]) -> tuple[ScoreChange, ...]:
    """Add the one-sided probabilities, adjusted for the number of scores.

    A score with the same value for every question cannot show anything, so it does not count as one of them.
    """
    worse: dict[str, float] = {}
    better: dict[str, float] = {}
    for change in changes:
        if change.test is None or not change.test.changed:
            continue
        lower, higher = change.test.p_lower, change.test.p_higher
        if change.direction == "lower":
            lower, higher = higher, lower
        worse[change.name] = lower
        better[change.name] = higher
    p_worse = _adjusted_for_number(worse)
    p_better = _adjusted_for_number(better)
    return tuple(
        change
        if change.test is None
        else change.model_copy(
            # An unchanged score was not tested: nothing speaks for a change in either direction.
            update={"p_worse": p_worse.get(change.name, 1.0), "p_better": p_better.get(change.name, 1.0)}
        )
        for change in changes
    )


def _adjusted_for_number(probabilities: dict[str, float]) -> dict[str, float]:
    return dict(zip(probabilities, holm(list(probabilities.values())), strict=True))
