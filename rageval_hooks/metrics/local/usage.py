"""What a turn used: ``latency``, ``tokens`` and ``cost``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any, ClassVar, Final, NamedTuple

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.prices import load_prices
from rageval_hooks.metrics.base import LocalMetric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.plugins import Option
from rageval_hooks.score import Result
from rageval_hooks.settings import Amount
from rageval_hooks.turn import Usage, UsageSource

COUNTED_BY: Final[Mapping[UsageSource, str]] = {
    "provider": "counted by the provider",
    "tiktoken": "estimated with tiktoken",
    "characters": "estimated from the number of characters",
}
"""How explanations say who counted the tokens."""

_OTHERWISE: Final = "set cost_rate (RAGEVAL_COST_RATE) to USD for 1,000 tokens to have a cost"
_MAX_NAME: Final = 60


def _definition(name: str, description: str, unit: str) -> ScoreDefinition:
    return ScoreDefinition(name=name, description=description, direction="lower", high=None, unit=unit)


class Latency(LocalMetric):
    """Seconds that the turn took, as a whole and by its parts."""

    name = "latency"
    scores = (
        _definition("latency", "seconds from the start of the turn to its end", "s"),
        _definition("latency.retrieval", "seconds during which a retriever ran", "s"),
        _definition("latency.generation", "seconds during which a model wrote", "s"),
        _definition(
            "latency.time_to_first_token", "seconds from the start to the first token of a streamed answer", "s"
        ),
    )
    requires = ("timing",)
    family = "usage"
    source = "RAG Evaluation Pipeline (Lite)"
    default = True

    def evaluate(self, analysis: TurnAnalysis) -> Iterable[Result]:
        """Return the total, and the parts that were timed."""
        timing = analysis.turn.timing
        assert timing is not None  # noqa: S101 - it is required
        yield self.score(timing.total)
        for part in ("retrieval", "generation", "time_to_first_token"):
            seconds = getattr(timing, part)
            if seconds is not None:
                # A clock that is set back gives negative times.
                yield self.score(max(0.0, seconds), f"latency.{part}")


class Tokens(LocalMetric):
    """Tokens read and written: the provider's own count, else an estimate by tiktoken.

    The score is the sum over the turn's model calls, as in the trace. A call that the provider has not counted is
    estimated from its prompt and its text. Without calls, the query and the passages of the prompt count as read, and
    the response as written.
    """

    name = "tokens"
    version = "4"
    scores = (
        _definition("tokens", "tokens read and written", "tokens"),
        _definition("tokens.input", "tokens read", "tokens"),
        _definition("tokens.output", "tokens written", "tokens"),
    )
    family = "usage"
    source = "RAG Evaluation Pipeline (Lite)"
    default = True

    def evaluate(self, analysis: TurnAnalysis) -> Iterable[Result]:
        """Return the sum and its two parts."""
        usage = analysis.usage
        counts = (usage.total_tokens, usage.input_tokens, usage.output_tokens)
        for score, count in zip(self.scores, counts, strict=True):
            yield self.score(count, score.name, explanation=COUNTED_BY[usage.source], metadata={"source": usage.source})


class Cost(LocalMetric):
    """US dollars: the turn's tokens at the prices of its models, or at a fixed rate.

    The prices are those of the package genai-prices. A turn of which one model has no known price is skipped: a sum
    without it, or with a made-up rate, would look exact and be wrong.

    Args:
        rate_per_1k: US dollars for 1,000 tokens, read or written; None for the setting ``cost_rate``, else for the
            prices of the models.

    Raises:
        ConfigurationError: the rate is negative or not finite.
    """

    name = "cost"
    version = "5"
    scores = (_definition("cost", "price of the tokens", "USD"),)
    family = "usage"
    source = "genai-prices; the fixed rate: RAG Evaluation Pipeline (Lite)"
    default = True
    options: ClassVar = {
        "cost_rate": Option(
            keyword="rate_per_1k",
            type=Amount | None,
            about="a fixed price of 1,000 input or output tokens, in USD, for the score `cost`. None for the known "
            'prices of the models, from the package genai-prices (`pip install "rageval-hooks[prices]"`).',
            valid="USD for 1,000 tokens, 0 or more",
        )
    }

    def __init__(self, rate_per_1k: float | None = None) -> None:
        if rate_per_1k is not None and not 0 <= rate_per_1k < math.inf:
            raise ConfigurationError(f"rate_per_1k must be a price, 0 or more, not {rate_per_1k}")
        self.rate_per_1k = rate_per_1k

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the price; skipped if it is not known.

        Raises:
            ModelNotReadyError: the prices are still loading, and the analysis does not wait.
        """
        usage, rate = analysis.usage, self.rate_per_1k
        if rate is not None:
            value, how = usage.total_tokens / 1000 * rate, f"at {rate:g} USD / 1,000"
            return self._cost(value, usage, how, {"rate_per_1k": rate})
        total, names = 0.0, []
        for call in _priced_calls(analysis):
            model, provider = call.model, call.provider
            name, price = f"{model[:_MAX_NAME]} ({provider[:_MAX_NAME]})", None
            if not model:
                reason = "the turn does not say which model was called"
            # The same open model has many prices, and a server of one's own may call its model by any name.
            elif not provider:
                reason = f"the turn does not say who serves the model {model[:_MAX_NAME]!r}"
            elif find_spec("genai_prices") is None:
                reason = 'the price list is not installed (pip install "rageval-hooks[prices]")'
            else:
                reason = f"the price of {name} is not known"
                price = load_prices().get(wait=analysis.wait)(call.usage, model, provider=provider)
            if price is None:
                return self.skip(f"{reason}: {_OTHERWISE}")
            total += price
            names.append(name)
        how = f"at the price of {', '.join(dict.fromkeys(names))}"
        return self._cost(total, usage, how, {"prices": "genai-prices"})

    def _cost(self, value: float, usage: Usage, how: str, metadata: dict[str, Any]) -> Result:
        return self.score(
            value,
            explanation=f"{usage.total_tokens} tokens {how}; {COUNTED_BY[usage.source]}",
            metadata={"source": usage.source, **metadata},
        )


class _PricedCall(NamedTuple):
    """The tokens of a model call, with the names of its model and provider; an unknown name is empty."""

    usage: Usage
    model: str
    provider: str


def _priced_calls(analysis: TurnAnalysis) -> list[_PricedCall]:
    """Return the model calls with their own counts, else all tokens as the answer's."""
    turn, usage = analysis.turn, analysis.usage
    llm_steps = [step for step in turn.steps if step.kind == "llm"]
    calls = [_PricedCall(step.usage, step.model or "", step.provider or "") for step in llm_steps if step.usage]
    # An estimate of the turn as a whole, or a count of more than its steps show: they do not add up to it.
    if calls and sum(call.usage.total_tokens for call in calls) == usage.total_tokens:
        return calls
    # The answer is written last: an earlier call may have used the same model of another provider.
    providers = [step.provider for step in llm_steps if step.model == turn.model and step.provider]
    return [_PricedCall(usage, turn.model or "", providers[-1] if providers else "")]
