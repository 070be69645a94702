"""``entity_consistency``: share of the response's named entities that the context has."""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.metrics.base import Field, LocalMetric, PassageScope, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.metrics.support.unseen import missing_entities
from rageval_hooks.models import Role
from rageval_hooks.score import Result

__all__ = ["EntityConsistency"]


class EntityConsistency(LocalMetric):
    """Share of the response's named entities that the passages of the prompt have; numbers and dates by value."""

    name: ClassVar[str] = "entity_consistency"
    version: ClassVar[str] = "5"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="entity_consistency", description="share of the response's named entities in the context"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("response", "passages")
    passages: ClassVar[PassageScope] = "prompt"
    models: ClassVar[tuple[Role, ...]] = ("nlp",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "RAG Evaluation Pipeline (Lite); en_core_web_sm"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the share; skipped if the response has no entities, or is not in English."""
        if analysis.response_language:
            return self.skip(f"language {analysis.response_language}: named entities are found in English")
        found, missing = analysis.entity_support
        if not found and not missing:
            return self.skip("the response has no named entities")
        return self.score(
            len(found) / (len(found) + len(missing)),
            model=analysis.models.nlp().name,
            explanation=missing_entities(analysis) or "all entities are in the context",
            metadata={"found": list(found), "missing": list(missing)},
        )
