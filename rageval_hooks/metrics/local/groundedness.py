"""``groundedness``: how far the passages support the response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import Field, LocalMetric, PassageScope, ScoreDefinition, Threshold
from rageval_hooks.metrics.support.grounding import Grounding, SentenceGrounding, groundedness
from rageval_hooks.metrics.support.sentence_scores import SentenceScore, as_metadata, explain_sentences
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.metrics.support.unseen import passage_name, unseen_support
from rageval_hooks.models import Role
from rageval_hooks.models.embedding import Embedding
from rageval_hooks.score import Result
from rageval_hooks.settings import LEXICAL, MINILM
from rageval_hooks.text.sentences import Span

__all__ = ["Groundedness"]

_SETS: Final = ("begin_wow_test", "faithdial_gold", "expertqa_test", "wice_test")


class Groundedness(LocalMetric):
    """How far the passages of the prompt support the response.

    :mod:`rageval_hooks.metrics.support.grounding` has the formula. The explanation names the sentences below the
    threshold of the label.

    Args:
        weak: where the score has no label, the explanation names the sentences below this, 0..1.

    Raises:
        ConfigurationError: ``weak`` is outside 0..1.
    """

    name: ClassVar[str] = "groundedness"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(
            name="groundedness",
            headline=5,
            description="how far the passages support the response",
            by_sentence=True,
            thresholds=(
                # Chosen on these four sets together; docs/metrics.md has the figures of each.
                Threshold(value=0.74, models=MINILM, accuracy=(0.572, 0.858), sets=_SETS),
                Threshold(value=0.75, models=(LEXICAL,), accuracy=(0.565, 0.861), sets=_SETS),
            ),
        ),
    )
    requires: ClassVar[tuple[Field, ...]] = ("response", "passages")
    passages: ClassVar[PassageScope] = "prompt"
    models: ClassVar[tuple[Role, ...]] = ("embedder",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "ours; all-MiniLM-L6-v2"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def __init__(self, weak: float = 0.6) -> None:
        if not 0 <= weak <= 1:
            raise ConfigurationError(f"weak must be from 0 to 1, not {weak}")
        self.weak = weak

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the mean over sentences; skipped if the response or the passages have no words."""
        model = analysis.models.embedder(wait=analysis.wait).name
        found = self._grounding(analysis, model)
        if found.value is None:
            return self.skip("the response or the passages have no words that could be compared")
        # Support in a passage that the model did not see is no support. The explanation names it, since it points to a
        # fault of the prompt.
        unseen = unseen_support(analysis.turn, analysis.response)
        sentences = [_sentence_score(sentence, analysis, unseen) for sentence in found.sentences]
        score = self.score(found.value, model=model, metadata={"sentences": as_metadata(sentences)})
        # Where the user's own threshold sets the label, the explanation is written again with that threshold.
        threshold = self.scores[0].default_threshold(score)
        explanation = explain_sentences(sentences, self.weak if threshold is None else threshold)
        return score.model_copy(update={"explanation": explanation})

    def _grounding(self, analysis: TurnAnalysis, model: str) -> Grounding:
        response, indexes = analysis.response.blanked, analysis.prompt_indexes
        # The stand-in has no vectors per token: the formula then uses words alone.
        if model == LEXICAL:
            return groundedness(response, indexes, sentences=analysis.sentences, pause=analysis.pause)
        whole = analysis.response_embedding
        # A passage may have a lexical embedding where the model could not read it. It has no token vectors.
        passages = [found.tokens for found in analysis.prompt_embeddings if isinstance(found, Embedding)]
        tokens = whole.tokens if isinstance(whole, Embedding) else None
        return groundedness(response, indexes, tokens, passages, analysis.sentences, analysis.pause)


def _sentence_score(
    sentence: SentenceGrounding, analysis: TurnAnalysis, unseen: Mapping[Span, tuple[str, ...]]
) -> SentenceScore:
    start, end = sentence.span
    passage = analysis.prompt_positions[sentence.passage]
    return SentenceScore(
        text=analysis.turn.response[start:end],
        score=sentence.score,
        weight=sentence.weight,
        passage=passage,
        passage_name=passage_name(analysis.turn, passage),
        missing=sentence.missing,
        unseen=unseen.get(sentence.span, ()),
        coverage=sentence.coverage,
        alignment=sentence.alignment,
    )
