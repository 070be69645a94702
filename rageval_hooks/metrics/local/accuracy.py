"""The formula of ``factual_accuracy`` and ``hallucination``, and what the two metrics have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import Field, LocalMetric, PassageScope
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.metrics.support.unseen import missing_entities
from rageval_hooks.models import Role
from rageval_hooks.score import Result

__all__ = ["Accuracy", "AccuracyMetric", "factual_accuracy"]


@dataclass(frozen=True)
class Accuracy:
    """A value from 0 to 1, the models that computed it, and the reason for it."""

    value: float
    model: str
    explanation: str


def factual_accuracy(analysis: TurnAnalysis, grounding_weight: float) -> Accuracy | None:
    """Return the weighted mean of semantic grounding and entity consistency; without entities, the grounding alone.

    Args:
        analysis: the turn.
        grounding_weight: the weight of semantic grounding, 0..1; entity consistency has the rest.

    Returns:
        None if the response or the passages have no words.
    """
    grounding = analysis.semantic_grounding
    if grounding is None:
        return None
    found, missing = analysis.entity_support
    # In the lexical tier both are "lexical", which is named once.
    models = dict.fromkeys((analysis.models.nlp().name, analysis.models.embedder().name))
    model = ", ".join(models)
    # A share of no entities is undefined. To count it as 1 would reward answers without names.
    if not found and not missing:
        language = analysis.response_language
        why = f"language {language}: entities are found in English" if language else "no named entities in the response"
        return Accuracy(grounding, model, f"{why}: semantic grounding alone")
    share = len(found) / (len(found) + len(missing))
    value = grounding_weight * grounding + (1 - grounding_weight) * share
    explanation = f"semantic grounding {grounding:.2f}, entity consistency {share:.2f}"
    if missing:
        explanation += f"; {missing_entities(analysis)}"
    return Accuracy(value, model, explanation)


class AccuracyMetric(LocalMetric):
    """A metric whose score follows from factual accuracy.

    Args:
        grounding_weight: weight of semantic grounding in factual accuracy, 0..1; entity consistency has the rest.

    Raises:
        ConfigurationError: the weight is outside 0..1.
    """

    version: ClassVar[str] = "5"
    requires: ClassVar[tuple[Field, ...]] = ("response", "passages")
    passages: ClassVar[PassageScope] = "prompt"
    models: ClassVar[tuple[Role, ...]] = ("embedder", "nlp")
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "RAG Evaluation Pipeline (Lite); en_core_web_sm, all-MiniLM-L6-v2"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def __init__(self, grounding_weight: float = 0.5) -> None:
        if not 0 <= grounding_weight <= 1:
            raise ConfigurationError(f"grounding_weight must be from 0 to 1, not {grounding_weight}")
        self.grounding_weight = grounding_weight

    @abstractmethod
    def value_of(self, accuracy: float) -> float:
        """Return the score for a factual accuracy."""

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the score; skipped if the response or the passages have no words."""
        accuracy = factual_accuracy(analysis, self.grounding_weight)
        if accuracy is None:
            return self.skip("the response or the passages have no words that could be compared")
        return self.score(self.value_of(accuracy.value), model=accuracy.model, explanation=accuracy.explanation)
