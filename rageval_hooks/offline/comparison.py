"""Two files side by side, question by question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.directions import direction_of, worse
from rageval_hooks.offline.records import Record
from rageval_hooks.offline.statistics import Paired, Resampling, holm, paired, sums
from rageval_hooks.offline.tallies import Tally
from rageval_hooks.plain import Data

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ChangedTurn", "Comparison", "ScoreChange", "compare_files", "find_changed"]


class ScoreChange(Data):
    """How one score differs between two files, over the questions that both have a value for.

    Attributes:
        name: of the score.
        direction: whether higher or lower is better.
        test: the paired test; None where no question has a value in both files.
        p_worse: probability of a change at least as bad if nothing had changed, adjusted (Holm) for the number of
            scores that were compared; None without a test.
    """

    name: str
    direction: Direction
    test: Paired | None = None
    p_worse: float | None = None

    @property
    def is_worse(self) -> bool:
        """Whether the mean changed for the worse, by however little."""
        return self.test is not None and worse(self.test.difference, self.direction)


class ChangedTurn(Data):
    """A question whose score changed much.

    Attributes:
        id: of the question.
        before: mean of its values in the first file.
        after: in the second.
        query: the question.
        response_before: its first answer in the first file.
        response_after: in the second.
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
        before_path: where it is.
        after_path: where it is.
        common: questions that both have.
        only_before: questions that only the first has.
        only_after: questions that only the second has.
        scores: those that both have, in the order of the first.
        only_in_one: names of the scores that only one of them has.
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
    changed_by: str | None = None
    changed: tuple[ChangedTurn, ...] = ()


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
    changes: list[ScoreChange] = []
    turns: tuple[ChangedTurn, ...] = ()
    for name in names:
        direction = direction_of(name, before.values[name].metric, lower)
        ids, first, second, weights = _pairs(before, after, name)
        test = paired(first, second, weights, how) if ids else None
        changes.append(ScoreChange(name=name, direction=direction, test=test))
        if name == changed_by:
            turns = _most_changed(ids, first, second, direction, most)
    common = len(before.ids.keys() & after.ids.keys())
    return Comparison(
        before=before.name,
        after=after.name,
        before_path=before.path,
        after_path=after.path,
        common=common,
        only_before=len(before.ids) - common,
        only_after=len(after.ids) - common,
        scores=_adjusted(changes),
        only_in_one=tuple(name for name in dict.fromkeys((*before.values, *after.values)) if name not in names)
        if not metrics
        else (),
        changed_by=changed_by,
        changed=turns,
    )


def find_changed(comparison: Comparison) -> Comparison:
    """Return the comparison with the texts of the turns that changed: reads the files a second time."""
    wanted = {turn.id for turn in comparison.changed}
    if not wanted:
        return comparison
    before, after = (_first_records(path, wanted) for path in (comparison.before_path, comparison.after_path))
    return comparison.model_copy(
        update={
            "changed": tuple(
                turn.model_copy(
                    update={
                        "query": before[turn.id].turn.query,
                        "response_before": before[turn.id].turn.response,
                        "response_after": after[turn.id].turn.response,
                    }
                )
                for turn in comparison.changed
                if turn.id in before and turn.id in after
            )
        }
    )


def _first_records(path: str, wanted: Iterable[str]) -> dict[str, Record]:
    from rageval_hooks.offline.files import read_records

    missing, found = set(wanted), {}
    for record in read_records(Path(path), on_bad=_ignore):
        if record.id in missing:
            missing.remove(record.id)
            found[record.id] = record
            if not missing:
                break
    return found


def _ignore(row: object) -> None:
    """The first reading has complained of it."""


def _pairs(
    before: Tally, after: Tally, name: str
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the questions with a value in both files, their values (mean over runs) and weights.

    Two samples were drawn, so a pair stands for the product of what its two sides stand for.
    """
    import numpy as np

    first, second = (_by_question(file, name) for file in (before, after))
    ids = [key for key in first if key in second]
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


def _most_changed(
    ids: Sequence[str],
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    direction: Direction,
    most: int,
) -> tuple[ChangedTurn, ...]:
    import numpy as np

    change = after - before
    greatest = [index for index in np.argsort(-np.abs(change), kind="stable")[:most].tolist() if change[index]]
    greatest.sort(key=lambda index: change[index] if direction == "higher" else -change[index])
    return tuple(
        ChangedTurn(id=ids[index], before=float(before[index]), after=float(after[index])) for index in greatest
    )


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
