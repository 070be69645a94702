"""``hhem``: the probability that the passages support the response, by a model that was trained for this."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rageval_hooks.errors import ConfigurationError, InputTooLargeError
from rageval_hooks.metrics.base import GroundingMetric, ScoreDefinition
from rageval_hooks.metrics.support.sentence_scores import SentenceScore, as_metadata, explain_sentences
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis, check_size
from rageval_hooks.models.hhem import Hhem
from rageval_hooks.score import Result
from rageval_hooks.text.limits import MAX_EMBEDDED_CHARACTERS
from rageval_hooks.text.words import has_words

_SUPPORTED: Final = 0.5
"""The model's own limit: below it the model says *hallucinated*."""


class HallucinationEvaluation(GroundingMetric):
    """Probability that the passages of the prompt support the response, by HHEM-2.1-Open.

    The model is ``vectara/hallucination_evaluation_model``, a T5 encoder; see :mod:`rageval_hooks.models.hhem`.

    The passages are one source, in their order, with a line break between them. If source and response fit one pass
    (2,048 and 1,024 tokens), the model reads them whole. A longer source is read in overlapping windows, and nothing is
    cut off: the score of a sentence of the response is then that of its best window, and the turn's score is the mean
    over sentences. The model then reads each sentence without the others, so it cannot know what "it" or "they" means.

    It is not computed by default: the model has 440 MB, and a full window takes about five seconds on two cores (1,000
    tokens take a second and a half). It reads English.

    Args:
        max_passes: the most passes of the model for one turn; a turn that needs more is skipped.

    Raises:
        ConfigurationError: ``max_passes`` is less than 1.
    """

    name = "hhem"
    version = "2"
    scores = (
        ScoreDefinition(name="hhem", description="probability that the passages support the response", headline=2),
    )
    models = ("hhem",)
    default = False
    source = "Open RAG Eval"

    def __init__(self, *, max_passes: int = 64) -> None:
        if max_passes < 1:
            raise ConfigurationError(f"max_passes of hhem must be at least 1, not {max_passes}")
        self.max_passes = max_passes

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the probability; skipped if the response has no words, or there is too much to read."""
        # The model was trained on a premise and a hypothesis; several passages are one premise.
        source = "\n".join(passage.text for passage in analysis.prompt_passages if passage.text.strip())
        # Citation markers and lists of references are no claims, and the model would judge them as such.
        response = analysis.response.said
        # Dozens of windows of about five seconds each. Checked before anything is tokenized.
        check_size(len(source) + len(response), MAX_EMBEDDED_CHARACTERS)
        model = analysis.models.hhem(wait=analysis.wait)
        windows = model.source_windows(source)
        # Cutting the source would make claims unsupported that the lost part supports.
        if len(windows) > 1 or len(model.response_pieces(response)) > 1:
            return self._by_sentence(analysis, model, windows)
        analysis.pause()
        # A pass takes seconds: the deadline is checked before each.
        value = model.support(source, response)
        return self.score(value, model=model.name, metadata={"windows": 1})

    def _by_sentence(self, analysis: TurnAnalysis, model: Hhem, windows: Sequence[str]) -> Result:
        sentences = [
            piece
            for text in analysis.response.sentence_texts
            for piece in model.response_pieces(text)
            if has_words(piece)
        ]
        # Each pass reads one window with one sentence.
        if len(sentences) * len(windows) > self.max_passes:
            raise InputTooLargeError(
                f"{len(windows)} windows of the passages for each of {len(sentences)} sentences are more than "
                f"max_passes={self.max_passes} passes of the model"
            )
        scores = [SentenceScore(text=text, score=_best(analysis, model, windows, text)) for text in sentences]
        head = f"read in {len(windows)} windows, " if len(windows) > 1 else "read "
        return self.score(
            # The mean, as for groundedness: the minimum would fall with the length of the answer.
            math.fsum(score.score for score in scores) / len(scores),
            model=model.name,
            explanation=f"{head}sentence by sentence\n{explain_sentences(scores, _SUPPORTED)}",
            metadata={"windows": len(windows), "sentences": as_metadata(scores)},
        )


def _best(analysis: TurnAnalysis, model: Hhem, windows: Sequence[str], sentence: str) -> float:
    best = 0.0
    for window in windows:
        analysis.pause()
        # One window that supports the sentence suffices. The others only say nothing about it.
        best = max(best, model.support(window, sentence))
    return best
