"""Estimates the judge calls for scoring a file, before any is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rageval_hooks.judges.client.prices import price_usd
from rageval_hooks.metrics.base import Metric
from rageval_hooks.metrics.support.plan import TurnSize, plan_calls
from rageval_hooks.offline.records.record import Record
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.text.wording import counted
from rageval_hooks.turn import Turn, Usage

__all__ = ["Estimate", "estimate"]

_CHARACTERS_PER_TOKEN = 4
# Instructions and schema of a request.
_PROMPT_TOKENS = 700
# Of one answer of the judge: a few sentences with a verdict each.
_OUTPUT_TOKENS = 250


@dataclass(frozen=True)
class Estimate:
    """An estimate.

    Attributes:
        turns: number of turns.
        calls: requests to the judge, about.
        tokens: their input tokens, about.
        judge: the judge; None if no metric asks one.
        price: USD; None if the price of the judge is not known.
    """

    turns: int
    calls: int
    tokens: int
    judge: str | None
    price: float | None

    def line(self) -> str:
        """Return the estimate in words."""
        if self.judge is None or not self.calls:
            return f"{counted(self.turns, 'turn')}, no requests to a judge"
        cost = "" if self.price is None else f", about {self.price:.2f} USD"
        return (
            f"{counted(self.turns, 'turn')}: about {counted(self.calls, 'request')} to {self.judge}, "
            f"about {self.tokens:,} input tokens{cost}"
        )


def estimate(records: Iterable[Record], pipeline: Pipeline) -> Estimate:
    """Return about how many requests the judge metrics of a pipeline would make for some records.

    Retries are not counted, and neither is what an interrupted run has answers to.
    """
    judged: list[Metric] = []
    # Without a judge, its metrics are skipped.
    if pipeline.judge is not None:
        judged = [metric for metric in pipeline.metrics if metric.asks_judge]
    turns = calls = tokens = 0
    for record in records:
        turns += 1
        asked = [metric for metric in judged if record.answerable or not metric.answerable_only]
        wanted = plan_calls(asked, TurnSize(passages=len(record.turn.passages))).calls if asked else 0
        calls += wanted
        tokens += wanted * (_PROMPT_TOKENS + _characters(record.turn) // _CHARACTERS_PER_TOKEN)
    judge = str(pipeline.judge) if judged else None
    return Estimate(turns, calls, tokens, judge, _price(judge, calls, tokens))


def _characters(turn: Turn) -> int:
    return sum(map(len, turn.texts()))


def _price(judge: str | None, calls: int, tokens: int) -> float | None:
    if judge is None:
        return None
    provider, _, model = judge.partition(":")
    usage = Usage(input_tokens=tokens, output_tokens=calls * _OUTPUT_TOKENS)
    return price_usd(usage, model, provider=provider or None)
