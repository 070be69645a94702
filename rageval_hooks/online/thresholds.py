"""Thresholds: from which value on a score passes."""

from __future__ import annotations

from collections.abc import Mapping

from rageval_hooks.metrics.base import Metric, ScoreDefinition
from rageval_hooks.score import Score
from rageval_hooks.settings import EVERY


class Thresholds:
    """Give scores their labels.

    Args:
        given: threshold by score name, None for no label; :data:`rageval_hooks.settings.EVERY` means every score that
            is not named. A score without an entry gets the threshold that was measured for it, if there is one.
    """

    def __init__(self, given: Mapping[str, float | None] | None = None) -> None:
        self._given = given or {}

    def label(self, score: Score, metric: Metric) -> Score:
        """Return a score with its label; unchanged if the score has no threshold.

        Args:
            score: the score.
            metric: the metric that computed it and defines it.
        """
        definition = metric.definitions.get(score.name)
        # A metric may return a score without a definition; nothing is known about its range then.
        if definition is None:
            return score
        threshold = self._threshold(score, definition)
        return score if threshold is None else definition.label(score, threshold)

    def _threshold(self, score: Score, definition: ScoreDefinition) -> float | None:
        if score.name in self._given:
            return self._given[score.name]
        return None if EVERY in self._given else definition.default_threshold(score)
