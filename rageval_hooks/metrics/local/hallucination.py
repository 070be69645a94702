"""``hallucination``: 1 - factual accuracy."""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.metrics.base import ScoreDefinition
from rageval_hooks.metrics.local.accuracy import AccuracyMetric

__all__ = ["Hallucination"]


class Hallucination(AccuracyMetric):
    """The complement of ``factual_accuracy``."""

    name: ClassVar[str] = "hallucination"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="hallucination", description="1 - factual_accuracy", direction="lower"),
    )

    def value_of(self, accuracy: float) -> float:
        """Return the complement."""
        return 1 - accuracy
