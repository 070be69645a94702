"""The judge of a command: how many requests it gets at a time, and how much it may use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.base import REGISTRY, Admission, BudgetUsedUpError, Judge, RequestGate
from rageval_hooks.judges.prices import price_usd
from rageval_hooks.judges.remote import GatedJudge, RemoteJudge
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.text.wording import counted
from rageval_hooks.turn import Usage

# Judges accept this many requests at a time by default; see `CallPolicy`.
_USUAL_CONCURRENCY = 8


def with_concurrency(judge: str, options: Mapping[str, Any], concurrency: int) -> dict[str, Any]:
    """Return options with which a judge takes so many requests at a time, unless they set a limit themselves.

    Args:
        judge: ``"provider:model"``. Only the judges of this package that send requests have such a limit.
        options: as the user gave them.
        concurrency: requests at a time, at least.
    """
    kind = REGISTRY.builtin().get(judge.partition(":")[0].strip())
    # A judge of a plug-in may not have an option `max_concurrency`.
    is_ours = kind is not None and issubclass(kind, RemoteJudge)
    return {"max_concurrency": max(concurrency, _USUAL_CONCURRENCY), **options} if is_ours else dict(options)


def describe_requests(judge: str, calls: int, input_tokens: int, output_tokens: int) -> str:
    """Return what some requests to a judge take: ``5 requests to openai:m, about 9,000 input tokens, about 0.02 USD``.

    Without a known price there is no cost.
    """
    provider, _, model = judge.partition(":")
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    price = price_usd(usage, model, provider=provider or None)
    cost = "" if price is None else f", about {price:.2f} USD"
    return f"{counted(calls, 'request')} to {judge}, about {input_tokens:,} input tokens{cost}"


class Spent(Data):
    """The calls and the money that a judge has used so far.

    Attributes:
        calls: requests, retries included; an answer from a cache is not a request.
        cost: USD.
    """

    calls: int = 0
    cost: float = 0.0


class Budget(RequestGate):
    """How much a judge may use.

    A request begins only if it fits. Its cost is estimated from the mean cost of the answers so far.

    Args:
        max_calls: requests; None for no limit.
        max_cost: USD; None for no limit.
        spent: what was used before.

    Attributes:
        refused: number of requests that did not fit.
        model: the judge, for messages.

    Raises:
        ConfigurationError: a limit is negative.
    """

    def __init__(self, max_calls: int | None = None, max_cost: float | None = None, spent: Spent | None = None) -> None:
        for name, limit in (("max-calls", max_calls), ("max-cost", max_cost)):
            if limit is not None and not limit >= 0:
                raise ConfigurationError(f"{name} is {limit}: give a number from 0")
        self.max_calls = max_calls
        self.max_cost = max_cost
        self.spent = spent or Spent()
        self.refused = 0
        self.model = "the judge"
        self._under_way = 0
        self._is_unpriced = False
        self._first = asyncio.Lock()

    @property
    def reason(self) -> str | None:
        """Why no further request may begin; None if one may begin."""
        calls, cost = self.spent.calls, self.spent.cost
        if self.max_calls is not None and calls + self._under_way >= self.max_calls:
            return f"the budget of {self.max_calls} calls is used up"
        if self.max_cost is None:
            return None
        # A budget in money cannot hold if costs are unknown, so that no request may begin.
        if self._is_unpriced:
            return f"the price of {self.model} is not known, so --max-cost cannot be kept: use --max-calls"
        # Requests in flight have no cost yet. They are assumed to cost as much as the others.
        usual = cost / calls if calls else 0.0
        if cost >= self.max_cost or cost + usual * (self._under_way + 1) > self.max_cost:
            return f"the budget of {self.max_cost:g} USD is used up"
        return None

    @asynccontextmanager
    async def request(self) -> AsyncIterator[Admission]:
        """Admit a request, and count it if it was sent.

        Raises:
            BudgetUsedUpError: it does not fit into the budget.
        """
        async with AsyncExitStack() as alone:
            # With a limit in money, the first request is alone: only its answer tells what a request costs.
            if self.max_cost is not None and not self.spent.calls:
                await alone.enter_async_context(self._first)
            if self.spent.calls:
                await alone.aclose()
            if self.reason is not None:
                self.refused += 1
                raise BudgetUsedUpError(self.reason)
            self._under_way += 1
            admission = Admission()
            try:
                yield admission
            finally:
                self._under_way -= 1
                cost = self.spent.cost + (admission.cost or 0.0)
                self.spent = Spent(calls=self.spent.calls + admission.sent, cost=cost)
                # An answer from a cache has no price and needs none.
                self._is_unpriced |= admission.sent > 0 and admission.cost is None


class BudgetedJudge(GatedJudge):
    """Asks another judge as long as the budget lasts.

    Args:
        judge: the judge.
        budget: how much it may use.

    Raises:
        ConfigurationError: the budget has a limit in USD, and the price of the judge is not known.
    """

    def __init__(self, judge: Judge, budget: Budget) -> None:
        super().__init__(judge, budget)
        # Another judge reports a price with its first answer, or none: Budget.reason stops it then.
        if budget.max_cost is not None and isinstance(self.judge, RemoteJudge) and not self.has_known_price:
            raise ConfigurationError(
                f"max-cost is {budget.max_cost:g} USD, but the price of {judge} is not known: give it with the judge "
                'option price_per_1k (USD for 1,000 tokens), such as --judge-options "price_per_1k=0.002", install the '
                'price list (pip install "rageval-hooks[prices]"), or use --max-calls'
            )
        budget.model = str(judge)
