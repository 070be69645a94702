"""How well a score agrees with labels: AUROC with a bootstrap by group, calibration error, thresholds, combinations.

A score is given in its oriented form: higher means "label 1" (what is better when lower comes in negated).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Labelled",
    "Logistic",
    "auroc",
    "auroc_interval",
    "balanced_accuracy",
    "best_threshold",
    "calibration_error",
    "difference_interval",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Labelled:
    """Values of a score, with the labels and the groups of their rows."""

    values: Floats
    labels: NDArray[np.bool_]
    groups: tuple[str, ...]

    @classmethod
    def of(cls, rows: Sequence[tuple[float, int, str]]) -> Labelled:
        """Take (value, label, group) apart."""
        return cls(
            np.array([row[0] for row in rows], dtype=float),
            np.array([row[1] == 1 for row in rows], dtype=bool),
            tuple(row[2] for row in rows),
        )

    @property
    def has_both(self) -> bool:
        """Whether both labels occur: without that there is nothing to tell apart."""
        return bool(self.labels.any() and not self.labels.all())


def _auroc(places: NDArray[np.int64], labels: NDArray[np.bool_], weights: Floats) -> float:
    """AUROC of weighted rows, ties counted half; ``places`` are the ranks of the distinct values."""
    size = int(places.max()) + 1
    positive = np.bincount(places[labels], weights[labels], size)
    negative = np.bincount(places[~labels], weights[~labels], size)
    below = np.cumsum(negative) - negative
    pairs = positive.sum() * negative.sum()
    return float((positive * (below + negative / 2)).sum() / pairs) if pairs else float("nan")


def auroc(data: Labelled) -> float:
    """Probability that a row with label 1 scores higher than one with label 0; ties count half."""
    places = np.unique(data.values, return_inverse=True)[1]
    return _auroc(places, data.labels, np.ones(len(data.values)))


def auroc_interval(data: Labelled, seed: int, samples: int, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap of the AUROC: whole groups are drawn, since rows of one group are not independent."""
    random = np.random.default_rng(seed)
    places = np.unique(data.values, return_inverse=True)[1]
    names, group = np.unique(np.array(data.groups), return_inverse=True)
    found = []
    for _ in range(samples):
        drawn = np.bincount(random.integers(0, len(names), len(names)), minlength=len(names))
        found.append(_auroc(places, data.labels, drawn[group].astype(float)))
    usable = np.array(found)[~np.isnan(found)]
    if not len(usable):
        return float("nan"), float("nan")
    low, high = np.quantile(usable, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def difference_interval(
    new: Labelled, old: Labelled, seed: int, samples: int, level: float = 0.95
) -> tuple[float, float, float]:
    """Return how much higher one score's AUROC is than another's on the same rows, with a paired bootstrap interval.

    Each sample draws whole groups and measures both scores on them, so that what makes a sample easy cancels out.
    """
    random = np.random.default_rng(seed)
    places = [np.unique(data.values, return_inverse=True)[1] for data in (new, old)]
    names, group = np.unique(np.array(new.groups), return_inverse=True)
    found = []
    for _ in range(samples):
        drawn = np.bincount(random.integers(0, len(names), len(names)), minlength=len(names))[group].astype(float)
        one, other = (_auroc(place, new.labels, drawn) for place in places)
        found.append(one - other)
    usable = np.array(found)[~np.isnan(found)]
    low, high = np.quantile(usable, [(1 - level) / 2, (1 + level) / 2])
    return auroc(new) - auroc(old), float(low), float(high)


def calibration_error(data: Labelled, bins: int = 10) -> float:
    """Expected calibration error: how far the share of label 1 is from the mean value, in ten bins of equal width."""
    where = np.minimum((data.values * bins).astype(int), bins - 1)
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


class Logistic:
    """Logistic regression on standardised features, each set of the fit weighted the same.

    Args:
        sets: per set, the features (rows by features) and the labels.
    """

    def __init__(self, sets: Sequence[tuple[Floats, NDArray[np.bool_]]]) -> None:
        from sklearn.linear_model import LogisticRegression

        features = np.concatenate([values for values, _ in sets])
        labels = np.concatenate([labels for _, labels in sets])
        weights = np.concatenate([np.full(len(labels), 1 / len(labels)) for _, labels in sets])
        self._mean, self._spread = features.mean(0), features.std(0) + 1e-12
        self._model: Any = LogisticRegression(C=1.0)
        self._model.fit(self._scaled(features), labels, sample_weight=weights * len(labels) / weights.sum())

    def _scaled(self, features: Floats) -> Floats:
        return (features - self._mean) / self._spread

    def probabilities(self, features: Floats) -> Floats:
        """Probability of label 1 per row."""
        found: Floats = self._model.predict_proba(self._scaled(features))[:, 1]
        return found

    def formula(self, names: Sequence[str]) -> str:
        """The fitted model in the features' own units."""
        slopes = self._model.coef_[0] / self._spread
        offset = float(self._model.intercept_[0] - (slopes * self._mean).sum())
        terms = "".join(f" {slope:+.3f}·{name}" for slope, name in zip(slopes, names, strict=True))
        return f"logit = {offset:.3f}{terms}"
