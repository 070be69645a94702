"""What a judge says of each thing on a list: asked in batches, read strictly, with a reason where it says nothing."""

from __future__ import annotations

import asyncio
import string
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from rageval_hooks.errors import JudgeAnswerError, JudgeError
from rageval_hooks.judges.base import Judgement, usage_details
from rageval_hooks.judges.client.admission import GateClosedError
from rageval_hooks.score import Failed
from rageval_hooks.turn import Usage

__all__ = ["Labels", "ask_in_batches", "batches", "combined", "in_vain", "plain_key", "with_spent"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


@dataclass
class Labels(Generic[K, V]):
    """What is known of the things that a judge was asked about.

    Attributes:
        values: what was said, by thing.
        missing: why nothing usable was said, by thing.
        judgements: the answers.
        spent: what all calls took: the answers, and what was spent in vain.
        by: which answer a value stands in.
        dropped: entries of the answers that do not count, by why: ``made_up`` (of things that were not asked about),
            ``repeated``, ``out_of_range``.
    """

    values: dict[K, V] = field(default_factory=dict)
    missing: dict[K, JudgeError] = field(default_factory=dict)
    judgements: list[Judgement[Any]] = field(default_factory=list)
    spent: list[Judgement[Any]] = field(default_factory=list)
    by: dict[K, Judgement[Any]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def reasons(self) -> Iterable[tuple[JudgeError, list[K]]]:
        """Return each reason for what is missing, with the things that it concerns."""
        found: dict[tuple[str, str], tuple[JudgeError, list[K]]] = {}
        for key, error in self.missing.items():
            found.setdefault((error.kind, error.message), (error, []))[1].append(key)
        return found.values()

    def failure(self, fail: Callable[[JudgeError], Failed]) -> Failed:
        """Return why nothing usable was said, all reasons in one; something must be missing.

        Args:
            fail: makes a failure of the first reason: one that something went wrong, if there is one, and not that
                there was no more to be asked.
        """
        errors = sorted((error for error, _ in self.reasons()), key=lambda error: isinstance(error, GateClosedError))
        message = "; ".join(dict.fromkeys(error.message for error in errors))
        return with_spent(fail(errors[0]).model_copy(update={"message": message}), self.spent)


async def ask_in_batches(
    items: Sequence[K],
    size: int,
    ask: Callable[[Sequence[K]], Awaitable[Judgement[Any]]],
    read: Callable[[Any], Iterable[tuple[K, V | None]]],
    stricter: Callable[[V, V], V],
) -> Labels[K, V]:
    """Ask about every item, the batches at the same time. Never raises for the judge: what fails is missing.

    Args:
        items: the things, each once.
        size: how many are asked about in one call, at most.
        ask: asks about some of them.
        read: from an answer, the things and what is said of them; None for a value that is out of range.
        stricter: of two values for the same thing, the one that holds.
    """
    parts = batches(items, size)
    answers = await asyncio.gather(*(_answer(ask, part) for part in parts))
    labels: Labels[K, V] = Labels()
    for part, answer in zip(parts, answers, strict=True):
        if isinstance(answer, JudgeError):
            labels.missing.update(dict.fromkeys(part, answer))
            labels.spent += in_vain(answer)
        else:
            labels.judgements.append(answer)
            labels.spent.append(answer)
            _read(labels, part, answer, read, stricter)
    return labels


async def _answer(
    ask: Callable[[Sequence[K]], Awaitable[Judgement[Any]]], part: Sequence[K]
) -> Judgement[Any] | JudgeError:
    try:
        return await ask(part)
    except JudgeError as error:  # the judge has logged it
        return error


def _read(
    labels: Labels[K, V],
    part: Sequence[K],
    answer: Judgement[Any],
    read: Callable[[Any], Iterable[tuple[K, V | None]]],
    stricter: Callable[[V, V], V],
) -> None:
    asked, seen = set(part), set()
    for key, value in read(answer.value):
        if key not in asked:
            labels.dropped["made_up"] += 1
            continue
        labels.dropped["repeated"] += key in seen
        seen.add(key)
        if value is None:
            labels.dropped["out_of_range"] += 1
            continue
        labels.values[key] = stricter(labels.values[key], value) if key in labels.values else value
        labels.by[key] = answer
    for key in part:
        if key not in labels.values:
            message = "the judge gave a value that is out of range" if key in seen else "the judge said nothing"
            labels.missing[key] = JudgeAnswerError(message, **answer.details())


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Cut a list into batches of at most ``size``, the same size but for one.

    Example:
        >>> batches("abcde", 2)
        ['ab', 'cd', 'e']
    """
    return [items[start : start + size] for start in range(0, len(items), size)]


def plain_key(key: str) -> str:
    """Return a sentence's key as we write it, for one in another notation: in capitals, in brackets, with a colon.

    Example:
        >>> [plain_key(key) for key in ("0a", "[0A]", " (b):", "“1c”.")]
        ['0a', '0a', 'b', '1c']
    """
    return key.casefold().strip(_AROUND)


_AROUND = f"{string.punctuation}{string.whitespace}“”‘’«»…\u00a0"


def combined(judgements: Sequence[Judgement[Any]]) -> Judgement[Any]:
    """Return several answers as one, for the metadata of a score that needs them all: what they took is added up.

    The sum is known if all its parts are.
    """
    first = next((judgement for judgement in judgements if judgement.value is not None), judgements[0])
    if len(judgements) == 1:
        return first
    usages = [judgement.usage for judgement in judgements]
    costs = [judgement.cost for judgement in judgements if judgement.cost is not None]
    return replace(
        first,
        usage=Usage.sum(usages) if None not in usages else None,
        cost=sum(costs) if len(costs) == len(judgements) else None,
        attempts=sum(judgement.attempts for judgement in judgements),
        repaired=any(judgement.repaired for judgement in judgements),
        cached=all(judgement.cached for judgement in judgements),
        response_id=None,
    )


def in_vain(error: JudgeError) -> list[Judgement[Any]]:
    """Return what a failed call took, as an answer without a value; nothing if it was not answered at all."""
    details = error.details
    read, written, cost = (details.get(name) for name in ("input_tokens", "output_tokens", "cost"))
    if read is None and cost is None and not details.get("replies"):
        return []
    usage = None
    if read is not None and written is not None:
        usage = Usage(input_tokens=read, output_tokens=written, cache_read_tokens=details.get("cached_tokens"))
    nothing: Any = None
    model, attempts = str(details.get("model", "")), details.get("attempts", 1)
    return [Judgement(value=nothing, model=model, usage=usage, cost=cost, attempts=attempts)]


def with_spent(failed: Failed, spent: Sequence[Judgement[Any]]) -> Failed:
    """Return a failure that says what all calls behind it took, and not only the one that failed.

    Args:
        failed: the failure.
        spent: the calls; none where another metric reports them.
    """
    details = dict(failed.metadata.get("judge", {}))
    amounts = usage_details(None, None)
    if spent:
        total = combined(spent)
        amounts = {**usage_details(total.usage, total.cost), "attempts": total.attempts}
    details = {name: value for name, value in {**details, **amounts}.items() if value is not None}
    return failed.model_copy(update={"metadata": {**failed.metadata, **({"judge": details} if details else {})}})
