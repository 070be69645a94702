"""Items that wait together and travel together."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rageval_hooks.exporters.delivery.item import Item
from rageval_hooks.runtime.sizes import size_of

__all__ = [
    "BATCH",
    "Parcel",
    "all_bodies",
    "batches",
    "by_age",
    "by_target",
    "count_bytes",
    "count_items",
    "halves",
    "pack",
    "without_first",
]

BATCH = 200
"""Items in a request. A Phoenix server stores about 500 a second and should not be blocked for longer than that."""

_TICK = 0.5
"""Seconds. Items that arrive within one tick go in one request."""

_LONGEST_WAIT = 5.0


class Parcel:
    """Items of one route and target.

    Attributes:
        route: the kind of request.
        target: the id that the items are about.
        bodies: as the API expects them.
        sizes: about how many bytes each of them takes in memory.
        queued_at: when they came, on the monotonic clock.
        due: when they are to be posted next.
        tried_at: when they were posted last.
        attempts: how often their target was missing.
    """

    __slots__ = ("attempts", "bodies", "due", "queued_at", "route", "sizes", "target", "tried_at")

    def __init__(
        self,
        route: str,
        target: str,
        bodies: Sequence[Mapping[str, Any]],
        queued_at: float,
        sizes: Sequence[int] | None = None,
    ) -> None:
        self.route = route
        self.target = target
        self.bodies = bodies
        self.sizes = list(map(size_of, bodies)) if sizes is None else sizes
        self.queued_at = queued_at
        self.due = _tick_after(queued_at + _TICK)
        self.tried_at = -math.inf
        self.attempts = 0

    def postpone(self, now: float) -> None:
        """Schedule another attempt: after half a second at first, after five seconds in the end."""
        self.tried_at = now
        self.due = _tick_after(now + min(_LONGEST_WAIT, 0.5 * 2**self.attempts))
        self.attempts += 1


def pack(items: Iterable[Item], now: float) -> list[Parcel]:
    """Group items by route and target."""
    # groupby needs equal keys next to each other.
    by_place = groupby(sorted(items, key=_place), key=_place)
    return [Parcel(route, target, [item.body for item in group], now) for (route, target), group in by_place]


def count_items(parcels: Iterable[Parcel]) -> int:
    """Return the number of items."""
    return sum(len(parcel.bodies) for parcel in parcels)


def count_bytes(parcels: Iterable[Parcel]) -> int:
    """Return about how many bytes the items take in memory."""
    return sum(sum(parcel.sizes) for parcel in parcels)


def all_bodies(parcels: Iterable[Parcel]) -> list[Mapping[str, Any]]:
    """Return the items of several parcels, as the API expects them."""
    return [body for parcel in parcels for body in parcel.bodies]


def by_target(parcels: Iterable[Parcel], targets: Container[str]) -> tuple[list[Parcel], list[Parcel]]:
    """Return the parcels about some targets, and the others."""
    inside: list[Parcel] = []
    outside: list[Parcel] = []
    for parcel in parcels:
        chosen = inside if parcel.target in targets else outside
        chosen.append(parcel)
    return inside, outside


def by_age(parcels: Iterable[Parcel], now: float, seconds: float) -> tuple[list[Parcel], list[Parcel]]:
    """Return the parcels that have waited for longer than some seconds, and the others."""
    old: list[Parcel] = []
    young: list[Parcel] = []
    for parcel in parcels:
        chosen = old if now - parcel.queued_at > seconds else young
        chosen.append(parcel)
    return old, young


def batches(parcels: Iterable[Parcel]) -> Iterator[list[Parcel]]:
    """Yield the parcels of one request each: one route, and at most :data:`BATCH` items unless one parcel is larger."""
    # Oldest first, because these are closest to being given up.
    ordered = sorted(parcels, key=lambda parcel: (parcel.route, parcel.queued_at))
    for _, group in groupby(ordered, key=lambda parcel: parcel.route):
        batch: list[Parcel] = []
        for parcel in group:
            if batch and count_items(batch) + len(parcel.bodies) > BATCH:
                yield batch
                batch = []
            batch.append(parcel)
        yield batch


def without_first(parcels: Iterable[Parcel], amount: int) -> list[Parcel]:
    """Return the parcels without their first items, which were delivered."""
    rest = []
    for parcel in parcels:
        taken = min(amount, len(parcel.bodies))
        amount -= taken
        parcel.bodies, parcel.sizes = parcel.bodies[taken:], parcel.sizes[taken:]
        if parcel.bodies:
            rest.append(parcel)
    return rest


def halves(parcels: list[Parcel]) -> tuple[list[Parcel], list[Parcel]]:
    """Split a rejected request in two, down to single items."""
    if len(parcels) > 1:
        return parcels[: len(parcels) // 2], parcels[len(parcels) // 2 :]
    # One parcel with several items: its items are separated.
    [parcel] = parcels
    middle = len(parcel.bodies) // 2
    first, second = (
        Parcel(parcel.route, parcel.target, parcel.bodies[part], parcel.queued_at, parcel.sizes[part])
        for part in (slice(middle), slice(middle, None))
    )
    return [first], [second]


def _place(item: Item) -> tuple[str, str]:
    return item.route, item.target


def _tick_after(time: float) -> float:
    return math.ceil(time / _TICK) * _TICK
