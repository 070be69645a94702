"""Compares two files question by question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from rageval_hooks.offline.answerability import UNANSWERABLE
from rageval_hooks.offline.report.definitions import TARGET_RANK, define_score, direction_of, is_quality
from rageval_hooks.offline.report.model import ChangedTurn, FileComparison, Loss, OtherMakers, ScoreChange
from rageval_hooks.offline.report.statistics import Resampling, holm, paired, sums
from rageval_hooks.offline.report.tally import FileTally, Maker, ScoreValues
from rageval_hooks.runtime.jsonable import clean_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["compare_files", "describe_maker"]


def compare_files(
    before: FileTally,
    after: FileTally,
    metrics: Sequence[str],
    changed_by: str | None,
    lower: Sequence[str],
    how: Resampling,
    most: int,
) -> FileComparison:
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
    chosen = [name for name in before.values if not metrics or name in metrics]
    names = [name for name in chosen if name in after.values]
    every_name = dict.fromkeys((*before.values, *after.values))
    shared = before.ids.keys() & after.ids.keys()
    # Rows without an id have their number as the id: in another file it may be another question.
    same = {key for key in shared if before.asks_the_same(after, key)}
    changes: list[ScoreChange] = []
    changed: tuple[ChangedTurn, ...] = ()
    for name in names:
        metric = before.values[name].metric
        excluded, makers = _made_differently(before, after, name, same)
        pairs = _Pairs(before, after, name, same - excluded)
        test = paired(pairs.before, pairs.after, pairs.weights, how) if pairs.ids else None
        change = ScoreChange(
            name=name,
            direction=direction_of(name, metric, lower),
            quality=is_quality(name, metric),
            binary=define_score(name, metric).binary,
            scale=_scale(before.values[name], after.values[name], name),
            test=test,
            makers=makers,
            not_compared=len(excluded),
        )
        changes.append(change)
        if name == changed_by:
            changed = _with_texts(pairs.most_changed(change, most), before, after)
    losses = [_loss(before, after, name, same) for name in chosen]
    return FileComparison(
        before=before.name,
        after=after.name,
        before_path=clean_text(before.path),
        after_path=clean_text(after.path),
        common=len(same),
        different=len(shared) - len(same),
        only_before=len(before.ids) - len(shared),
        only_after=len(after.ids) - len(shared),
        scores=_adjusted(changes),
        only_in_one=() if metrics else tuple(name for name in every_name if name not in names),
        # A score without any value in the second file is lost, even if no common question had it in the first.
        losses=tuple(loss for loss in losses if loss.lost or not loss.values),
        changed_by=changed_by,
        changed=changed,
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

    def most_changed(self, score: ScoreChange, most: int) -> list[ChangedTurn]:
        """Return the questions whose values changed most, without their texts; changes for the worse first."""
        import numpy as np

        change = self.after - self.before
        # A stable sort keeps the order of the file among equal changes.
        order = np.argsort(-np.abs(change), kind="stable")[:most]
        found = [int(index) for index in order if change[index]]
        found.sort(key=lambda index: change[index] if score.direction == "higher" else -change[index])
        return [
            ChangedTurn(id=self.ids[index], before=float(self.before[index]), after=float(self.after[index]))
            for index in found
        ]


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


def _scale(before: ScoreValues, after: ScoreValues, name: str) -> float | None:
    """Return the length of a score's range; 1 for an undefined score whose values are all between 0 and 1."""
    definition = define_score(name, before.metric)
    if definition.high is not None:
        return definition.high - definition.low
    if definition.unit:
        return None
    within = all(((values.values >= 0) & (values.values <= 1)).all() for values in (before, after))
    return 1.0 if within else None


def _with_texts(turns: Sequence[ChangedTurn], before: FileTally, after: FileTally) -> tuple[ChangedTurn, ...]:
    import numpy as np

    # The first record of each question, by its number.
    first_rows, second_rows = (np.unique(file.questions, return_index=True)[1] for file in (before, after))
    found = []
    for turn in turns:
        first = before.record(int(first_rows[before.ids[turn.id]])).turn
        second = after.record(int(second_rows[after.ids[turn.id]])).turn
        texts = {"query": first.query, "response_before": first.response, "response_after": second.response}
        found.append(turn.model_copy(update=texts))
    return tuple(found)


# --------------------------------------------------------------------------- who made the scores


