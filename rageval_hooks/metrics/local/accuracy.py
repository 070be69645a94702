"""The formula of ``factual_accuracy`` and ``hallucination``."""

from __future__ import annotations

from dataclasses import dataclass

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.local.entity_notes import missing_entities
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis

__all__ = ["Accuracy", "check_weight", "factual_accuracy"]


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
        return Accuracy(grounding, model, "no named entities in the response: semantic grounding alone")
    share = len(found) / (len(found) + len(missing))
    value = grounding_weight * grounding + (1 - grounding_weight) * share
    explanation = f"semantic grounding {grounding:.2f}, entity consistency {share:.2f}"
    if missing:
        explanation += f"; {missing_entities(analysis)}"
    return Accuracy(value, model, explanation)


def check_weight(weight: float) -> float:
    """Return the weight itself.

    Raises:
        ConfigurationError: it is outside 0..1.
    """
    if not 0 <= weight <= 1:
        raise ConfigurationError(f"grounding_weight must be from 0 to 1, not {weight}")
    return weight
