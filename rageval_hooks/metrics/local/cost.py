"""``cost``: the price of a turn's tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, Self

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.prices import load_prices
from rageval_hooks.metrics.base import LocalMetric, ScoreDefinition
from rageval_hooks.metrics.local.tokens import COUNTED_BY
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.score import Result
from rageval_hooks.settings import Settings
from rageval_hooks.turn import Step, Turn, Usage

_OTHERWISE = "set cost_rate (RAGEVAL_COST_RATE) to USD for 1,000 tokens to have a cost"
_MAX_NAME = 60


@dataclass(frozen=True, kw_only=True)
class _PricedCall:
    """One model call, or several of the same model: what is priced together."""

    usage: Usage
    model: str | None
    provider: str | None


class Cost(LocalMetric):
    """US dollars: the turn's tokens at the prices of its models, or at a fixed rate.

    The prices are those of the package genai-prices. A turn of which one model has no known price is skipped: a sum
    without it, or with a made-up rate, would look exact and be wrong.

    Args:
        rate_per_1k: US dollars for 1,000 tokens, read or written; None for the prices of the models.

    Raises:
        ConfigurationError: the rate is negative or not finite.
    """

    name: ClassVar[str] = "cost"
    version: ClassVar[str] = "4"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="cost", description="price of the tokens", direction="lower", high=None, unit="USD"),
    )
    family: ClassVar[str] = "usage"
    source: ClassVar[str] = "genai-prices; the fixed rate: RAG Evaluation Pipeline (Lite)"
    default: ClassVar[bool] = True

    def __init__(self, rate_per_1k: float | None = None) -> None:
        if rate_per_1k is not None and not 0 <= rate_per_1k < math.inf:
            raise ConfigurationError(f"rate_per_1k must be a price, 0 or more, not {rate_per_1k}")
        self.rate_per_1k = rate_per_1k

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Make the metric with the setting ``cost_rate``."""
        return cls(settings.cost_rate)

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the price; skipped if it is not known.

        Raises:
            ModelNotReadyError: the prices are still loading, and the analysis does not wait.
        """
        if self.rate_per_1k is not None:
            return self._at_fixed_rate(analysis.usage, self.rate_per_1k)
        calls = _priced_calls(analysis)
        reason = next(filter(None, map(_why_no_price, calls)), None)
        if reason is not None:
            return self.skip(f"{reason}: {_OTHERWISE}")
        prices = load_prices().get(wait=analysis.wait)
        total = 0.0
        for call in calls:
            price = prices(call.usage, call.model or "", provider=call.provider)
            if price is None:
                return self.skip(f"the price of {_shown(call)} is not known: {_OTHERWISE}")
            total += price
        models = ", ".join(dict.fromkeys(map(_shown, calls)))
        return self._score(total, analysis.usage, f"at the price of {models}", {"prices": "genai-prices"})

    def _at_fixed_rate(self, usage: Usage, rate: float) -> Result:
        return self._score(
            usage.total_tokens / 1000 * rate, usage, f"at {rate:g} USD / 1,000", {"rate_per_1k": self.rate_per_1k}
        )

    def _score(self, value: float, usage: Usage, rate: str, metadata: dict[str, Any]) -> Result:
        return self.score(
            value,
            explanation=f"{usage.total_tokens} tokens {rate}; {COUNTED_BY[usage.source]}",
            metadata={"source": usage.source, **metadata},
        )


def _priced_calls(analysis: TurnAnalysis) -> list[_PricedCall]:
    """Return the tokens of a turn by model: each model call with its own count, else all tokens as the answer's."""
    turn, usage = analysis.turn, analysis.usage
    calls = list(filter(None, map(_priced_call, turn.steps)))
    counted = sum(call.usage.total_tokens for call in calls)
    # An estimate of the turn as a whole, or a count of more than its steps show: they do not add up to it.
    if calls and counted == usage.total_tokens:
        return calls
    return [_PricedCall(usage=usage, model=turn.model, provider=_provider_of_answer(turn))]


def _priced_call(step: Step) -> _PricedCall | None:
    """Return the tokens of a model call; None for other steps, and for a call without a count."""
    if step.kind != "llm" or step.usage is None:
        return None
    return _PricedCall(usage=step.usage, model=step.model, provider=step.provider)


def _provider_of_answer(turn: Turn) -> str | None:
    """Return who serves the model that wrote the answer; None if no step says it."""

    def wrote_answer(step: Step) -> bool:
        return step.kind == "llm" and step.model == turn.model and step.provider is not None

    # The answer is written last: an earlier call may have used the same model of another provider.
    step = next(filter(wrote_answer, reversed(turn.steps)), None)
    return step.provider if step else None


def _why_no_price(call: _PricedCall) -> str | None:
    """Return why the price of a call cannot be looked up; None if it can."""
    if not call.model:
        return "the turn does not say which model was called"
    # The same open model has many prices, and a server of one's own may call its model by any name.
    if not call.provider:
        return f"the turn does not say who serves the model {call.model[:_MAX_NAME]!r}"
    if not _has_price_list():
        return 'the price list is not installed (pip install "rageval-hooks[prices]")'
    return None


@cache
def _has_price_list() -> bool:
    return find_spec("genai_prices") is not None


def _shown(call: _PricedCall) -> str:
    return f"{(call.model or '')[:_MAX_NAME]} ({(call.provider or '')[:_MAX_NAME]})"
