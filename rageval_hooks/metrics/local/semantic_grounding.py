"""``semantic_grounding``: similarity of the response and the context as wholes."""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.metrics.base import Field, LocalMetric, PassageScope, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.metrics.support.unseen import not_in_prompt
from rageval_hooks.models import Role
from rageval_hooks.score import Result

__all__ = ["SemanticGrounding"]


class SemanticGrounding(LocalMetric):
    """Cosine of the whole response and the passages of the prompt together, clipped to 0..1.

    If the context is longer than the model reads at once, the mean vector of its windows is used.
    """

    name: ClassVar[str] = "semantic_grounding"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="semantic_grounding", description="similarity of the response and the context as wholes"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("response", "passages")
    passages: ClassVar[PassageScope] = "prompt"
    models: ClassVar[tuple[Role, ...]] = ("embedder",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "RAG Evaluation Pipeline (Lite); all-MiniLM-L6-v2"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the cosine; skipped if the response or the context has no words."""
        # Shared with factual_accuracy and hallucination, which are made from it.
        value = analysis.semantic_grounding
        if value is None:
            return self.skip("the response or the passages have no words that could be compared")
        turn = analysis.turn
        note = not_in_prompt(turn.passages, turn.prompt_passages)
        return self.score(value, model=analysis.models.embedder().name, explanation=note or None)
