"""The values of one score in a file: numbers, weights, rows, and which versions and models made them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from rageval_hooks.score import Score
from rageval_hooks.text.formatting import show_value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Maker", "ScoreValues", "as_numpy", "describe_maker", "out_of_range"]

# Version and model of a score. "" if the file does not say; the model is None for a formula alone.
Maker = tuple[str, str | None]

_UNSTATED = ""

# Beyond these bounds, sums of squares and of weights overflow or lose all digits.
_LARGEST, _SMALLEST_PROBABILITY = 1e100, 1e-12

# Their numbers are kept in one byte per value. A file with more of them is not comparable anyway.
_MOST_MAKERS = 20


def out_of_range(score: Score) -> str | None:
    """Return why a score cannot enter a mean, or None if it can."""
    if abs(score.value) > _LARGEST:
        return f"the value {show_value(score.value)} is out of range: beyond {_LARGEST:g}"
    if score.probability < _SMALLEST_PROBABILITY:
        return f"the probability {score.probability:.2g} is out of range: below {_SMALLEST_PROBABILITY:g}"
    return None


def describe_maker(maker: Maker) -> str:
    """Return a maker in words: ``version 2, gpt-5-mini``."""
    version, model = maker
    parts = []
    if version:
        parts.append(f"version {version}")
    if model != _UNSTATED:
        parts.append("no model" if model is None else model)
    return ", ".join(parts) or "not stated"


class ScoreValues:
    """The values of one score, each with its weight and the row it is from.

    Numbers are kept in arrays: a file of 200,000 rows takes 5 MB per score, not 100.

    Attributes:
        metric: the metric that made it, as far as the records say.
        labelled: number of values with the label ``pass`` or ``fail``.
        makers: versions and models that made them, in the order of the file.
    """

    def __init__(self, metric: str | None) -> None:
        self.metric = metric
        self.labelled = 0
        self.makers: dict[Maker, int] = {}
        self._weight_of_label = {"pass": 0.0, "fail": 0.0}
        self._values = array("d")
        self._weights = array("d")
        self._rows = array("q")
        self._maker_numbers = array("b")

    def __len__(self) -> int:
        return len(self._values)

    def add(self, score: Score, row: int) -> None:
        """Add one score."""
        weight = 1 / score.probability
        self._values.append(score.value)
        self._weights.append(weight)
        self._rows.append(row)
        self._maker_numbers.append(self._number_of(_maker_of(score)))
        if score.label in self._weight_of_label:
            self._weight_of_label[score.label] += weight
            self.labelled += 1

    @property
    def maker_numbers(self) -> list[int]:
        """The number of each value's maker, in the order of :attr:`makers`; one number for all beyond the limit."""
        return self._maker_numbers.tolist()

    @property
    def sampled(self) -> bool:
        """True if some values stand for more than one turn."""
        return bool((self.weights > 1).any())

    @property
    def passed(self) -> float | None:
        """Weighted share of the labelled values that pass; None without labels."""
        total = sum(self._weight_of_label.values())
        return self._weight_of_label["pass"] / total if total else None

    @property
    def values(self) -> NDArray[np.float64]:
        """The values, in the order of the file."""
        return as_numpy(self._values)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Per value: 1 / the probability with which its turn was sampled."""
        return as_numpy(self._weights)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Per value: the number of its record in the file, from 0."""
        return as_numpy(self._rows)

    def is_comparable(self, other: ScoreValues) -> bool:
        """Return True if the same versions and models made both; what a file does not state counts as the same."""
        versions = {version for version, _ in self.makers}, {version for version, _ in other.makers}
        models = {model for _, model in self.makers}, {model for _, model in other.makers}
        return _are_alike(*versions) and _are_alike(*models)

    def matching_makers(self, other: ScoreValues) -> list[frozenset[int]]:
        """Return, per maker, the numbers of the other file's makers with the same version and model.

        A score that no model was asked for (an empty answer, for example) is the same under any model, provided that
        the two files have a maker in common. Makers beyond the limit match none.
        """
        share_one = bool(self.makers.keys() & other.makers.keys())
        found = []
        for mine in self.makers:
            same = [number for theirs, number in other.makers.items() if _is_same(mine, theirs, share_one)]
            found.append(frozenset(same))
        return [*found, *[frozenset[int]()] * (_MOST_MAKERS + 1 - len(found))]

    def _number_of(self, maker: Maker) -> int:
        if maker not in self.makers and len(self.makers) < _MOST_MAKERS:
            self.makers[maker] = len(self.makers)
        return self.makers.get(maker, _MOST_MAKERS)


def as_numpy(values: array[Any]) -> NDArray[Any]:
    """Return a copy of an array of numbers for numpy."""
    import numpy as np

    # A copy, because an array cannot grow while numpy holds its buffer.
    return np.frombuffer(values, dtype=np.float64 if values.typecode == "d" else np.int64).copy()


def _maker_of(score: Score) -> Maker:
    """Return who made a score. A field that the record does not set is unstated, which differs from a stated None."""
    stated = score.model_fields_set
    version = score.version if "version" in stated else _UNSTATED
    model = score.model if "model" in stated else _UNSTATED
    return version, model


def _is_same(one: Maker, other: Maker, share_one: bool) -> bool:
    if not _are_alike({one[0]}, {other[0]}):
        return False
    if _are_alike({one[1]}, {other[1]}):
        return True
    # None is a score that needed no model.
    return share_one and None in (one[1], other[1])


def _are_alike(mine: set[str] | set[str | None], theirs: set[str] | set[str | None]) -> bool:
    return mine == theirs or _UNSTATED in mine | theirs
