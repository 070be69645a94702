"""``cost``: the price of a turn's tokens."""

from __future__ import annotations

import math
from typing import ClassVar

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import LocalMetric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.metrics.support.usage_source import COUNTED_BY
from rageval_hooks.score import Result

__all__ = ["Cost"]


class Cost(LocalMetric):
    """US dollars: the turn's tokens at a fixed rate.

    Args:
        rate_per_1k: US dollars for 1,000 tokens, read or written.

    Raises:
        ConfigurationError: the rate is negative or not finite.
    """

    name: ClassVar[str] = "cost"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="cost", description="price of the tokens", direction="lower", high=None, unit="USD"),
    )
    family: ClassVar[str] = "usage"
    source: ClassVar[str] = "seed 001"
    default: ClassVar[bool] = True

    def __init__(self, rate_per_1k: float = 0.0005) -> None:
        if not 0 <= rate_per_1k < math.inf:
            raise ConfigurationError(f"rate_per_1k must be a price, 0 or more, not {rate_per_1k}")
        self.rate_per_1k = rate_per_1k

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the price."""
        usage = analysis.usage
        return self.score(
            usage.total_tokens / 1000 * self.rate_per_1k,
            explanation=f"{usage.total_tokens} tokens at {self.rate_per_1k:g} USD / 1,000; {COUNTED_BY[usage.source]}",
            metadata={"source": usage.source, "rate_per_1k": self.rate_per_1k},
        )
