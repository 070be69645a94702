"""Four scores that are defined as in other tools: two similarities, their mean, and 1 minus that mean."""

from __future__ import annotations

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import NO_WORDS, GroundingMetric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.score import Result


class SemanticGrounding(GroundingMetric):
    """Cosine of the whole response and the passages of the prompt together, clipped to 0..1.

    If the context is longer than the model reads at once, the mean vector of its windows is used.
    """

    name = "semantic_grounding"
    version = "2"
    scores = (
        ScoreDefinition(name="semantic_grounding", description="similarity of the response and the context as wholes"),
    )
    models = ("embedder",)
    source = "RAG Evaluation Pipeline (Lite)"

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the cosine; skipped if the response or the context has no words."""
        value = analysis.semantic_grounding
        if value is None:
            return self.skip(NO_WORDS)
        return self.score(value, model=analysis.models.embedder().name)


class EntityConsistency(GroundingMetric):
    """Share of the response's named entities that the passages of the prompt have; numbers and dates by value."""

    name = "entity_consistency"
    version = "6"
    scores = (
        ScoreDefinition(name="entity_consistency", description="share of the response's named entities in the context"),
    )
    models = ("nlp",)
    source = "RAG Evaluation Pipeline (Lite)"

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the share; skipped if the response has no entities, or is not in English."""
        if analysis.response_language:
            return self.skip(f"language {analysis.response_language}: named entities are found in English")
        found, missing = entities = analysis.entity_support
        if entities.share is None:
            return self.skip("the response has no named entities")
        return self.score(
            entities.share,
            model=analysis.models.nlp().name,
            explanation=f"not in the context: {', '.join(missing)}" if missing else "all entities are in the context",
            metadata={"found": list(found), "missing": list(missing)},
        )


class FactualAccuracy(GroundingMetric):
    """Weighted mean of semantic grounding and entity consistency; without entities, the grounding alone.

    Args:
        grounding_weight: weight of semantic grounding, 0..1; entity consistency has the rest.

    Raises:
        ConfigurationError: the weight is outside 0..1.
    """

    name = "factual_accuracy"
    version = "6"
    scores = (
        ScoreDefinition(name="factual_accuracy", description="mean of semantic grounding and entity consistency"),
    )
    models = ("embedder", "nlp")
    source = "RAG Evaluation Pipeline (Lite)"

    def __init__(self, grounding_weight: float = 0.5) -> None:
        if not 0 <= grounding_weight <= 1:
            raise ConfigurationError(f"grounding_weight must be from 0 to 1, not {grounding_weight}")
        self.grounding_weight = grounding_weight

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the score; skipped if the response or the passages have no words."""
        grounding = analysis.semantic_grounding
        if grounding is None:
            return self.skip(NO_WORDS)
        entities = analysis.entity_support
        # In the lexical tier both are "lexical", which is named once.
        model = ", ".join(dict.fromkeys((analysis.models.nlp().name, analysis.models.embedder().name)))
        # A share of no entities is undefined. To count it as 1 would reward answers without names.
        if entities.share is None:
            language = analysis.response_language
            why = (
                f"language {language}: entities are found in English"
                if language
                else "no named entities in the response"
            )
            return self.score(self.value_of(grounding), model=model, explanation=f"{why}: semantic grounding alone")
        value = self.grounding_weight * grounding + (1 - self.grounding_weight) * entities.share
        explanation = f"semantic grounding {grounding:.2f}, entity consistency {entities.share:.2f}"
        if entities.missing:
            explanation += f"; not in the context: {', '.join(entities.missing)}"
        return self.score(self.value_of(value), model=model, explanation=explanation)

    def value_of(self, accuracy: float) -> float:
        """Return the score for a factual accuracy."""
        return accuracy


class Hallucination(FactualAccuracy):
    """The complement of ``factual_accuracy``, with the same option."""

    name = "hallucination"
    scores = (ScoreDefinition(name="hallucination", description="1 - factual_accuracy", direction="lower"),)

    def value_of(self, accuracy: float) -> float:
        """Return the complement."""
        return 1 - accuracy
