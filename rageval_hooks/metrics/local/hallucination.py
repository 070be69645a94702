"""``hallucination``: 1 - factual accuracy."""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.metrics.base import Field, LocalMetric, PassageScope, ScoreDefinition
from rageval_hooks.metrics.local.accuracy import check_weight, factual_accuracy
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Role
from rageval_hooks.score import Result

__all__ = ["Hallucination"]


class Hallucination(LocalMetric):
    """The complement of ``factual_accuracy``.

    Args:
        grounding_weight: weight of semantic grounding in factual accuracy, 0..1; entity consistency has the rest.

    Raises:
        ConfigurationError: the weight is outside 0..1.
    """

    name: ClassVar[str] = "hallucination"
    version: ClassVar[str] = "3"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="hallucination", description="1 - factual_accuracy", direction="lower"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("response", "passages")
    passages: ClassVar[PassageScope] = "prompt"
    models: ClassVar[tuple[Role, ...]] = ("embedder", "nlp")
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "seed 001; en_core_web_sm, all-MiniLM-L6-v2"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def __init__(self, grounding_weight: float = 0.5) -> None:
        self.grounding_weight = check_weight(grounding_weight)

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the complement; skipped if the response or the passages have no words."""
        accuracy = factual_accuracy(analysis, self.grounding_weight)
        if accuracy is None:
            return self.skip("the response or the passages have no words that could be compared")
        return self.score(1 - accuracy.value, model=accuracy.model, explanation=accuracy.explanation)
