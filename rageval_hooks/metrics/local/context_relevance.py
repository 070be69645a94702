"""``context_relevance``: are the passages about the query?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

from rageval_hooks.metrics.base import Field, LocalMetric, ScoreDefinition, Threshold
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Role
from rageval_hooks.score import Result
from rageval_hooks.settings import LEXICAL, MINILM
from rageval_hooks.text.words import has_words

# One passage per question: a threshold for a passage says nothing about a mean over several.
_SETS = ("clapnq_dev",)


class ContextRelevance(LocalMetric):
    """Similarity of the query and each retrieved passage: the cosine of the query and the passage's best window.

    A passage without words has no score and is not in the mean.
    """

    name: ClassVar[str] = "context_relevance"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(
            name="context_relevance",
            description="similarity of query and passage; for the turn, the mean over passages",
            thresholds=(
                Threshold(value=0.54, models=MINILM, target="passage", accuracy=(0.837, 0.837), sets=_SETS),
                Threshold(value=0.48, models=(LEXICAL,), target="passage", accuracy=(0.743, 0.743), sets=_SETS),
            ),
        ),
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages")
    models: ClassVar[tuple[Role, ...]] = ("embedder",)
    family: ClassVar[str] = "local"
    answerable_only: ClassVar[bool] = True
    source: ClassVar[str] = "ours; all-MiniLM-L6-v2"
    default: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Iterable[Result]:
        """Return the mean, then one score per passage; skipped if the query or all passages have no words."""
        turn = analysis.turn
        model = analysis.models.embedder(wait=analysis.wait).name
        query = analysis.embed(turn.query)
        if query.is_empty:
            return [self.skip("the query has no words that could be compared")]
        # Passages of earlier turns come last.
        passages = zip(turn.retrieved, analysis.passage_embeddings, strict=False)
        values = {
            position: min(1.0, max(0.0, found.best_cosine(query)))  # type: ignore[arg-type]  # both of one model
            for position, (passage, found) in enumerate(passages)
            if has_words(passage.text) and not passage.is_image
        }
        if not values:
            return [self.skip("the passages have no words that could be compared")]
        best = max(values, key=values.__getitem__)
        explanation = f"best passage: {analysis.passage_name(best)} ({values[best]:.2f})"
        if len(values) > 1:
            explanation += f"; {len(values)} passages, from {min(values.values()):.2f} to {max(values.values()):.2f}"
        count = len(turn.retrieved)
        if count > len(values):
            explanation += f"; not counted, without words: {count - len(values)}"
        rounded = [round(values[position], 4) if position in values else None for position in range(count)]
        mean = math.fsum(values.values()) / len(values)
        return [
            self.score(mean, model=model, explanation=explanation, metadata={"passages": rounded}),
            *(self.score(value, model=model, target=analysis.target(at)) for at, value in values.items()),
        ]
