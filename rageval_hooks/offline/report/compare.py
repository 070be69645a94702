"""Compares two files question by question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rageval_hooks.offline.answerability import UNANSWERABLE
from rageval_hooks.offline.report.definitions import TARGET_RANK, define_score, direction_of, is_quality
from rageval_hooks.offline.report.model import ChangedTurn, FileComparison, Loss, OtherMakers, ScoreChange
from rageval_hooks.offline.report.scored_file import Maker, ScoredFile, ScoreValues
from rageval_hooks.offline.report.statistics import Resampling, holm, paired, sums
from rageval_hooks.runtime.jsonable import clean_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]


def compare_files(
    before: ScoredFile,
    after: ScoredFile,
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
    import numpy as np

    chosen = [name for name in before.values if not metrics or name in metrics]
    names = [name for name in chosen if name in after.values]
    pairs = _Pairs(before, after)
    changes: list[ScoreChange] = []
    changed: tuple[ChangedTurn, ...] = ()
    for name in names:
        values, others = before.values[name], after.values[name]
        first, first_weights, second, second_weights = pairs.means(name)
        used = pairs.same & ~np.isnan(first) & ~np.isnan(second)
        # Two samples were drawn, so a pair stands for the product of what its two sides stand for.
        weights = first_weights * second_weights
        direction = direction_of(name, values.metric, lower)
        changes.append(
            ScoreChange(
                name=name,
                direction=direction,
                quality=is_quality(name, values.metric),
                binary=define_score(name, values.metric).binary,
                scale=_scale(name, values, others),
                test=paired(first[used], second[used], weights[used], how) if used.any() else None,
                makers=_other_makers(values, others),
            )
        )
        if name == changed_by:
            gain = np.where(used, (second - first) * (-1 if direction == "lower" else 1), 0.0)
            # The largest changes, those for the worse first. A stable sort keeps the order of the file among equals.
            largest = [int(place) for place in np.argsort(-np.abs(gain), kind="stable")[:most] if gain[place]]
            largest.sort(key=lambda place: gain[place])
            changed = tuple(pairs.turn(place, float(first[place]), float(second[place])) for place in largest)
    losses = [_loss(pairs, name) for name in chosen]
    every_name = dict.fromkeys((*before.values, *after.values))
    shared = pairs.shared
    return FileComparison(
        before=before.name,
        after=after.name,
        before_path=clean_text(before.path),
        after_path=clean_text(after.path),
        common=int(pairs.same.sum()),
        different=int((shared & ~pairs.same).sum()),
        only_before=len(before.ids) - int(shared.sum()),
        only_after=len(after.ids) - int(shared.sum()),
        scores=_adjusted(changes),
        only_in_one=() if metrics else tuple(name for name in every_name if name not in names),
        # A score without any value in the second file is lost, even if no common question had it in the first.
        losses=tuple(loss for loss in losses if loss.lost or not loss.values),
        changed_by=changed_by,
        changed=changed,
    )


class _Pairs:
    """The questions of the first file, each with its number in the second.

    Attributes:
        shared: per question, whether the second file has its id.
        same: per question, whether that id stands for the same question. Rows without an id have their number as the
            id, which in another file may be another question.
    """

    def __init__(self, before: ScoredFile, after: ScoredFile) -> None:
        import numpy as np

        self.before = before
        self.after = after
        # Questions that only the first file has get the number -1, and values that are not used.
        self._numbers = np.array([after.ids.get(question, -1) for question in before.ids])
        self.shared: Flags = self._numbers >= 0
        mine, theirs = before.query_hashes, after.query_hashes[self._numbers]
        self.same: Flags = self.shared & ((mine == theirs) | (mine == 0) | (theirs == 0))

    def in_after(self, flags: Flags) -> Flags:
        """Return what is so for questions of the second file, by the numbers of the first."""
        found: Flags = flags[self._numbers] & self.shared
        return found

    def means(self, name: str) -> tuple[Floats, Floats, Floats, Floats]:
        """Return per question the mean over its runs and the mean weight, in each file; NaN without a value.

        One number per question: the answers to it are not independent, and would make a test too sure.
        """
        first, second = _means(self.before, name), _means(self.after, name)
        return first[0], first[1], second[0][self._numbers], second[1][self._numbers]

    def turn(self, place: int, before: float, after: float) -> ChangedTurn:
        """Return a question with its first answers."""
        first = self.before.record(int((self.before.questions == place).argmax()))
        second = self.after.record(int((self.after.questions == self._numbers[place]).argmax())).turn
        return ChangedTurn(
            id=first.id,
            before=before,
            after=after,
            query=first.turn.query,
            response_before=first.turn.response,
            response_after=second.response,
        )


def _means(file: ScoredFile, name: str) -> tuple[Floats, Floats]:
    """Return per question the weighted mean of its values, NaN if it has none, and the mean of their weights."""
    import numpy as np

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
    pairs = [(one, other) for one in before.makers for other in after.makers if _is_same(one, other)]
    matched = ({one for one, _ in pairs}, {other for _, other in pairs})
    unmatched = [*(before.makers.keys() - matched[0]), *(after.makers.keys() - matched[1])]
    if all(pairs and model is None for _, model in unmatched):
        return None
    described = [tuple(map(describe_maker, values.makers)) for values in (before, after)]
    return OtherMakers(before=described[0], after=described[1])


def _is_same(one: Maker, other: Maker) -> bool:
    return all(mine == theirs or "" in (mine, theirs) for mine, theirs in zip(one, other, strict=True))


def describe_maker(maker: Maker) -> str:
    """Return a maker in words: ``version 2, gpt-5-mini``."""
    version, model = maker
    parts = [f"version {version}"] if version else []
    if model != "":
        parts.append("no model" if model is None else model)
    return ", ".join(parts) or "not stated"


def _scale(name: str, before: ScoreValues, after: ScoreValues) -> float | None:
    """Return the length of a score's range; 1 for an undefined score whose values are all between 0 and 1."""
    definition = define_score(name, before.metric)
    if definition.high is not None:
        return definition.high - definition.low
    within = all(((found.values >= 0) & (found.values <= 1)).all() for found in (before, after))
    return 1.0 if within and not definition.unit else None


