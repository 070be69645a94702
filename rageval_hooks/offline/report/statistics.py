"""Means, intervals and paired tests, seeded, over questions: repeated answers to one are not independent.

The interval is the bias-corrected and accelerated bootstrap (Efron 1987) of a ratio estimator; the test flips the signs
of the differences (Fisher's permutation test for pairs), in all ways for few questions, else at random, and what is too
rare for that is bounded after Chernoff (1952); several tests together are adjusted after Holm (1979).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from pydantic import Field

from rageval_hooks.runtime.jsonable import Data

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Interval", "Paired", "Resampling", "Spread", "Variation", "holm", "paired", "spread", "sums", "variation"]

_MOST_UNITS = 10_000
"""Beyond so many questions, random blocks of them are resampled: the same interval, in bounded time."""

_MOST_FLIPPED = 2_000
_MOST_EXACT = 20
_FLIPS = 10_000
_MORE_FLIPS, _MOST_FLIPS_CELLS = 200_000, 40_000_000
_FEW_HITS = 20
"""Of fewer hits among the first flips, more are drawn: the rarer something is, the more it takes to say how rare."""

_CELLS = 2_000_000


class Interval(Data):
    """Bounds that hold the true mean with the stated level of confidence."""

    low: float
    high: float


class Resampling(Data):
    """How intervals and tests are made.

    Attributes:
        level: of confidence of the intervals.
        resamples: how many samples the bootstrap draws.
        seed: of the random numbers: the same seed, the same report.
    """

    level: float = Field(default=0.95, gt=0.5, lt=1)
    resamples: int = Field(default=2000, ge=100, le=1_000_000)
    seed: int = Field(default=0, ge=0)


class Spread(Data):
    """How the values of a score are distributed; each counts with 1 / the probability of having been sampled.

    Attributes:
        count: how many values.
        questions: how many questions they are about.
        mean: their weighted mean.
        interval: of the mean; None for fewer than two questions.
        median: half of the weight lies on either side.
        deviation: standard deviation; None for fewer than two values.
        minimum: the least value.
        lower_quartile: a quarter of the weight lies below.
        upper_quartile: a quarter of the weight lies above.
        maximum: the greatest value.
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
        count: how many questions both have a value for.
        changed: how many of them have different values.
        before: mean of the first.
        after: mean of the second.
        difference: ``after - before``.
        interval: of the difference; None for fewer than two questions.
        p: probability of a difference at least as large, in either direction, if nothing had changed.
        p_lower: probability of one at least as low.
        p_higher: probability of one at least as high.
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
    """How much a score differs between the answers to one and the same question.

    Attributes:
        questions: how many have at least two values.
        mean: mean over these questions of their mean.
        variance: mean over questions of the (sample) variance.
        coefficient: mean over questions of standard deviation / absolute mean; None where no question has one.
        undefined: questions whose mean is 0, and that have no coefficient for it.
        coefficients: how the coefficients are distributed over the questions.
    """

    questions: int
    mean: float
    variance: float
    coefficient: float | None
    undefined: int
    coefficients: Spread | None = None


def spread(values: Floats, weights: Floats, questions: Ints, how: Resampling) -> Spread:
    """Summarize the values of one score.

    Args:
        values: at least one.
        weights: of each value, above 0.
        questions: of each value, a number for its question.
        how: seed, resamples, level.
    """
    import numpy as np

    total, weight = sums(values, weights, questions)
    mean = _within(float(total.sum() / weight.sum()), values)
    deviation = None
    if len(values) > 1:
        variance = float((weights * (values - mean) ** 2).sum() / weights.sum())
        deviation = math.sqrt(variance * len(values) / (len(values) - 1))
    lower, median, upper = _quantiles(values, weights, (0.25, 0.5, 0.75))
    return Spread(
        count=len(values),
        questions=len(total),
        mean=mean,
        interval=_interval(total, weight, how),
        median=median,
        deviation=deviation,
        minimum=float(np.min(values)),
        lower_quartile=lower,
        upper_quartile=upper,
        maximum=float(np.max(values)),
    )


