"""What a judge says of each thing on a list: asked in batches, read strictly, with a reason where it says nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from rageval_hooks.errors import JudgeAnswerError, JudgeError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.turn import Usage

__all__ = ["Labels", "ask_in_batches", "batches", "combined"]

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
        by: which answer a value stands in.
        dropped: entries of the answers that do not count, by why: ``made_up`` (of things that were not asked about),
            ``repeated``, ``out_of_range``.
    """

    values: dict[K, V] = field(default_factory=dict)
    missing: dict[K, JudgeError] = field(default_factory=dict)
    judgements: list[Judgement[Any]] = field(default_factory=list)
    by: dict[K, Judgement[Any]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def reasons(self) -> Iterable[tuple[JudgeError, list[K]]]:
        """Return each reason for what is missing, with the things that it concerns."""
        found: dict[tuple[str, str], tuple[JudgeError, list[K]]] = {}
        for key, error in self.missing.items():
            found.setdefault((error.kind, error.message), (error, []))[1].append(key)
        return found.values()


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
        else:
            labels.judgements.append(answer)
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


def combined(judgements: Sequence[Judgement[Any]]) -> Judgement[Any]:
    """Return several answers as one, for the metadata of a score that needs them all: what they took is added up."""
    first = judgements[0]
    if len(judgements) == 1:
        return first
    costs = [judgement.cost for judgement in judgements if judgement.cost is not None]
    return replace(
        first,
        usage=Usage.sum(judgement.usage for judgement in judgements),
        cost=sum(costs) if len(costs) == len(judgements) else None,
        attempts=sum(judgement.attempts for judgement in judgements),
        repaired=any(judgement.repaired for judgement in judgements),
        cached=all(judgement.cached for judgement in judgements),
        response_id=None,
    )
