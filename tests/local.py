"""The local metrics, and turns to try them on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from rageval_hooks import Passage, Turn
from rageval_hooks.metrics import Metric
from rageval_hooks.metrics.running import compute
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.models.grounding import GroundedSentence, GroundingInput, GroundingModel, GroundingResult
from rageval_hooks.score import Result, Score, Skipped
from rageval_hooks.settings import LEXICAL, ModelSettings

__all__ = ["LEXICAL_MODELS", "LOCAL", "ground_by", "label_of", "make_turn", "run", "why_not"]

LOCAL = (
    "answers_question",
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


@dataclass(frozen=True, kw_only=True)
class ScriptedGrounding(GroundingModel):
    """A grounding model that says how well each sentence is supported, and by which passages."""

    supports: Sequence[float]
    positions: tuple[int, ...]

    def read(self, inputs: GroundingInput) -> GroundingResult:
        found = zip(inputs.sentences, self.supports, strict=True)
        sentences = (GroundedSentence(span=span, support=support, positions=self.positions) for span, support in found)
        return GroundingResult(sentences=tuple(sentences), windows=1, passes=1, tokens=1)


def ground_by(monkeypatch: pytest.MonkeyPatch, *supports: float, positions: tuple[int, ...] = (0,)) -> dict[str, str]:
    """Make every grounding model a scripted one; return the setting ``models`` with one."""
    about: dict[str, Any] = {"name": "scripted", "version": "1", "details": {}, "limit": 512, "window": 512}
    model = ScriptedGrounding(**about, tokenizer=None, supports=supports, positions=positions)  # type: ignore[arg-type]
    monkeypatch.setattr(Models, "grounding", lambda *_, **__: model)
    return {"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": LEXICAL, "grounding": "example/scripted"}


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
