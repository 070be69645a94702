"""Means with intervals and paired tests over questions, seeded.

The unit is the question: repeated answers to one question are not independent. The interval is scipy's bias-corrected
and accelerated bootstrap (Efron 1987) of a weighted mean. The test permutes the signs of the paired differences;
scipy's own takes ten times as long.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import stats

from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.text.formatting import show_value

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# More questions than this are resampled in random blocks: the same interval, in bounded time and memory.
_MAX_UNITS = 2_000

# Likewise for the signs of a permutation test.
_MAX_FLIPPED = 500

# All patterns of signs are counted of up to 13 questions (2^13 = 8,192). Of more, the first number of patterns is
# drawn, and the second if fewer than 5 of these are as extreme as the observed one: their share would be too rough.
_PERMUTATIONS, _MORE_PERMUTATIONS = 9_999, 49_999
_MIN_HITS = 5

# Largest matrix of resamples that is held at once: 16 MB.
_BATCH_CELLS = 2_000_000


class Interval(Data):
    """Bounds that hold the true mean with the stated confidence."""

    low: float
    high: float

    def shown(self, show: Callable[[float], str] = show_value) -> str:
        """Return the bounds as text, each as the function shows it: ``0.612 … 0.734``."""
        return f"{show(self.low)} … {show(self.high)}"


class Resampling(Data):
    """How intervals and tests are made.

    Attributes:
        level: confidence of the intervals.
        resamples: number of bootstrap samples.
        seed: for the random numbers. The same seed gives the same report.
    """

    level: float = Field(default=0.95, gt=0.5, lt=1)
    resamples: int = Field(default=2000, ge=100, le=1_000_000)
    seed: int = Field(default=0, ge=0)


class Spread(Data):
    """How the values of a score are distributed. Each value counts with 1 / the probability of being sampled.

    Attributes:
        count: number of values.
        questions: number of questions that they are about.
        mean: weighted mean.
        interval: of the mean; None for fewer than two questions.
        median: half of the weight lies on either side.
        deviation: standard deviation; None for fewer than two values.
        minimum: the smallest value.
        lower_quartile: a quarter of the weight lies below.
        upper_quartile: a quarter of the weight lies above.
        maximum: the largest value.
    """

    count: int
    questions: int
    mean: float
    interval: Interval | None
    median: float
    deviation: float | None
    minimum: float
    lower_quartile: float
    upper_quartile: float
    maximum: float


class Paired(Data):
    """The same questions, before and after.

    Attributes:
        count: number of questions with a value in both.
        changed: how many of them have different values.
        before: mean of the first.
        after: mean of the second.
        difference: ``after - before``.
        interval: of the difference; None for fewer than two questions.
        p: probability of a difference at least as large in either direction, if nothing had changed.
        p_lower: probability of a difference at least as low.
        p_higher: probability of a difference at least as high.
    """

    count: int
    changed: int
    before: float
    after: float
    difference: float
    interval: Interval | None
    p: float
    p_lower: float
    p_higher: float


class Variation(Data):
    """How much a score differs between the answers to one question.

    Attributes:
        questions: number of questions with at least two values.
        mean: mean over these questions of their mean.
        variance: mean over questions of the sample variance.
        coefficient: mean over questions of standard deviation / absolute mean; None if no question has one.
        undefined: questions whose mean is 0 and that therefore have no coefficient.
        coefficients: how the coefficients are distributed.
    """

    questions: int
    mean: float
    variance: float
    coefficient: float | None
    undefined: int
    coefficients: Spread | None = None


def spread(values: Floats, weights: Floats, questions: Ints, how: Resampling, *, is_share: bool = False) -> Spread:
    """Summarize the values of one score.

    Args:
        values: at least one.
        weights: of each value, above 0.
        questions: of each value, the number of its question.
        how: seed, resamples, level.
        is_share: True if the score is a yes or no, so that its mean is a share.
    """
    total, weight = sums(values, weights, questions)
    # Rounding may carry a mean of equal values out of their range.
    mean = float(np.clip(total.sum() / weight.sum(), values.min(), values.max()))
    interval = _interval(total, weight, how)
    if is_share and interval is not None and mean in (0.0, 1.0):
        # No question of five failed: by Clopper and Pearson, the share among all may still be up to 52%.
        exact = stats.binomtest(round(mean * len(total)), len(total)).proportion_ci(how.level)
        interval = Interval(low=float(exact.low), high=float(exact.high))
    deviation = None
    if len(values) > 1:
        # The correction n / (n - 1) makes it the sample variance if all weights are equal.
        variance = float((weights * (values - mean) ** 2).sum() / weights.sum())
        deviation = math.sqrt(variance * len(values) / (len(values) - 1))
    # Only this method knows weights.
    weighted: dict[str, Any] = {"weights": weights, "method": "inverted_cdf"} if np.ptp(weights) else {}
    quartiles = np.quantile(values, (0.25, 0.5, 0.75), **weighted)
    return Spread(
        count=len(values),
        questions=len(total),
        mean=mean,
        interval=interval,
        median=float(quartiles[1]),
        deviation=deviation,
        minimum=float(values.min()),
        lower_quartile=float(quartiles[0]),
        upper_quartile=float(quartiles[2]),
        maximum=float(values.max()),
    )


def paired(before: Floats, after: Floats, weights: Floats, how: Resampling) -> Paired:
    """Compare two values per question.

    Args:
        before: the first value of each question; at least one.
        after: the second.
        weights: of each question, above 0.
        how: seed, resamples, level.
    """
    differences = after - before
    weighted = weights * differences
    p, p_lower, p_higher = _p_values(weighted, how.seed)
    whole = float(weights.sum())
    return Paired(
        count=len(differences),
        changed=int(np.count_nonzero(differences)),
        before=float((weights * before).sum()) / whole,
        after=float((weights * after).sum()) / whole,
        difference=float(weighted.sum()) / whole,
        interval=_interval(weighted, weights, how),
        p=p,
        p_lower=p_lower,
        p_higher=p_higher,
    )


def variation(values: Floats, questions: Ints, how: Resampling) -> Variation | None:
    """Summarize how much the values of one question differ; None if no question has two.

    Args:
        values: of one score.
        questions: of each value, the number of its question.
        how: seed, resamples, level.
    """
    _, places, counts = np.unique(questions, return_inverse=True, return_counts=True)
    means = np.bincount(places, values) / counts
    squares = np.bincount(places, (values - means[places]) ** 2)
    repeated = counts > 1
    if not repeated.any():
        return None
    means, variances = means[repeated], squares[repeated] / (counts[repeated] - 1)
    # The coefficient of variation divides by the mean.
    defined = means != 0
    coefficients = np.sqrt(variances[defined]) / np.abs(means[defined])
    distribution = None
    if len(coefficients):
        distribution = spread(coefficients, np.ones_like(coefficients), np.arange(len(coefficients)), how)
    return Variation(
        questions=int(repeated.sum()),
        mean=float(means.mean()),
        variance=float(variances.mean()),
        coefficient=distribution.mean if distribution else None,
        undefined=int((~defined).sum()),
        coefficients=distribution,
    )


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm 1979), in the given order.

    scipy adjusts for the false discovery rate only (``false_discovery_control``); a gate needs the family-wise rate.
    """
    order = np.argsort(probabilities)
    adjusted = np.array(probabilities, float)
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * adjusted[order]), 1.0)
    return [*map(float, adjusted)]


