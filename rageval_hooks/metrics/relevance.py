"""Relevance of the answer and of the passages to the question."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition, Threshold, passage_name
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Role
from rageval_hooks.score import Result, Target
from rageval_hooks.settings import LEXICAL, MINILM

__all__ = ["AnswerRelevance", "ContextRelevance"]

_PASSAGES = ("clapnq_dev",)  # one passage per question: its thresholds say nothing of a mean over several


class AnswerRelevance(Metric):
    """Does the response answer the query? Sigmoid of a cross-encoder's logit on the pair (query, response).

    A pair longer than the model reads (512 tokens) is cut by the model's library; the explanation says so.
    """

    name: ClassVar[str] = "answer_relevance"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="answer_relevance", description="probability that the response answers the query"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "response")
    models: ClassVar[tuple[Role, ...]] = ("cross_encoder",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "seed 001; cross-encoder/ms-marco-MiniLM-L-6-v2"
    default: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the probability."""
        model = analysis.models.cross_encoder(wait=analysis.wait)
        analysis.pause()
        found = model.relevance(analysis.turn.query, analysis.turn.response)
        if found is None:
            return self.skip("the query has no words that could be compared")
        explanation = (
            "only the beginning was read: the pair is longer than the model reads" if found.truncated else None
        )
        return self.score(
            found.probability, model=model.name, explanation=explanation, metadata={"truncated": found.truncated}
        )


class ContextRelevance(Metric):
    """Are the passages about the query? Per passage, the cosine of the query and the passage's best window."""

    name: ClassVar[str] = "context_relevance"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(
            name="context_relevance",
            description="similarity of query and passage; for the turn, the mean over passages",
            thresholds=(
                Threshold(value=0.54, models=MINILM, target="passage", accuracy=(0.837, 0.837), sets=_PASSAGES),
                Threshold(value=0.48, models=(LEXICAL,), target="passage", accuracy=(0.743, 0.743), sets=_PASSAGES),
            ),
        ),
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages")
    models: ClassVar[tuple[Role, ...]] = ("embedder",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "ours; all-MiniLM-L6-v2"
    default: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Iterable[Result]:
        """Return the mean, then one score per passage."""
        turn = analysis.turn
        model = analysis.models.embedder(wait=analysis.wait)
        passages = analysis.passage_embeddings
        query = analysis.embed(turn.query)
        if query.is_empty:
            yield self.skip("the query has no words that could be compared")
            return
        values = [min(1.0, max(0.0, passage.best_cosine(query))) for passage in passages]  # type: ignore[arg-type]
        best = max(range(len(values)), key=values.__getitem__)
        explanation = f"best passage: {passage_name(turn, best)} ({values[best]:.2f})"
        if len(values) > 1:
            explanation += f"; {len(values)} passages, from {min(values):.2f} to {max(values):.2f}"
        yield self.score(
            math.fsum(values) / len(values),
            model=model.name,
            explanation=explanation,
            metadata={"passages": [round(value, 4) for value in values]},
        )
        for index, value in enumerate(values):
            target = Target(kind="passage", index=index, id=turn.passages[index].id)
            yield self.score(value, model=model.name, target=target)
