"""``groundedness``: how far the passages support the response."""

from __future__ import annotations

from bisect import bisect_left

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import GROUNDING_SETS, NO_WORDS, GroundingMetric, ScoreDefinition, Threshold
from rageval_hooks.metrics.support.grounding import SentenceGrounding, groundedness
from rageval_hooks.metrics.support.sentence_scores import SentenceScore, UnsupportedPart
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models.grounding import GroundedSentence, GroundingInput, GroundingModel
from rageval_hooks.score import Result
from rageval_hooks.settings import LEXICAL, MINILM


class Groundedness(GroundingMetric):
    """How far the passages of the prompt support the response.

    :mod:`rageval_hooks.metrics.support.grounding` has the formula. The explanation names the sentences below the
    threshold of the label.

    With ``models={"grounding": …}`` a grounding model judges each sentence in place of the formula; see
    :mod:`rageval_hooks.models.grounding`. The sentences, their weights and the mean stay the same. Such a score is
    always late on a request path.

    Args:
        weak: where the score has no label, the explanation names the sentences below this, 0..1.
        max_passes: the most forward passes of a grounding model for one turn; a turn that needs more is skipped.

    Raises:
        ConfigurationError: ``weak`` is outside 0..1, or ``max_passes`` is less than 1.
    """

    name = "groundedness"
    version = "4"
    scores = (
        ScoreDefinition(
            name="groundedness",
            headline=5,
            description="how far the passages support the response",
            by_sentence=True,
            thresholds=(
                # Chosen so that few supported answers of RAG systems fail; docs/metrics.md has the figures.
                Threshold(value=0.5, models=MINILM, accuracy=(0.564, 0.778), sets=GROUNDING_SETS),
                Threshold(value=0.5, models=(LEXICAL,), accuracy=(0.564, 0.759), sets=GROUNDING_SETS),
            ),
        ),
    )
    models = ("grounding",)

    def __init__(self, weak: float = 0.6, *, max_passes: int = 256) -> None:
        if not 0 <= weak <= 1:
            raise ConfigurationError(f"weak must be from 0 to 1, not {weak}")
        if max_passes < 1:
            raise ConfigurationError(f"max_passes of groundedness must be at least 1, not {max_passes}")
        self.weak = weak
        self.max_passes = max_passes

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the mean over sentences; skipped if the response or the passages have no words."""
        model = analysis.models.grounding(wait=analysis.wait)
        if isinstance(model, GroundingModel):
            return self._by_model(analysis, model)
        found = analysis.grounding
        if found.value is None:
            return self.skip(NO_WORDS)
        if analysis.language_gap is not None:
            return self.skip(analysis.language_gap)
        sentences = [_sentence_score(sentence, analysis) for sentence in found.sentences]
        return self.score_by_sentence(found.value, sentences, model.name, self.weak)

    def _by_model(self, analysis: TurnAnalysis, model: GroundingModel) -> Result:
        """Return the score by a grounding model: the mean of the sentences' support, weighted as in the formula."""
        # By words only. It gives the sentences with content words, their weights, missing words and best passages.
        by_words = groundedness(analysis.response.blanked, analysis.response.lines, analysis.prompt_indexes)
        if by_words.value is None:
            return self.skip(NO_WORDS)
        # The places of the sentences in the response without its citation markers.
        said = analysis.response.said_positions
        spans = [(bisect_left(said, a), bisect_left(said, b)) for a, b in (found.span for found in by_words.sentences)]
        texts = zip(analysis.prompt_positions, analysis.prompt_passages, strict=True)
        inputs = GroundingInput(
            query=analysis.turn.query,
            sources=[(position, text) for position, passage in texts if (text := passage.text.strip())],
            response=analysis.response.said,
            sentences=spans,
            max_passes=self.max_passes,
            pause=analysis.pause,
        )
        reading = model.read(inputs)
        supports = {support.span: support for support in reading.sentences}
        sentences = [
            _supported_sentence(sentence, supports[span], analysis)
            for span, sentence in zip(spans, by_words.sentences, strict=True)
            if span in supports
        ]
        if not sentences:
            return self.skip(NO_WORDS)
        weight = sum(sentence.weight for sentence in sentences)
        value = sum(sentence.score * sentence.weight for sentence in sentences) / weight
        details = {**model.details, "threshold": model.threshold, "windows": reading.windows}
        details |= {"passes": reading.passes, "tokens": reading.tokens}
        score = self.score_by_sentence(value, sentences, model.name, self.weak, details)
        # The same formula of the score, asked of another model: its version says how that model was asked.
        return score.model_copy(update={"version": model.version})


def _supported_sentence(
    sentence: SentenceGrounding, support: GroundedSentence, analysis: TurnAnalysis
) -> SentenceScore:
    """Return a sentence with the score that a grounding model gives it."""
    positions, response = analysis.response.said_positions, analysis.turn.response
    parts = []
    for part in support.unsupported:
        start, end = positions[part.start], positions[part.end - 1] + 1
        found = UnsupportedPart(start=start, end=end, text=response[start:end], probability=part.probability)
        parts.append(found)
    by_words = _sentence_score(sentence, analysis)
    changes: dict[str, object] = {"score": support.support, "coverage": None, "alignment": None}
    changes["unsupported"] = tuple(parts)
    # Words choose among the passages of the window; a passage outside it is not what the model has read.
    if by_words.passage not in support.positions:
        position = support.positions[0] if len(support.positions) == 1 else None
        changes |= {"passage": position, "passage_name": "" if position is None else analysis.passage_name(position)}
    return by_words.model_copy(update=changes)


def _sentence_score(sentence: SentenceGrounding, analysis: TurnAnalysis) -> SentenceScore:
    start, end = sentence.span
    passage = analysis.prompt_positions[sentence.passage]
    return SentenceScore(
        text=analysis.turn.response[start:end],
        score=sentence.score,
        start=start,
        end=end,
        weight=sentence.weight,
        passage=passage,
        passage_name=analysis.passage_name(passage),
        missing=tuple(word for word in sentence.missing if word not in analysis.fact_support.found),
        # Support in a passage that the model did not see is no support. It points to a fault of the prompt.
        unseen=analysis.unseen_support.get(sentence.span, ()),
        coverage=sentence.coverage,
        alignment=sentence.alignment,
    )
