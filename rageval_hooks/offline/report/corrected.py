"""The share of bad answers where a judge saw only a sample: the local verdicts of all answers, corrected by it.

The local verdict sorts the answers, and the judged ones of each sort say how many of it are bad. That is
prediction-powered inference for a prediction with few values, where the best correction is the share within each value
(post-stratification). The interval draws these shares from their posteriors under Jeffreys' prior. The normal
interval of ppi-python is too narrow where few judged answers are bad or those that look good are seldom judged: of 50
such answers, it held the truth in 63% of the weeks that ``benchmarks/corrected_share.py --sets`` simulates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rageval_hooks.offline.report.statistics import Interval, Resampling
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.text.formatting import format_share

MIN_JUDGED = 50
"""Judged answers from which the intervals hold what they promise: see benchmarks/corrected_share.py."""
_JEFFREYS = 0.5
_DRAWS = 20_000


class CorrectedShare(Data):
    """The share of bad answers among all, by the local verdicts and a judged sample.

    Attributes:
        answers: number of answers, without those that nobody could evaluate.
        judged: how many of them were judged, or labelled by people.
        by_people: True if people labelled them.
        share: of bad answers; None if no answer with one of the local verdicts was judged.
        interval: of the share; None with fewer than 50 judged answers.
        plain: number of judged answers that give the same certainty without the local verdicts; None without an
            interval.
    """

    answers: int
    judged: int
    by_people: bool = False
    share: float | None = None
    interval: Interval | None = None
    plain: int | None = None

    def sentence(self) -> str:
        """Return the figures in one sentence that may be said aloud."""
        done = "labelled by people" if self.by_people else "judged"
        judged = f"{self.judged:,} of them {'was' if self.judged == 1 else 'were'} {done}"
        if self.share is None:
            return (
                f"How many of {self.answers:,} answers were bad is not known: {judged}, but none with one of the local "
                "verdicts."
            )
        bad = f"{format_share(self.share)} of {self.answers:,} answers were bad"
        if self.interval is None:
            return f"About {bad}; {judged}, and below {MIN_JUDGED} there is no interval."
        low, high = format_share(self.interval.low), format_share(self.interval.high)
        more = ""
        if self.plain is not None and self.plain > self.judged:
            more = f"; without the local verdicts the same certainty would have taken {self.plain:,}"
        return f"{bad}, between {low} and {high}; {judged}{more}."


@dataclass(slots=True)
class _Sort:
    """Sums over the answers with one local verdict: all of them, then those that were judged, with their weights."""

    count: int = 0
    weight: float = 0.0
    judged: int = 0
    judged_weight: float = 0.0
    judged_squares: float = 0.0
    bad_weight: float = 0.0


class JudgedSample:
    """Collects the local verdicts of all answers, and the judge's or people's of some.

    Args:
        by_people: True if people labelled a sample. It is one even if they labelled every answer.
    """

    def __init__(self, *, by_people: bool = False) -> None:
        self._sorts: dict[str, _Sort] = {}
        self._by_people = by_people
        self._lowest = 1.0

    def add(self, local: str, judged: bool | None, *, turn: float = 1.0, judge: float = 1.0) -> None:
        """Add an answer.

        Args:
            local: the label of its local verdict; empty without one.
            judged: True if the judge, or people, call it bad, False if not; None if it was not judged.
            turn: with which probability the turn was evaluated.
            judge: with which probability it was evaluated and judged.
        """
        found = self._sorts.setdefault(local, _Sort())
        found.count += 1
        found.weight += 1 / turn
        if judged is not None:
            self._lowest = min(self._lowest, judge / turn)
            found.judged += 1
            found.judged_weight += 1 / judge
            found.judged_squares += 1 / judge**2
            found.bad_weight += judged / judge

    @property
    def judged(self) -> int:
        """How many answers were judged."""
        return sum(found.judged for found in self._sorts.values())

    @property
    def is_sample(self) -> bool:
        """True if the judge was to see a part of the answers only, or if people labelled some."""
        return self._by_people or self._lowest < 1

    def share(self, how: Resampling) -> CorrectedShare | None:
        """Return the corrected share of bad answers; None if there is no sample.

        Args:
            how: seed and level of the interval.
        """
        if not self.is_sample:
            return None
        # An answer that declines is not bad, and the judge is not asked about it. What nobody evaluated is left out.
        sorts = {
            local: found for local, found in self._sorts.items() if found.judged or local not in ("", "not_evaluable")
        }
        answers, judged = (sum(getattr(found, name) for found in sorts.values()) for name in ("count", "judged"))
        about: Any = {"answers": answers, "judged": judged, "by_people": self._by_people}
        weight = sum(found.weight for found in sorts.values())
        random = np.random.default_rng(how.seed)
        # How many answers of each sort there are is itself a sample of the traffic.
        sizes = random.dirichlet([answers * found.weight / weight for found in sorts.values()], _DRAWS)
        drawn, share = np.zeros(_DRAWS), 0.0
        for size, (local, found) in zip(sizes.T, sorts.items(), strict=True):
            if not found.judged:
                if local == "declined":
                    continue
                return CorrectedShare(**about)
            bad = found.bad_weight / found.judged_weight
            # Unequal weights tell less than as many equal ones (Kish 1965).
            told = found.judged_weight**2 / found.judged_squares
            share += bad * found.weight / weight
            drawn += size * random.beta(told * bad + _JEFFREYS, told * (1 - bad) + _JEFFREYS, _DRAWS)
        if judged < MIN_JUDGED:
            return CorrectedShare(**about, share=share)
        tail = (1 - how.level) / 2
        low, high = map(float, np.quantile(drawn, (tail, 1 - tail)))
        plain = math.ceil(share * (1 - share) / float(drawn.var()))
        interval = Interval(low=low, high=high)
        return CorrectedShare(**about, share=share, interval=interval, plain=plain)
