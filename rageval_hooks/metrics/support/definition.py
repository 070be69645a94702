"""What a score means: its range, its direction, and from where on it passes where nobody has said so."""

from __future__ import annotations

from typing import Literal

from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Score

__all__ = ["Direction", "ScoreDefinition", "Threshold", "label"]

Direction = Literal["higher", "lower"]


class Threshold(Data):
    """From where on a score passes, as it was measured against the labels of people.

    Attributes:
        value: passes at least with this value, or at most where lower is better.
        models: which models it was measured with, as they are named on scores; None for a score without a model. What
            another model computes has other values: for that there is no default.
        target: what it was measured on, the whole turn or single passages; only such scores are labelled by it.
        accuracy: how good it was: the lowest and the highest balanced accuracy over the sets; .5 is chance, 1 perfect.
        sets: the labelled sets of benchmarks/RESULTS.md.
    """

    value: float
    models: tuple[str | None, ...]
    target: Literal["turn", "passage"] = "turn"
    accuracy: tuple[float, float]
    sets: tuple[str, ...]


class ScoreDefinition(Data):
    """What one score of a metric means.

    Attributes:
        name: the score's name.
        description: what it says, in one sentence.
        direction: whether higher or lower is better.
        low: the least possible value.
        high: the greatest possible value; None where there is no bound.
        unit: ``""`` for a share or a probability, else ``"s"``, ``"tokens"``, ``"USD"`` …
        thresholds: for the labels ``pass`` and ``fail`` where the user has set none: one per kind of model.
        labels: the labels that the metric itself gives; a threshold's would take their place, and is refused.
    """

    name: str
    description: str
    direction: Direction = "higher"
    low: float = 0.0
    high: float | None = 1.0
    unit: str = ""
    thresholds: tuple[Threshold, ...] = ()
    labels: tuple[str, ...] = ()

    def contains(self, value: float) -> bool:
        """Whether a value lies in the range, but for rounding."""
        return value >= self.low - _ROUNDING and (self.high is None or value <= self.high + _ROUNDING)

    def default_threshold(self, score: Score) -> float | None:
        """Return from where on a score passes; None if that was not measured for such a score."""
        for threshold in self.thresholds:
            if score.model in threshold.models and score.target.kind == threshold.target:
                return threshold.value
        return None


_ROUNDING = 1e-9
"""By so much a share may miss the threshold that it meets: as floats, 1 - 4/5 is less than 0.2."""


def label(score: Score, threshold: float, direction: Direction) -> Score:
    """Return the score with the label that the threshold gives it; the threshold itself passes."""
    above = score.value - threshold
    passed = above >= -_ROUNDING if direction == "higher" else above <= _ROUNDING
    return score.model_copy(update={"label": "pass" if passed else "fail"})
