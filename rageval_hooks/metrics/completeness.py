"""Does the response take up what the query asks for?"""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Role
from rageval_hooks.score import Result

__all__ = ["ConceptCompleteness"]


class ConceptCompleteness(Metric):
    """Share of the query's concepts that the response takes up.

    A concept is a noun chunk or a verb of the query, fillers left out. It is taken up when its best cosine with a
    sentence of the response is above the threshold.

    Args:
        threshold: the cosine, 0..1.

    Raises:
        ConfigurationError: the threshold lies outside 0..1.
    """

    name: ClassVar[str] = "concept_completeness"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="concept_completeness", description="share of the query's concepts in the response"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "response")
    models: ClassVar[tuple[Role, ...]] = ("embedder", "nlp")
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "seed 001; en_core_web_sm, all-MiniLM-L6-v2"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def __init__(self, threshold: float = 0.45) -> None:
        if not 0 <= threshold <= 1:
            raise ConfigurationError(
                f"the threshold of concept_completeness lies within 0..1, and {threshold} does not"
            )
        self.threshold = threshold

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the share; skipped where the query has no concepts."""
        embedder = analysis.models.embedder(wait=analysis.wait)
        nlp = analysis.models.nlp(wait=analysis.wait)
        concepts = [concept for concept in analysis.concepts if not analysis.embed(concept).is_empty]
        if not concepts:
            return self.skip("the query has no concepts")
        sentences = analysis.sentence_embeddings
        if all(sentence.is_empty for sentence in sentences):
            return self.skip("the response has no words that could be compared")
        best = {
            # Not `cosine`: it is the same for sentences that fit a window, and in the lexical tier a word's cosine with
            # a sentence says how long the sentence is.
            concept: max(sentence.best_cosine(analysis.embed(concept)) for sentence in sentences)  # type: ignore[arg-type]
            for concept in concepts
        }
        missed = [concept for concept, cosine in best.items() if cosine <= self.threshold]
        return self.score(
            1 - len(missed) / len(concepts),
            model=embedder.name if embedder.name == nlp.name else f"{nlp.name}, {embedder.name}",
            explanation=f"missed: {', '.join(missed)}" if missed else f"taken up: {', '.join(concepts)}",
            metadata={"concepts": {concept: round(cosine, 4) for concept, cosine in best.items()}},
        )
