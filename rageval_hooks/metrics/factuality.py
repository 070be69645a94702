"""Seed 001's view of hallucination: is the response near the context, and are its entities in there?"""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Role
from rageval_hooks.score import Result, Score, Skipped

__all__ = ["EntityConsistency", "FactualAccuracy", "Hallucination", "SemanticGrounding"]

_NEEDS: tuple[Field, ...] = ("response", "passages")
_NO_WORDS = "the response or the passages have no words that could be compared"
_SOURCE = "seed 001; en_core_web_sm, all-MiniLM-L6-v2"


class SemanticGrounding(Metric):
    """Cosine of the whole response and the whole context, clipped to 0..1.

    Where the context is longer than the model reads at once, the mean vector of its windows stands for it.
    """

    name: ClassVar[str] = "semantic_grounding"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="semantic_grounding", description="similarity of the response and the context as wholes"),
    )
    requires: ClassVar[tuple[Field, ...]] = _NEEDS
    models: ClassVar[tuple[Role, ...]] = ("embedder",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "seed 001; all-MiniLM-L6-v2"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the cosine; skipped where the response or the context has no words."""
        value = analysis.semantic_grounding
        if value is None:
            return self.skip(_NO_WORDS)
        return self.score(value, model=analysis.models.embedder().name)


class EntityConsistency(Metric):
    """Share of the response's named entities that the context has too; numbers and dates by their value."""

    name: ClassVar[str] = "entity_consistency"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="entity_consistency", description="share of the response's named entities in the context"),
    )
    requires: ClassVar[tuple[Field, ...]] = _NEEDS
    models: ClassVar[tuple[Role, ...]] = ("nlp",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "seed 001; en_core_web_sm"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the share; skipped where the response has no entities."""
        found, missing = analysis.entity_support
        if not found and not missing:
            return self.skip("the response has no named entities")
        return self.score(
            len(found) / (len(found) + len(missing)),
            model=analysis.models.nlp().name,
            explanation=f"not in the context: {', '.join(missing)}" if missing else "all entities are in the context",
            metadata={"found": list(found), "missing": list(missing)},
        )


class FactualAccuracy(Metric):
    """Weighted mean of semantic grounding and entity consistency; without entities, the grounding alone.

    Args:
        grounding_weight: weight of semantic grounding, 0..1; entity consistency has the rest.

    Raises:
        ConfigurationError: the weight lies outside 0..1.
    """

    name: ClassVar[str] = "factual_accuracy"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="factual_accuracy", description="mean of semantic grounding and entity consistency"),
    )
    requires: ClassVar[tuple[Field, ...]] = _NEEDS
    models: ClassVar[tuple[Role, ...]] = ("embedder", "nlp")
    family: ClassVar[str] = "local"
    source: ClassVar[str] = _SOURCE
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def __init__(self, grounding_weight: float = 0.5) -> None:
        if not 0 <= grounding_weight <= 1:
            raise ConfigurationError(f"grounding_weight lies within 0..1, and {grounding_weight} does not")
        self.grounding_weight = grounding_weight

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the mean."""
        return self._accuracy(analysis)

    def _accuracy(self, analysis: TurnAnalysis) -> Score | Skipped:
        grounding = analysis.semantic_grounding
        if grounding is None:
            return self.skip(_NO_WORDS)
        found, missing = analysis.entity_support
        models = dict.fromkeys((analysis.models.nlp().name, analysis.models.embedder().name))
        if not found and not missing:
            value, explanation = grounding, "no named entities in the response: semantic grounding alone"
        else:
            share = len(found) / (len(found) + len(missing))
            value = self.grounding_weight * grounding + (1 - self.grounding_weight) * share
            explanation = f"semantic grounding {grounding:.2f}, entity consistency {share:.2f}"
            if missing:
                explanation += f"; not in the context: {', '.join(missing)}"
        return self.score(value, model=", ".join(models), explanation=explanation)


class Hallucination(FactualAccuracy):
    """1 - factual accuracy."""

    name: ClassVar[str] = "hallucination"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="hallucination", description="1 - factual_accuracy", direction="lower"),
    )

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the complement."""
        accuracy = self._accuracy(analysis)
        return accuracy.model_copy(update={"value": 1 - accuracy.value}) if isinstance(accuracy, Score) else accuracy
