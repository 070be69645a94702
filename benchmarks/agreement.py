"""The statistics of the benchmarks: those of ``rageval-hooks agreement``, and a logistic combination of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rageval_hooks.offline.agreement import (
    Labelled,
    auroc,
    balanced_accuracy,
    best_threshold,
    calibration_error,
    interval,
)

__all__ = [
    "Labelled",
    "Logistic",
    "auroc",
    "balanced_accuracy",
    "best_threshold",
    "calibration_error",
    "interval",
]

Floats = NDArray[np.float64]


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
