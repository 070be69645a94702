"""``answer_relevance``: does the response answer the query?"""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.metrics.base import Field, LocalMetric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Role
from rageval_hooks.score import Result


class AnswerRelevance(LocalMetric):
    """Probability that the response answers the query: sigmoid of a cross-encoder's logit on the pair.

    A pair longer than the model reads (512 tokens) is cut by the model's library; the explanation says so.
    """

    name: ClassVar[str] = "answer_relevance"
    version: ClassVar[str] = "3"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="answer_relevance", description="probability that the response answers the query"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "response")
    models: ClassVar[tuple[Role, ...]] = ("cross_encoder",)
    family: ClassVar[str] = "local"
    answerable_only: ClassVar[bool] = True
    source: ClassVar[str] = "RAG Evaluation Pipeline (Lite); cross-encoder/ms-marco-MiniLM-L-6-v2"
    default: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the probability; skipped if the query has no words, or is not in English."""
        if analysis.query_language:
            return self.skip(f"language {analysis.query_language}: the model was trained on English")
        model = analysis.models.cross_encoder(wait=analysis.wait)
        # The cross-encoder cannot be stopped midway, so the deadline is checked before it.
        analysis.pause()
        # Without citation markers: the model was trained on queries and plain passages (MS MARCO).
        found = model.relevance(analysis.turn.query, analysis.response.said)
        if found is None:
            return self.skip("the query has no words that could be compared")
        cut = "only the beginning was read: the pair is longer than the model reads"
        return self.score(
            found.probability,
            model=model.name,
            explanation=cut if found.truncated else None,
            metadata={"truncated": found.truncated},
        )