def _loss(pairs: _Pairs, name: str) -> Loss:
    before, after = pairs.before.values[name], pairs.after.values.get(name)
    had = pairs.before.outcomes(name)[0] & pairs.same
    valued, missing, where_failed = (pairs.in_after(flags) for flags in pairs.after.outcomes(name))
    lost = had & ~valued
    # A turn that was sampled out has no result at all; one that is skipped or failed has.
    if before.sampled or (after is not None and after.sampled):
        lost &= missing
    skipped, failed = pairs.after.missing(name)
    # Questions without an answer have no value in either file: they explain a loss only if nothing else does.
    if len(skipped) + len(failed) > 1:
        skipped.pop(UNANSWERABLE, None)
    # A failure explains more than a skip, which may be a consequence of it.
    reason = next((reason for reason, _ in (failed or skipped).most_common(1)), "")
    if not reason and before.metric == TARGET_RANK and not pairs.after.ranks:
        reason = "its records have no target passages"
    return Loss(
        name=name,
        had=int(had.sum()),
        lost=int(lost.sum()),
        lost_to_failures=int((lost & where_failed).sum()),
        values=len(after) if after is not None else 0,
        quality=is_quality(name, before.metric),
        skipped=skipped.total(),
        failed=failed.total(),
        reason=reason,
    )


def _adjusted(changes: Sequence[ScoreChange]) -> tuple[ScoreChange, ...]:
    """Add the one-sided probabilities, adjusted for the number of scores.

    Scores of quality and of usage are adjusted separately: more latencies should not hide a change of quality. A score
    with the same value for every question cannot show anything, so it does not count as one of them.
    """
    p_worse: dict[str, float] = {}
    p_better: dict[str, float] = {}
    for quality in (True, False):
        tests = {c.name: (c.direction, c.test) for c in changes if c.quality == quality and c.test and c.test.changed}
        lower = [test.p_lower if direction == "higher" else test.p_higher for direction, test in tests.values()]
        higher = [test.p_higher if direction == "higher" else test.p_lower for direction, test in tests.values()]
        p_worse.update(zip(tests, holm(lower), strict=True))
        p_better.update(zip(tests, holm(higher), strict=True))
    # An unchanged score was not tested: nothing speaks for a change in either direction.
    return tuple(
        change.model_copy(update={"p_worse": p_worse.get(change.name, 1.0), "p_better": p_better.get(change.name, 1.0)})
        if change.test
        else change
        for change in changes
    )