def describe_maker(maker: Maker) -> str:
    """Return a maker in words: ``version 2, gpt-5-mini``."""
    version, model = maker
    parts = [f"version {version}"] if version else []
    if model != "":
        parts.append("no model" if model is None else model)
    return ", ".join(parts) or "not stated"


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
    share_one = not mine.makers.keys().isdisjoint(theirs.makers)
    # Per maker of the first file, the numbers of the second file's makers that measure the same.
    matches = [
        {number for other, number in theirs.makers.items() if _is_same(maker, other, share_one)}
        for maker in mine.makers
    ]
    if all(len(found) == len(theirs.makers) for found in matches):
        return set(), None
    first, second = _makers_by_question(before, name), _makers_by_question(after, name)
    both = first.keys() & second.keys() & set(same)
    different = {key for key in both if not all(second[key] <= matches[maker] for maker in first[key])}
    if both and len(different) <= len(both) / 2:
        return different, None
    described = [tuple(map(describe_maker, values.makers)) for values in (mine, theirs)]
    return set(), OtherMakers(before=described[0], after=described[1])


def _is_same(one: Maker, other: Maker, share_one: bool) -> bool:
    """Return True if two makers measure the same: what a file does not state ("") counts as the same.

    A score that needed no model (of an empty answer, for example) is the same under any model, provided that the two
    files have a maker in common.
    """
    if one[0] != other[0] and "" not in (one[0], other[0]):
        return False
    models = (one[1], other[1])
    return one[1] == other[1] or "" in models or (share_one and None in models)


def _makers_by_question(file: FileTally, name: str) -> dict[str, set[int]]:
    values, ids = file.values[name], list(file.ids)
    found: dict[str, set[int]] = {}
    for question, maker in zip(file.questions[values.rows].tolist(), values.maker_numbers, strict=True):
        found.setdefault(ids[question], set()).add(maker)
    return found


# --------------------------------------------------------------------------- lost values


def _loss(before: FileTally, after: FileTally, name: str, same: Collection[str]) -> Loss:
    values: ScoreValues | None = after.values.get(name)
    had = before.ids_with(name).intersection(same)
    lost = had - after.ids_with(name)
    # A turn that was sampled out has no result at all; one that is skipped or failed has.
    if before.values[name].sampled or (values is not None and values.sampled):
        lost &= after.ids_without(name)
    skipped, failed = after.missing(name)
    # Questions without an answer have no value in either file: they explain a loss only if nothing else does.
    if len(skipped) + len(failed) > 1:
        skipped.pop(UNANSWERABLE, None)
    return Loss(
        name=name,
        had=len(had),
        lost=len(lost),
        lost_to_failures=len(lost & after.ids_where_failed(name)),
        values=len(values) if values is not None else 0,
        quality=is_quality(name, before.values[name].metric),
        skipped=skipped.total(),
        failed=failed.total(),
        # A failure explains more than a skip, which may be a consequence of it.
        reason=_main_reason(failed or skipped, before.values[name].metric == TARGET_RANK and not after.ranks),
    )


def _main_reason(reasons: Counter[str], lacks_targets: bool) -> str:
    for reason, _ in reasons.most_common(1):
        return reason
    return "its records have no target passages" if lacks_targets else ""


def _adjusted(changes: Sequence[ScoreChange]) -> tuple[ScoreChange, ...]:
    """Add the one-sided probabilities, adjusted for the number of scores.

    Scores of quality and of usage are adjusted separately: more latencies should not hide a change of quality. A score
    with the same value for every question cannot show anything, so it does not count as one of them.
    """
    worse: dict[str, float] = {}
    better: dict[str, float] = {}
    for quality in (True, False):
        tests = {change.name: change for change in changes if change.quality is quality and _has_changed(change)}
        for found, wants_worse in ((worse, True), (better, False)):
            raw = [_one_sided(change, worse=wants_worse) for change in tests.values()]
            found.update(zip(tests, holm(raw), strict=True))
    return tuple(
        change
        if change.test is None
        # An unchanged score was not tested: nothing speaks for a change in either direction.
        else change.model_copy(
            update={"p_worse": worse.get(change.name, 1.0), "p_better": better.get(change.name, 1.0)}
        )
        for change in changes
    )


def _has_changed(change: ScoreChange) -> bool:
    return change.test is not None and change.test.changed > 0


def _one_sided(change: ScoreChange, *, worse: bool) -> float:
    if change.test is None:
        return 1.0
    return change.test.p_lower if worse == (change.direction == "higher") else change.test.p_higher
