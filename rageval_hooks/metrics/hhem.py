"""``hhem``: how probable it is that the passages support the response, by a model that was trained to say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from rageval_hooks.errors import ConfigurationError, InputTooLargeError
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Role
from rageval_hooks.models.hhem import Hhem
from rageval_hooks.score import Result

__all__ = ["HallucinationEvaluation"]

MAX_SOURCE_CHARACTERS = 300_000
MAX_RESPONSE_CHARACTERS = 100_000

_SUPPORTED = 0.5
"""Below it the model says *hallucinated*; such sentences are named in the explanation."""

_MOST_EXPLAINED = 5
_MOST_SENTENCES = 100


class HallucinationEvaluation(Metric):
    """Probability that the passages support the response, by HHEM-2.1-Open.

    The model is ``vectara/hallucination_evaluation_model``, a T5 encoder; see :mod:`rageval_hooks.models.hhem`.

    The passages are one source, in their order, with a line break between them. Where source and response fit one pass
    (2,048 and 1,024 tokens), the model reads them whole. A longer source is read in overlapping windows, nothing is cut
    off: then the score of a sentence of the response is that of its best window, and the turn's score is the mean over
    sentences. A sentence is read without the others then, so what "it" or "they" is in it, the model cannot know.

    It is not computed by default: it takes a model of 440 MB, and about five seconds of two cores for a full window
    (a second and a half for 1,000 tokens). It reads English.

    Args:
        max_passes: how often the model is asked about one turn, at most; a turn that needs more is skipped.

    Raises:
        ConfigurationError: that is less than one pass.
    """

    name: ClassVar[str] = "hhem"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="hhem", description="probability that the passages support the response"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("response", "passages")
    models: ClassVar[tuple[Role, ...]] = ("hhem",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "seed 004; vectara/hallucination_evaluation_model"
    about_claims: ClassVar[bool] = True

    def __init__(self, *, max_passes: int = 64) -> None:
        if max_passes < 1:
            raise ConfigurationError(f"hhem takes at least 1 pass of the model, not {max_passes}")
        self.max_passes = max_passes

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the probability; skipped where there is no word to judge, or too much to read."""
        response = analysis.turn.response
        source = "\n".join(passage.text for passage in analysis.turn.passages if passage.text.strip())
        _check_sizes(source, response)
        if not any(map(str.isalnum, response)):
            return self.skip("the response has no words")
        model = analysis.models.hhem(wait=analysis.wait)
        windows = model.source_windows(source)
        if len(windows) == 1 and len(model.response_pieces(response)) == 1:
            analysis.pause()
            value = model.support(source, response)
            return self.score(value, model=model.name, metadata={"windows": 1})
        return self._by_sentence(analysis, model, windows)

    def _by_sentence(self, analysis: TurnAnalysis, model: Hhem, windows: Sequence[str]) -> Result:
        response = analysis.turn.response
        sentences = [
            piece
            for start, end in analysis.sentences
            for piece in model.response_pieces(response[start:end])
            if any(map(str.isalnum, piece))
        ]
        if len(sentences) * len(windows) > self.max_passes:
            raise InputTooLargeError(
                f"{len(windows)} windows of the passages for each of {len(sentences)} sentences are more than "
                f"max_passes={self.max_passes} passes of the model"
            )
        values = []
        for sentence in sentences:
            best = 0.0
            for window in windows:
                analysis.pause()
                best = max(best, model.support(window, sentence))
            values.append(best)
        return self.score(
            math.fsum(values) / len(values),
            model=model.name,
            explanation=_explain(sentences, values, len(windows)),
            metadata={
                "windows": len(windows),
                "sentences": [
                    {"text": text, "score": round(value, 4)}
                    for text, value in list(zip(sentences, values, strict=True))[:_MOST_SENTENCES]
                ],
            },
        )


def _check_sizes(source: str, response: str) -> None:
    for what, text, limit in (
        ("passages", source, MAX_SOURCE_CHARACTERS),
        ("response", response, MAX_RESPONSE_CHARACTERS),
    ):
        if len(text) > limit:
            raise InputTooLargeError(f"{what} of {len(text):,} characters; the limit is {limit:,}")


def _explain(sentences: Sequence[str], values: Sequence[float], windows: int) -> str:
    """Say how it was read, and name the sentences that no window supports, the worst first."""
    lines = [f"read in {windows} windows, sentence by sentence" if windows > 1 else "read sentence by sentence"]
    poor = sorted((value, text) for text, value in zip(sentences, values, strict=True) if value < _SUPPORTED)
    lines += [f"{value:.2f} “{_shorten(text)}”" for value, text in poor[:_MOST_EXPLAINED]]
    if len(poor) > _MOST_EXPLAINED:
        lines.append(f"and {len(poor) - _MOST_EXPLAINED} more of {len(sentences)} sentences")
    return "\n".join(lines)


def _shorten(text: str, length: int = 120) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
