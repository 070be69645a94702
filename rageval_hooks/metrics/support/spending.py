"""The sum of tokens and cost over the judge calls behind a score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel

from rageval_hooks.errors import JudgeError
from rageval_hooks.judges.base import Judgement, usage_details
from rageval_hooks.score import Failed
from rageval_hooks.turn import Usage

AnyJudgement = Judgement[Any]
"""An answer in whatever form: different calls of one metric have different schemas."""


def combined(judgements: Sequence[AnyJudgement]) -> AnyJudgement:
    """Return several answers as one, with the sum of what they cost.

    The sum is None if a part of it is not known.
    """
    # The calls that failed have no value: the first answer says which model it was, and in which mode.
    first = next((judgement for judgement in judgements if judgement.value is not None), judgements[0])
    if len(judgements) == 1:
        return first
    return replace(
        first,
        usage=_sum_of_usage(judgements),
        cost=_sum_of_costs(judgements),
        attempts=sum(judgement.attempts for judgement in judgements),
        repaired=any(judgement.repaired for judgement in judgements),
        cached=all(judgement.cached for judgement in judgements),
        response_id=None,
    )


def _sum_of_usage(judgements: Sequence[AnyJudgement]) -> Usage | None:
    usages = [judgement.usage for judgement in judgements]
    return None if None in usages else Usage.sum(usages)


def _sum_of_costs(judgements: Sequence[AnyJudgement]) -> float | None:
    costs = [judgement.cost for judgement in judgements]
    known = [cost for cost in costs if cost is not None]
    # The sum of the known ones would look like the whole.
    if len(known) < len(costs):
        return None
    return sum(known)


def wasted(error: JudgeError) -> list[AnyJudgement]:
    """Return what a failed call has cost, as an answer without a value; empty if it got no reply at all."""
    details = error.details
    usage, cost = _wasted_usage(details), details.get("cost")
    has_cost = cost is not None or details.get("input_tokens") is not None
    # A reply without a count of its tokens has cost something too.
    if not has_cost and not details.get("replies"):
        return []
    nothing = cast("BaseModel", None)
    model, attempts = str(details.get("model", "")), details.get("attempts", 1)
    return [Judgement(value=nothing, model=model, usage=usage, cost=cost, attempts=attempts)]


def _wasted_usage(details: Mapping[str, Any]) -> Usage | None:
    read, written = details.get("input_tokens"), details.get("output_tokens")
    if read is None or written is None:
        return None
    return Usage(input_tokens=read, output_tokens=written, cache_read_tokens=details.get("cached_tokens"))


def with_spending(failed: Failed, calls: Sequence[AnyJudgement]) -> Failed:
    """Return a failed result with the cost of all calls behind it, not only of the one that failed.

    Args:
        failed: the failed result.
        calls: the calls; empty if another metric reports them.
    """
    details = {**failed.metadata.get("judge", {}), **_amounts(calls)}
    known = {name: value for name, value in details.items() if value is not None}
    metadata = {**failed.metadata, "judge": known} if known else dict(failed.metadata)
    return failed.model_copy(update={"metadata": metadata})


def _amounts(calls: Sequence[AnyJudgement]) -> dict[str, Any]:
    if not calls:
        # Another metric reports them: the amounts of the call that failed must not be added up twice.
        return usage_details(None, None)
    total = combined(calls)
    return {**usage_details(total.usage, total.cost), "attempts": total.attempts}
