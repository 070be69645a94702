"""How well a score agrees with labels: AUROC and Cohen's kappa with a bootstrap, calibration error, thresholds.

A score is given in its oriented form: higher means "label 1" (what is better when lower comes in negated). Intervals
draw whole groups, since the rows of one document are not independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Labelled:
    """Values of a score, with the labels and the groups of their rows."""

    values: Floats
    labels: Flags
    groups: tuple[str, ...]

    @classmethod
    def of(cls, rows: Sequence[tuple[float, int, str]]) -> Labelled:
        """Make it from (value, label, group) triples."""
        return cls(
            np.array([row[0] for row in rows], dtype=float),
            np.array([row[1] == 1 for row in rows], dtype=bool),
            tuple(row[2] for row in rows),
        )

    @property
    def has_both(self) -> bool:
        """True if both labels occur; nothing can be measured otherwise."""
        return bool(self.labels.any() and not self.labels.all())


# --------------------------------------------------------------------------- AUROC


def auroc(data: Labelled) -> float:
    """Return the probability that a row with label 1 scores higher than one with label 0; ties count half."""
    return _auroc(_ranks(data), data.labels, np.ones(len(data.values)))


def auroc_interval(data: Labelled, seed: int, samples: int, level: float = 0.95) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the AUROC."""
    ranks = _ranks(data)
    return _interval(lambda weights: _auroc(ranks, data.labels, weights), data.groups, seed, samples, level)


def _ranks(data: Labelled) -> NDArray[np.int64]:
    """Return the rank of each value among the distinct values."""
    return np.asarray(np.unique(data.values, return_inverse=True)[1])


def _auroc(ranks: NDArray[np.int64], labels: Flags, weights: Floats) -> float:
    size = int(ranks.max()) + 1
    positive = np.bincount(ranks[labels], weights[labels], size)
    negative = np.bincount(ranks[~labels], weights[~labels], size)
    below = np.cumsum(negative) - negative
    pairs = positive.sum() * negative.sum()
    return float((positive * (below + negative / 2)).sum() / pairs) if pairs else float("nan")


def _interval(
    measure: Callable[[Floats], float], groups: Sequence[str], seed: int, samples: int, level: float
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a figure that is computed from the weights of rows."""
    random = np.random.default_rng(seed)
    names, group = np.unique(np.array(groups), return_inverse=True)
    found = []
    for _ in range(samples):
        drawn = np.bincount(random.integers(0, len(names), len(names)), minlength=len(names))
        found.append(measure(drawn[group].astype(float)))
    usable = np.array(found)[~np.isnan(found)]
    if not len(usable):
        return float("nan"), float("nan")
    low, high = np.quantile(usable, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


# --------------------------------------------------------------------------- Cohen's kappa


def kappa(passed: Flags, labels: Flags) -> float:
    """Return Cohen's kappa of two verdicts: 0 for agreement by chance, 1 for full agreement."""
    return _kappa(passed, labels, np.ones(len(labels)))


def kappa_interval(
    passed: Flags, labels: Flags, groups: Sequence[str], seed: int, samples: int, level: float = 0.95
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of Cohen's kappa."""
    return _interval(lambda weights: _kappa(passed, labels, weights), groups, seed, samples, level)


def _kappa(passed: Flags, labels: Flags, weights: Floats) -> float:
    total = weights.sum()
    agreed = weights[passed == labels].sum() / total
    passing, supported = weights[passed].sum() / total, weights[labels].sum() / total
    by_chance = passing * supported + (1 - passing) * (1 - supported)
    return float((agreed - by_chance) / (1 - by_chance)) if by_chance < 1 else float("nan")


# --------------------------------------------------------------------------- calibration and thresholds


def calibration_error(data: Labelled) -> float:
    """Expected calibration error: how far the share of label 1 is from the mean value, in ten bins of equal width."""
    where = np.minimum((data.values * 10).astype(int), 9)
    error = 0.0
    for number in np.unique(where):
        inside = where == number
        error += inside.mean() * abs(data.values[inside].mean() - data.labels[inside].mean())
    return float(error)


def balanced_accuracy(data: Labelled, threshold: float) -> float:
    """Mean of the share of label 1 at or above the threshold and the share of label 0 below it."""
    above = data.values >= threshold - 1e-9
    return float((above[data.labels].mean() + (~above[~data.labels]).mean()) / 2)


def best_threshold(sets: Sequence[Labelled], step: float) -> tuple[float, float]:
    """Return the threshold with the best mean balanced accuracy over sets, and that mean.

    Args:
        sets: each counts the same, however large it is.
        step: thresholds are multiples of it; of equally good ones the middle one is taken.
    """
    low = min(float(data.values.min()) for data in sets)
    high = max(float(data.values.max()) for data in sets)
    grid = np.arange(int(np.floor(low / step)), int(np.ceil(high / step)) + 2) * step
    found = [float(np.mean([balanced_accuracy(data, threshold) for data in sets])) for threshold in grid]
    best = max(found)
    equal = [threshold for threshold, value in zip(grid, found, strict=True) if value >= best - 1e-12]
    return float(equal[(len(equal) - 1) // 2]), best
