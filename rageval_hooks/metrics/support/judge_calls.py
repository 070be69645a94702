"""The judge calls of one metric: batches of items with strictly read answers, and what all calls have cost together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel

from rageval_hooks.errors import JudgeAnswerError, JudgeError
from rageval_hooks.judges.base import GateClosedError, Judgement, usage_details
from rageval_hooks.score import Failed
from rageval_hooks.turn import Usage

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

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
    usages = [judgement.usage for judgement in judgements]
    costs = [judgement.cost for judgement in judgements]
    # A sum of the known parts would look like the whole.
    known = [cost for cost in costs if cost is not None]
    return replace(
        first,
        usage=None if None in usages else Usage.sum(usages),
        cost=sum(known) if len(known) == len(costs) else None,
        attempts=sum(judgement.attempts for judgement in judgements),
        repaired=any(judgement.repaired for judgement in judgements),
        cached=all(judgement.cached for judgement in judgements),
        response_id=None,
    )


def wasted(error: JudgeError) -> list[AnyJudgement]:
    """Return what a failed call has cost, as an answer without a value; empty if it got no reply at all."""
    details = error.details
    read, written, cost = (details.get("input_tokens"), details.get("output_tokens"), details.get("cost"))
    # A reply without a count of its tokens has cost something too.
    if cost is None and read is None and not details.get("replies"):
        return []
    usage = None
    if read is not None and written is not None:
        usage = Usage(input_tokens=read, output_tokens=written, cache_read_tokens=details.get("cached_tokens"))
    nothing = cast("BaseModel", None)
    model, attempts = str(details.get("model", "")), details.get("attempts", 1)
    return [Judgement(value=nothing, model=model, usage=usage, cost=cost, attempts=attempts)]


def with_spending(failed: Failed, calls: Sequence[AnyJudgement]) -> Failed:
    """Return a failed result with the cost of all calls behind it, not only of the one that failed.

    Args:
        failed: the failed result.
        calls: the calls; empty if another metric reports them.
    """
    # Where another metric reports the calls, the amounts of the call that failed must not be added up twice.
    amounts = usage_details(None, None)
    if calls:
        total = combined(calls)
        amounts = {**usage_details(total.usage, total.cost), "attempts": total.attempts}
    details = {**failed.metadata.get("judge", {}), **amounts}
    known = {name: value for name, value in details.items() if value is not None}
    metadata = {**failed.metadata, "judge": known} if known else dict(failed.metadata)
    return failed.model_copy(update={"metadata": metadata})


# --------------------------------------------------------------------------- batches


@dataclass
class BatchAnswers(Generic[K, V]):
    """The judge's verdicts on the items of a list.

    Attributes:
        values: the value of each item.
        missing: the error of each item without a usable value.
        judgements: the judge's answers.
        calls: all calls that cost something: the answers, and failed calls that were paid for.
        answer_of: the answer that each value comes from.
        dropped: ignored entries of the answers, counted by reason: ``made_up`` (about an item that was not asked
            about), ``repeated``, ``out_of_range``.
    """

    values: dict[K, V] = field(default_factory=dict)
    missing: dict[K, JudgeError] = field(default_factory=dict)
    judgements: list[AnyJudgement] = field(default_factory=list)
    calls: list[AnyJudgement] = field(default_factory=list)
    answer_of: dict[K, AnyJudgement] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def reasons(self) -> list[tuple[JudgeError, list[K]]]:
        """Return each distinct error, with the items that it concerns."""
        found: dict[tuple[str, str], tuple[JudgeError, list[K]]] = {}
        for key, error in self.missing.items():
            found.setdefault((error.kind, error.message), (error, []))[1].append(key)
        return list(found.values())

    def failure(self, fail: Callable[[JudgeError], Failed]) -> Failed:
        """Return one failed result with all reasons; at least one item must be missing.

        Args:
            fail: makes a failed result of an error.
        """
        # A call that was not admitted, for want of budget, says less than one that went wrong.
        errors = sorted((error for error, _ in self.reasons()), key=lambda error: isinstance(error, GateClosedError))
        message = "; ".join(dict.fromkeys(error.message for error in errors))
        return with_spending(fail(errors[0]).model_copy(update={"message": message}), self.calls)

    def add(self, batch: Sequence[K], answer: AnyJudgement, entries: Iterable[tuple[K, V | None]]) -> None:
        """Take the values of one answer; items of the batch that it does not mention are missing.

        Args:
            batch: the items that were asked about.
            answer: the judge's answer.
            entries: the items in the answer with their values; None for a value that is out of range.
        """
        self.judgements.append(answer)
        self.calls.append(answer)
        asked, seen = set(batch), set()
        for key, value in entries:
            if key not in asked:
                self.dropped["made_up"] += 1
                continue
            if key in seen:
                self.dropped["repeated"] += 1
            seen.add(key)
            if value is None:
                self.dropped["out_of_range"] += 1
                continue
            # Of two values of one item, the lesser holds.
            if key not in self.values or value < self.values[key]:  # type: ignore[operator]
                self.values[key] = value
            self.answer_of[key] = answer
        for key in batch:
            if key not in self.values:
                message = "the judge gave a value that is out of range" if key in seen else "the judge said nothing"
                self.missing[key] = JudgeAnswerError(message, **answer.details())


async def ask_in_batches(
    items: Sequence[K],
    size: int,
    ask: Callable[[Sequence[K]], Awaitable[Judgement[M]]],
    read: Callable[[M], Iterable[tuple[K, V | None]]],
) -> BatchAnswers[K, V]:
    """Ask about every item, all batches at the same time. A failed call makes its items missing; nothing is raised.

    Args:
        items: the items, each once.
        size: the most items per call.
        ask: asks about a batch.
        read: returns the items of an answer with their values; None for a value that is out of range. Of two values of
            one item, the lesser holds.
    """

    async def answer(part: Sequence[K]) -> Judgement[M] | JudgeError:
        try:
            return await ask(part)
        except JudgeError as error:  # the judge has already logged it
            return error

    parts = batches(items, size)
    answers: BatchAnswers[K, V] = BatchAnswers()
    for part, found in zip(parts, await asyncio.gather(*map(answer, parts)), strict=True):
        if isinstance(found, JudgeError):
            answers.missing.update(dict.fromkeys(part, found))
            answers.calls += wasted(found)
        else:
            answers.add(part, found, read(found.value))
    return answers


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Cut a list into batches of at most ``size``; only the last one may be smaller.

    Example:
        >>> batches("abcde", 2)
        ['ab', 'cd', 'e']
    """
    return [items[start : start + size] for start in range(0, len(items), size)]
