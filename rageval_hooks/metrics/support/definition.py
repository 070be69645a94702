"""Definitions of scores: the range, the direction, and the threshold of the label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from rageval_hooks.metrics.support.sentence_scores import explain_sentences, sentences_in
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Score

Direction = Literal["higher", "lower"]

MODEL_DETAILS: Final = "grounding_model"
"""The key in a score's metadata under which a grounding model says how it was asked, and its threshold."""

_ROUNDING: Final = 1e-9
"""A share may miss the threshold that it meets by this much: as floats, 1 - 4/5 is less than 0.2."""


class Threshold(Data):
    """A default threshold, as it was measured against human labels.

    Attributes:
        value: a score passes at this value or more; at this value or less where lower is better.
        models: the models that it was measured with, as scores name them; None for a score without a model. Another
            model gives other values, so it has no default threshold.
        target: what it was measured on, whole turns or single passages; it labels only such scores.
        accuracy: the lowest and the highest balanced accuracy over the sets; .5 is chance, 1 is perfect.
        sets: the labelled sets of benchmarks/RESULTS.md.
    """

    value: float
    models: tuple[str | None, ...]
    target: Literal["turn", "passage"] = "turn"
    accuracy: tuple[float, float]
    sets: tuple[str, ...]


class ScoreDefinition(Data):
    """The definition of one score of a metric.

    Attributes:
        name: the score's name.
        description: its meaning, in one sentence.
        direction: whether higher or lower is better.
        low: the least possible value.
        high: the greatest possible value; None if there is no bound.
        unit: ``""`` for a share or a probability, else ``"s"``, ``"tokens"``, ``"USD"`` …
        thresholds: the default thresholds of the labels ``pass`` and ``fail``, one per kind of model.
        labels: the labels that the metric itself sets; such a score takes no threshold.
        by_sentence: True if the score is a mean over sentences and lists them in its metadata. Its explanation then
            names the sentences below the threshold of the label.
        headline: how well the score sums up a turn. Reports order turns by the score with the highest headline that a
            file has; 0 is never chosen while another is there.
        binary: True if every value is 0 or 1. Plots then show a share with its interval instead of a box.
    """

    name: str
    description: str
    direction: Direction = "higher"
    low: float = 0.0
    high: float | None = 1.0
    unit: str = ""
    thresholds: tuple[Threshold, ...] = ()
    labels: tuple[str, ...] = ()
    by_sentence: bool = False
    headline: int = 0
    binary: bool = False

    def contains(self, value: float) -> bool:
        """Return True if the value is in the range, up to rounding."""
        if value < self.low - _ROUNDING:
            return False
        return self.high is None or value <= self.high + _ROUNDING

    def default_threshold(self, score: Score) -> float | None:
        """Return the default threshold for such a score; None if it has none.

        A model that was trained to decide has its own threshold, which the score has in its metadata.
        """
        for threshold in self.thresholds:
            if score.model in threshold.models and score.target.kind == threshold.target:
                return threshold.value
        return _own_threshold(score)

    def label(self, score: Score, threshold: float) -> Score:
        """Return the score with its label, and with an explanation that uses the same threshold."""
        labelled = label(score, threshold, self.direction)
        # The metric has explained its score with its default threshold.
        if not self.by_sentence or threshold == self.default_threshold(score):
            return labelled
        sentences = sentences_in(score.metadata)
        if not sentences:
            return labelled
        return labelled.model_copy(update={"explanation": explain_sentences(sentences, threshold)})


def _own_threshold(score: Score) -> float | None:
    details = score.metadata.get(MODEL_DETAILS)
    found = details.get("threshold") if isinstance(details, Mapping) else None
    return found if isinstance(found, float) else None


def label(score: Score, threshold: float, direction: Direction) -> Score:
    """Return the score with the label ``pass`` or ``fail``; a value equal to the threshold passes."""
    above = score.value - threshold
    passed = above >= -_ROUNDING if direction == "higher" else above <= _ROUNDING
    return score.model_copy(update={"label": "pass" if passed else "fail"})
