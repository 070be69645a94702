"""The local metrics, and turns to try them on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rageval_hooks import Passage, Turn
from rageval_hooks.metrics import Metric
from rageval_hooks.metrics.support.running import compute
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.score import Result, Score, Skipped
from rageval_hooks.settings import LEXICAL, ModelSettings

__all__ = ["LEXICAL_MODELS", "LOCAL", "label_of", "make_turn", "run", "why_not"]

LOCAL = (
    "answer_relevance",
    "concept_completeness",
    "context_relevance",
    "semantic_grounding",
    "entity_consistency",
    "factual_accuracy",
    "hallucination",
    "groundedness",
    "faithfulness",
    "unsupported_facts",
    "latency",
    "tokens",
    "cost",
)
"""Every metric of the table "Local"."""

LEXICAL_MODELS = Models(ModelSettings(embedder=LEXICAL, cross_encoder=LEXICAL, nlp=LEXICAL))


def make_turn(response: str = "", passages: Iterable[str] = (), query: str = "", **fields: Any) -> Turn:
    """Make a turn from texts."""
    return Turn(query=query, response=response, passages=tuple(Passage(text=text) for text in passages), **fields)


def run(metric: Metric, turn: Turn, models: Models = LEXICAL_MODELS) -> tuple[Result, ...]:
    """Return what a metric says of a turn."""
    return compute(metric, TurnAnalysis(turn, models, wait=True))


def why_not(results: Sequence[Result]) -> tuple[str, str]:
    """Return the name and the reason of the one result, a skipped one."""
    [result] = results
    assert isinstance(result, Skipped), result
    return result.name, result.reason


def label_of(metric: Metric, score: Score) -> str | None:
    """Return the label that a score has by its default threshold."""
    definition = metric.definitions[score.name]
    threshold = definition.default_threshold(score)
    return None if threshold is None else definition.label(score, threshold).label