def paired(before: Floats, after: Floats, weights: Floats, how: Resampling) -> Paired:
    """Compare two values per question.

    Args:
        before: the first value of each question; at least one.
        after: the second.
        weights: of each question, above 0.
        how: seed, resamples, level.
    """
    import numpy as np

    differences = after - before
    weighed = weights * differences
    p, p_lower, p_higher = _sign_flips(weighed, how.seed)
    whole = float(weights.sum())
    return Paired(
        count=len(differences),
        changed=int(np.count_nonzero(differences)),
        before=float((weights * before).sum()) / whole,
        after=float((weights * after).sum()) / whole,
        difference=float(weighed.sum()) / whole,
        interval=_interval(weighed, weights, how),
        p=p,
        p_lower=p_lower,
        p_higher=p_higher,
    )


def variation(values: Floats, questions: Ints, how: Resampling) -> Variation | None:
    """Say how much the values of one question differ; None where no question has two.

    Args:
        values: of one score.
        questions: of each value, a number for its question.
        how: seed, resamples, level.
    """
    import numpy as np

    _, places, counts = np.unique(questions, return_inverse=True, return_counts=True)
    means = np.bincount(places, values) / counts
    squares = np.bincount(places, (values - means[places]) ** 2)
    several = counts > 1
    if not several.any():
        return None
    means, variances = means[several], squares[several] / (counts[several] - 1)
    defined = means != 0
    coefficients = np.sqrt(variances[defined]) / np.abs(means[defined])
    over = (
        spread(coefficients, np.ones_like(coefficients), np.arange(len(coefficients)), how)
        if len(coefficients)
        else None
    )
    return Variation(
        questions=int(several.sum()),
        mean=float(means.mean()),
        variance=float(variances.mean()),
        coefficient=over.mean if over else None,
        undefined=int((~defined).sum()),
        coefficients=over,
    )


