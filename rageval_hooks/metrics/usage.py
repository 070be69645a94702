"""What a turn took: time, tokens, money."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.score import Result

__all__ = ["Cost", "Latency", "Tokens"]

_SOURCE = "seed 001"


class Latency(Metric):
    """Seconds that the turn took, as a whole and by its parts."""

    name: ClassVar[str] = "latency"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = tuple(
        ScoreDefinition(name=name, description=description, direction="lower", high=None, unit="s")
        for name, description in (
            ("latency", "seconds from the start of the turn to its end"),
            ("latency.retrieval", "seconds during which a retriever ran"),
            ("latency.generation", "seconds during which a model wrote"),
            ("latency.time_to_first_token", "seconds from the start to the first token of a streamed answer"),
        )
    )
    requires: ClassVar[tuple[Field, ...]] = ("timing",)
    family: ClassVar[str] = "usage"
    source: ClassVar[str] = _SOURCE
    default: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Iterable[Result]:
        """Return the total, and the parts that there were."""
        timing = analysis.turn.timing
        if timing is None:
            return
        yield self.score(timing.total)
        for part in ("retrieval", "generation", "time_to_first_token"):
            value = getattr(timing, part)
            if value is not None:
                yield self.score(max(0.0, value), f"latency.{part}")  # clocks are set back


class Tokens(Metric):
    """Tokens read and written: the provider's own count, else query and context, and response, by tiktoken."""

    name: ClassVar[str] = "tokens"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = tuple(
        ScoreDefinition(name=name, description=description, direction="lower", high=None, unit="tokens")
        for name, description in (
            ("tokens", "tokens read and written"),
            ("tokens.input", "tokens read"),
            ("tokens.output", "tokens written"),
        )
    )
    family: ClassVar[str] = "usage"
    source: ClassVar[str] = _SOURCE
    default: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Iterable[Result]:
        """Return the sum and its two parts."""
        usage = analysis.usage
        for name, value in (
            ("tokens", usage.total_tokens),
            ("tokens.input", usage.input_tokens),
            ("tokens.output", usage.output_tokens),
        ):
            yield self.score(value, name, explanation=_COUNTED_BY[usage.source], metadata={"source": usage.source})


class Cost(Metric):
    """US dollars: the turn's tokens at a fixed rate.

    Args:
        rate_per_1k: US dollars for 1,000 tokens, read or written.

    Raises:
        ConfigurationError: the rate is negative or not finite.
    """

    name: ClassVar[str] = "cost"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="cost", description="price of the tokens", direction="lower", high=None, unit="USD"),
    )
    family: ClassVar[str] = "usage"
    source: ClassVar[str] = _SOURCE
    default: ClassVar[bool] = True

    def __init__(self, rate_per_1k: float = 0.0005) -> None:
        if not 0 <= rate_per_1k < math.inf:
            raise ConfigurationError(f"rate_per_1k is a price, 0 or more, and {rate_per_1k} is not")
        self.rate_per_1k = rate_per_1k

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the price."""
        usage = analysis.usage
        return self.score(
            usage.total_tokens / 1000 * self.rate_per_1k,
            explanation=f"{usage.total_tokens} tokens at {self.rate_per_1k:g} USD / 1,000; {_COUNTED_BY[usage.source]}",
            metadata={"source": usage.source, "rate_per_1k": self.rate_per_1k},
        )


_COUNTED_BY = {
    "provider": "counted by the provider",
    "tiktoken": "estimated with tiktoken",
    "characters": "estimated from the number of characters",
}
