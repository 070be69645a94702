"""The values of one score in a file: numbers, weights, rows, and what made them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from rageval_hooks.score import Score
from rageval_hooks.text.formatting import show_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Maker", "Values", "numbers", "out_of_range", "words_of"]

Maker = tuple[str, str | None]
"""Version and model of a score, empty where the file does not say; the model is None for a formula alone."""

_UNSAID = ""
_LARGEST, _RAREST = 1e100, 1e-12
_MOST_MAKERS = 20


def out_of_range(score: Score) -> str | None:
    """Return why nothing can be computed with a score; None if it can."""
    if abs(score.value) > _LARGEST:
        return f"the value {show_value(score.value)} is out of range: beyond {_LARGEST:g}"
    if score.probability < _RAREST:
        return f"the probability {score.probability:.2g} is out of range: below {_RAREST:g}"
    return None


def words_of(maker: Maker) -> str:
    """Return a maker in words: ``version 2, gpt-5-mini``."""
    version, model = maker
    said = (version and f"version {version}", "no model" if model is None else model)
    return ", ".join(part for part in said if part) or "not said"


class Values:
    """The values of one score: each with its weight and its row.

    Attributes:
        metric: the metric that made it, as far as the records say.
        labelled: how many have the label ``pass`` or ``fail``.
        makers: versions and models that made them.
    """

    def __init__(self, metric: str | None) -> None:
        self.metric = metric
        self.labelled = 0
        self.makers: dict[Maker, None] = {}
        self._weight_of = {"pass": 0.0, "fail": 0.0}
        self._values = array("d")
        self._weights = array("d")
        self._rows = array("q")
        self._made_by = array("b")
        self._numbers: dict[Maker, int] = {}

    def __len__(self) -> int:
        return len(self._values)

    def add(self, score: Score, row: int) -> None:
        """Take in one score."""
        self._values.append(score.value)
        self._weights.append(1 / score.probability)
        self._rows.append(row)
        self._made_by.append(self._number(_maker(score)))
        if score.label is not None and score.label in self._weight_of:
            self._weight_of[score.label] += 1 / score.probability
            self.labelled += 1

    def is_comparable(self, other: Values) -> bool:
        """Whether the same versions and models made the values of another file; what is not said counts as the same."""
        for mine, others in zip(_parts(self), _parts(other), strict=True):
            if mine != others and _UNSAID not in mine | others:
                return False
        return True

    def matches(self, other: Values) -> list[frozenset[int]]:
        """Return for each maker which makers of another file have the same version and model.

        A score that no model was asked for is what any model would have left of it, if the two files have a maker in
        common. Those that are too many to be told apart match nothing.
        """
        alike = bool(self.makers.keys() & other.makers.keys())
        found = [
            frozenset(k for k, theirs in enumerate(other.makers) if _match(mine, theirs, alike)) for mine in self.makers
        ]
        return [*found, frozenset()]

    @property
    def made_by(self) -> list[int]:
        """Of each value: which of :attr:`makers` made it; beyond them, one that is too many."""
        return self._made_by.tolist()

    @property
    def sampled(self) -> bool:
        """Whether some stand for more than one turn."""
        return bool((self.weights > 1).any())

    @property
    def passed(self) -> float | None:
        """Share of those with a label that pass, each with its weight; None without labels."""
        total = sum(self._weight_of.values())
        return self._weight_of["pass"] / total if total else None

    @property
    def values(self) -> NDArray[np.float64]:
        """The values, in the order of the file."""
        return numbers(self._values)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Of each value: 1 / the probability with which its turn was selected."""
        return numbers(self._weights)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Of each value: the number of its record in the file, from 0."""
        return numbers(self._rows)

    def _number(self, maker: Maker) -> int:
        """Return which one a maker is; those that come after the most that are kept are one."""
        number = self._numbers.get(maker)
        if number is None and len(self.makers) < _MOST_MAKERS:
            number = self._numbers[maker] = len(self.makers)
            self.makers[maker] = None
        return _MOST_MAKERS if number is None else number


def numbers(values: array[Any]) -> NDArray[Any]:
    """Return numbers as an array of their own."""
    import numpy as np

    return np.frombuffer(values, dtype=np.float64 if values.typecode == "d" else np.int64).copy()


def _maker(score: Score) -> Maker:
    """What a table does not say is not known; a model that a record says to be none, is none."""
    said = score.model_fields_set
    return (score.version if "version" in said else _UNSAID, score.model if "model" in said else _UNSAID)


def _match(one: Maker, other: Maker, alike: bool) -> bool:
    same_version = one[0] == other[0] or _UNSAID in (one[0], other[0])
    same_model = one[1] == other[1] or _UNSAID in (one[1], other[1])
    return same_version and (same_model or (alike and None in (one[1], other[1])))


def _parts(values: Values) -> tuple[set[str | None], set[str | None]]:
    return {version for version, _ in values.makers}, {model for _, model in values.makers}
