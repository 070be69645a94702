"""The formula of ``faithfulness``: groundedness, unsupported facts and small differences in one number.

logit = intercept + the sum of weight times feature. No weight of a feature that speaks for support is negative, and
none of one that speaks against it is positive, so that a further error never raises the score. The weights are in
``weights.json``; ``benchmarks/fit_faithfulness.py`` fits them, and docs/metrics.md says on which data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Final

from rageval_hooks.metrics.support.faithfulness.differences import Differences

__all__ = ["Evidence", "Formula", "faithfulness_formula", "features"]

_STEPS: Final = (0.0, 0.3, 0.6, 0.8, 1.0)
"""Groundedness is piecewise linear between these: people distinguish more at the lower end."""

_FROM: Final = 0.5
_FULLY_FROM: Final = 0.8
"""Where hardly a word is supported, one wrong name says little. It counts from the first value on, fully from the
second."""

_LEAST_WORDS: Final = 3
"""Sentences with fewer words ("Yes.", "Not sure.") hold no statement of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence for and against a sentence, or a whole response.

    Attributes:
        groundedness: of the sentence, or of the response.
        names: names that no passage has.
        facts: numbers, dates and codes that no passage has.
        differences: of each sentence; one for a sentence alone.
    """

    groundedness: float
    names: int
    facts: int
    differences: Sequence[Differences]


def features(evidence: Evidence) -> dict[str, float]:
    """Return the features of a sentence or response; those that speak against support are negative.

    Counts are divided by the square root of the number of sentences: one error in ten sentences is less than one in a
    single sentence, and more than a tenth of it.
    """
    total = Differences.total(evidence.differences)
    sentences = sum(part.words >= _LEAST_WORDS for part in evidence.differences)
    root = math.sqrt(max(1, sentences))
    words = max(1.0, total.words)
    value = evidence.groundedness
    supported = min(1.0, max(0.0, (value - _FROM) / (_FULLY_FROM - _FROM)))

    def less(count: float) -> float:
        return -math.log1p(count / root)

    return {
        **_steps(value),
        "pairs": total.pairs / words,
        "copied": total.copied / words,
        "any_name_missing": -supported * (evidence.names > 0),
        "names_missing": value * less(evidence.names),
        "any_fact_missing": -supported * (evidence.facts > 0),
        "facts_missing": value * less(evidence.facts),
        "names_elsewhere": less(total.names),
        "numbers_elsewhere": less(total.numbers),
        "negated": less(total.negated),
        "opposites": less(total.opposites),
        "opposed": less(total.opposed),
        "unbound_names": less(total.unbound_names),
        "swapped": less(total.swapped),
        "negation_added": less(total.added),
        "negation_dropped": less(total.dropped),
        "replaced_roles": less(total.replaced_roles),
        "replaced_names": less(total.replaced_names),
        "replaced_numbers": less(total.replaced_numbers),
        "replaced_opposites": less(total.replaced_opposites),
        "replaced_negations": less(total.replaced_negations),
    }


def _steps(value: float) -> dict[str, float]:
    """Return how far groundedness has come in each of its steps, 0..1."""
    found = {}
    for low, high in pairwise(_STEPS):
        found[f"groundedness_{low:g}_{high:g}"] = min(1.0, max(0.0, (value - low) / (high - low)))
    return found


@dataclass(frozen=True, slots=True)
class Formula:
    """A logistic formula.

    Attributes:
        intercept: the logit where all features are 0.
        weights: by the name of the feature; none is negative.
    """

    intercept: float
    weights: Mapping[str, float]

    def value(self, evidence: Evidence) -> float:
        """Return the score of a sentence or response, 0..1."""
        found = features(evidence)
        logit = self.intercept + sum(weight * found[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-logit))


@cache
def faithfulness_formula() -> Formula:
    """Return the formula with the weights of the package."""
    data = json.loads(files(__package__).joinpath("weights.json").read_text(encoding="utf-8"))
    return Formula(data["intercept"], data["weights"])