def holm(probabilities: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for there being several of them (Holm 1979), in the given order."""
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__)
    adjusted = [1.0] * len(probabilities)
    highest = 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * probabilities[index]))
        adjusted[index] = highest
    return adjusted


def sums(values: Floats, weights: Floats, questions: Ints) -> tuple[Floats, Floats]:
    """Return, per question that occurs, the sum of weight times value and the sum of the weights."""
    import numpy as np

    _, places = np.unique(questions, return_inverse=True)
    return _added(places, weights * values), _added(places, weights)


def _interval(total: Floats, weight: Floats, how: Resampling) -> Interval | None:
    """The interval of ``sum(total) / sum(weight)``, over questions drawn with replacement."""
    import numpy as np

    if len(total) < 2:
        return None
    random = np.random.default_rng(how.seed)
    total, weight = _blocks(total, weight, _MOST_UNITS, random)
    ratios = total / weight
    if np.ptp(ratios) <= 1e-12 * max(1.0, float(np.abs(ratios).max())):  # nothing to resample
        middle = float(total.sum() / weight.sum())
        return Interval(low=middle, high=middle)
    drawn = np.concatenate(
        [
            total[chosen].sum(axis=1) / weight[chosen].sum(axis=1)
            for chosen in (random.integers(0, len(total), shape) for shape in _shapes(how.resamples, len(total)))
        ]
    )
    low, high = np.quantile(drawn, _levels(drawn, total, weight, how.level))
    return Interval(low=float(low), high=float(high))


def _levels(drawn: Floats, total: Floats, weight: Floats, level: float) -> list[float]:
    """Which quantiles of the drawn means are the bounds: corrected for bias and acceleration."""
    import numpy as np

    normal = NormalDist()
    middle = total.sum() / weight.sum()
    below = float((drawn < middle).mean() + (drawn == middle).mean() / 2)
    edge = 0.5 / len(drawn)
    bias = normal.inv_cdf(min(1 - edge, max(edge, below)))
    rest = weight.sum() - weight  # the jackknife; one that outweighs all the others by far leaves nothing
    without = np.divide(total.sum() - total, rest, out=np.full_like(total, middle), where=rest > 0)
    away = without.mean() - without
    scale = float((away**2).sum()) ** 1.5
    acceleration = float((away**3).sum()) / (6 * scale) if scale > 0 else 0.0
    levels = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        shifted = bias + normal.inv_cdf(tail)
        slope = 1 - acceleration * shifted
        levels.append(normal.cdf(bias + shifted / slope) if slope > 0 else tail)
    return [float(np.clip(value, 0.0, 1.0)) for value in levels]


def _sign_flips(weighed: Floats, seed: int) -> tuple[float, float, float]:
    """The p-values of a sum under random signs: two-sided, lower, higher. Exact for few questions."""
    import numpy as np

    values = weighed[weighed != 0]
    if not len(values):
        return 1.0, 1.0, 1.0
    random = np.random.default_rng(seed)
    values, _ = _blocks(values, np.ones_like(values), _MOST_FLIPPED, random)
    found = float(values.sum())
    slack = 1e-12 * float(np.abs(values).sum())
    if len(values) <= _MOST_EXACT:
        whole = 2 ** len(values)
        both, lower, higher = (hits / whole for hits in _hits(_all_sums(values), found, slack))
        return both, lower, higher
    bound = _tail_bound(np.abs(values), abs(found) - slack)
    both, lower, higher = _random_shares(values, found, slack, bound, random)
    if found < 0:
        return min(both, 2 * bound), min(lower, bound), higher
    return min(both, 2 * bound), lower, min(higher, bound)


def _random_shares(values: Floats, found: float, slack: float, bound: float, random: Any) -> Iterator[float]:
    """The shares of random signs that give such a sum, of more of them where it is rare and not known to be rarer."""
    counts = _random_hits(values, found, slack, _FLIPS, random)
    drawn, more = _FLIPS, min(_MORE_FLIPS, _MOST_FLIPS_CELLS // len(values))
    if min(counts) < _FEW_HITS and bound > 1 / more:
        counts, drawn = _random_hits(values, found, slack, more, random), more
    return ((count + 1) / (drawn + 1) for count in counts)  # the observed signs are one of the possible ones


def _random_hits(values: Floats, found: float, slack: float, flips: int, random: Any) -> list[int]:
    import numpy as np

    counts = [0, 0, 0]
    for shape in _shapes(flips, len(values)):
        flipped = (1 - 2 * random.integers(0, 2, shape, np.int8)) @ values
        counts = [count + hits for count, hits in zip(counts, _hits(flipped, found, slack), strict=True)]
    return counts


def _hits(flipped: Floats, found: float, slack: float) -> tuple[int, int, int]:
    """How many sums are as far from 0 as the one that was found, as low, as high."""
    import numpy as np

    as_far, as_low, as_high = np.abs(flipped) >= abs(found) - slack, flipped <= found + slack, flipped >= found - slack
    return int(as_far.sum()), int(as_low.sum()), int(as_high.sum())


def _all_sums(values: Floats) -> Floats:
    """The sums under all patterns of signs."""
    import numpy as np

    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate((sums + value, sums - value))
    return sums


def _tail_bound(sizes: Floats, least: float) -> float:
    """What the probability of a sum of at least ``least`` under random signs cannot exceed (Chernoff 1952).

    The bound holds for every tilt; the best of many is taken. Where all signs are alike it is the probability itself,
    one in two to the number of questions.
    """
    import numpy as np

    least, sizes = least / sizes.max(), sizes / sizes.max()
    tilts = np.logspace(-3, 6, 181)[:, None] / math.sqrt((sizes**2).mean())
    tilted = tilts * sizes
    logarithms = (tilted + np.log1p(np.exp(-2 * tilted)) - math.log(2)).sum(axis=1) - tilts[:, 0] * least
    return min(1.0, max(sys.float_info.min, math.exp(float(logarithms.min()))))


def _blocks(total: Floats, weight: Floats, most: int, random: Any) -> tuple[Floats, Floats]:
    if len(total) <= most:
        return total, weight
    places = random.permutation(len(total)) % most
    return _added(places, total), _added(places, weight)


def _added(places: Any, values: Floats) -> Floats:
    import numpy as np

    return np.bincount(places, values).astype(np.float64, copy=False)


def _shapes(rows: int, columns: int) -> list[tuple[int, int]]:
    """Shapes of matrices of bounded size that have so many rows together."""
    at_once = max(1, _CELLS // columns)
    whole, rest = divmod(rows, at_once)
    return [(at_once, columns)] * whole + ([(rest, columns)] if rest else [])


def _quantiles(values: Floats, weights: Floats, shares: Sequence[float]) -> list[float]:
    """Quantiles, interpolated where all values weigh the same, else the first value that reaches the share."""
    import numpy as np

    if np.ptp(weights) == 0:
        return [float(value) for value in np.quantile(values, shares)]
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    places = np.searchsorted(reached, np.asarray(shares) * reached[-1])
    return [float(values[order[min(place, len(values) - 1)]]) for place in places]


def _within(mean: float, values: Floats) -> float:
    """A mean that rounding has carried out of the range of its values, brought back."""
    return min(float(values.max()), max(float(values.min()), mean))
