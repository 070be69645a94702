"""Relevance of the answer and of the passages to the question."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rageval_hooks.analysis import TurnAnalysis
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition
from rageval_hooks.models import Role
from rageval_hooks.score import Result, Target

__all__ = ["AnswerRelevance", "ContextRelevance"]


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
        values = [min(1.0, max(0.0, passage.best_cosine(query))) for passage in passages]  # type: ignore[arg-type]
        best = max(range(len(values)), key=values.__getitem__)
        yield self.score(
            sum(values) / len(values),
            model=model.name,
            explanation=f"best passage: {_name(turn.passages[best].id, best)} ({values[best]:.2f}); "
            f"{len(values)} passages, from {min(values):.2f} to {max(values):.2f}",
            metadata={"passages": [round(value, 4) for value in values]},
        )
        for index, value in enumerate(values):
            target = Target(kind="passage", index=index, id=turn.passages[index].id)
            yield self.score(value, model=model.name, target=target)


def _name(identifier: str | None, index: int) -> str:
    return identifier if identifier is not None else f"number {index + 1}"