def sums(values: Floats, weights: Floats, questions: Ints) -> tuple[Floats, Floats]:
    """Return, per question that occurs, the sum of weight times value and the sum of the weights."""
    _, places = np.unique(questions, return_inverse=True)
    return _summed(places, weights * values), _summed(places, weights)


def _interval(total: Floats, weight: Floats, how: Resampling) -> Interval | None:
    """Return the interval of ``sum(total) / sum(weight)`` over questions drawn with replacement.

    Args:
        total: per question, the sum of weight times value.
        weight: per question, the sum of the weights.
        how: seed, resamples, level.
    """
    if len(total) < 2:
        return None
    random = np.random.default_rng(how.seed)
    total, weight = _blocks(total, weight, _MAX_UNITS, random)

    def ratio(total: Floats, weight: Floats, axis: int = -1) -> Any:
        return total.sum(axis=axis) / weight.sum(axis=axis)

    # BCa is undefined if all questions have the same value, or one outweighs all others.
    for method in ("BCa", "percentile"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of such a sample
            found = stats.bootstrap(
                (total, weight),
                ratio,
                paired=True,
                vectorized=True,
                n_resamples=how.resamples,
                batch=max(1, _BATCH_CELLS // len(total)),
                confidence_level=how.level,
                method=method,
                rng=random,
            ).confidence_interval
        if np.isfinite([found.low, found.high]).all():
            break
    return Interval(low=float(found.low), high=float(found.high))


def _p_values(weighted: Floats, seed: int) -> tuple[float, float, float]:
    """Return the p-values of a sum when signs are random: two-sided, lower, higher."""
    random = np.random.default_rng(seed)
    values = weighted[weighted != 0]
    if not len(values):
        return 1.0, 1.0, 1.0
    values, _ = _blocks(values, values, _MAX_FLIPPED, random)
    observed, rounding = values.sum(), 1e-12 * float(np.abs(values).sum())
    lower = higher = 1.0
    for permutations in (_PERMUTATIONS, _MORE_PERMUTATIONS):
        is_exact = 2 ** len(values) <= permutations
        if is_exact:
            # All patterns of signs: the bits of the numbers from 0 to 2^n - 1. The observed one is among them.
            drawn = ((np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1) * 2 - 1) @ values
        else:
            # The observed pattern counts as one of them.
            drawn = np.full(permutations + 1, observed)
            batch = max(1, _BATCH_CELLS // len(values))
            for start in range(0, permutations, batch):
                shape = (min(batch, permutations - start), len(values))
                # As floats, because numpy multiplies matrices of integers ten times slower.
                signs = random.integers(0, 2, shape, dtype=np.int8).astype(np.float64) * 2 - 1
                drawn[start : start + len(signs)] = signs @ values
        lower = float((drawn <= observed + rounding).mean())
        higher = float((drawn >= observed - rounding).mean())
        # So few patterns as extreme as the observed one say only roughly how many there are.
        if is_exact or min(lower, higher) * permutations >= _MIN_HITS:
            break
    # Sums under random signs are distributed symmetrically.
    return min(1.0, 2 * min(lower, higher)), lower, higher


def _blocks(total: Floats, weight: Floats, most: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Return sums over at most ``most`` random blocks of questions."""
    if len(total) <= most:
        return total, weight
    places = random.permutation(len(total)) % most
    return _summed(places, total), _summed(places, weight)


def _summed(places: Ints, values: Floats) -> Floats:
    return np.bincount(places, values).astype(np.float64, copy=False)
