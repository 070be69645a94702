"""``factual_accuracy``: the mean of semantic grounding and entity consistency."""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.metrics.base import ScoreDefinition
from rageval_hooks.metrics.local.accuracy import AccuracyMetric

__all__ = ["FactualAccuracy"]


class FactualAccuracy(AccuracyMetric):
    """Weighted mean of semantic grounding and entity consistency; without entities, the grounding alone."""

    name: ClassVar[str] = "factual_accuracy"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="factual_accuracy", description="mean of semantic grounding and entity consistency"),
    )

    def value_of(self, accuracy: float) -> float:
        """Return the accuracy itself."""
        return accuracy
