"""Annotations on their way to Phoenix: what belongs to one span waits together, and travels in batches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rageval_hooks.exporters.phoenix.annotations import Annotation, Route

__all__ = ["BATCH", "TICK", "Parcel", "batches", "halves", "pack", "size"]

BATCH = 200
"""Annotations in a request. The server stores about 500 a second, and should not be held up for longer than that."""

TICK = 0.5
"""Seconds between two looks at what is due: what comes within one goes in one request."""

_LONGEST_WAIT = 5.0


class Parcel:
    """Annotations of one span.

    Attributes:
        route: which kind they are.
        span_id: the span.
        bodies: as the API has them.
        born: when they came, on the monotonic clock.
        due: when they are to be posted next.
        tried_at: when they were posted last.
    """

    __slots__ = ("attempts", "bodies", "born", "due", "route", "span_id", "tried_at")

    def __init__(self, route: Route, span_id: str, bodies: Sequence[dict[str, Any]], born: float) -> None:
        self.route = route
        self.span_id = span_id
        self.bodies = bodies
        self.born = born
        self.due = _tick_after(born + TICK)
        self.tried_at = -math.inf
        self.attempts = 0

    def postpone(self, now: float) -> None:
        """Have it posted again later: after half a second first, every five seconds in the end."""
        self.tried_at = now
        self.due = _tick_after(now + min(_LONGEST_WAIT, 0.5 * 2**self.attempts))
        self.attempts += 1


def pack(annotations: Iterable[Annotation], now: float) -> list[Parcel]:
    """Return annotations by kind and span."""
    by_span = groupby(sorted(annotations, key=_place), key=_place)
    return [Parcel(route, span_id, [item.body for item in items], now) for (route, span_id), items in by_span]


def size(parcels: Iterable[Parcel]) -> int:
    """Return the number of annotations."""
    return sum(len(parcel.bodies) for parcel in parcels)


def batches(parcels: Iterable[Parcel]) -> Iterator[list[Parcel]]:
    """Yield what goes in one request each: one kind, and not more than :data:`BATCH` unless one parcel is larger."""
    ordered = sorted(parcels, key=lambda parcel: (parcel.route, parcel.born))
    for _, group in groupby(ordered, key=lambda parcel: parcel.route):
        batch: list[Parcel] = []
        for parcel in group:
            if batch and size(batch) + len(parcel.bodies) > BATCH:
                yield batch
                batch = []
            batch.append(parcel)
        yield batch


def halves(parcels: list[Parcel]) -> tuple[list[Parcel], list[Parcel]]:
    """Split what was refused as a whole, down to single annotations."""
    if len(parcels) > 1:
        return parcels[: len(parcels) // 2], parcels[len(parcels) // 2 :]
    [parcel] = parcels
    middle = len(parcel.bodies) // 2
    first, second = (
        Parcel(parcel.route, parcel.span_id, bodies, parcel.born)
        for bodies in (parcel.bodies[:middle], parcel.bodies[middle:])
    )
    return [first], [second]


def _place(annotation: Annotation) -> tuple[Route, str]:
    return annotation.route, annotation.span_id


def _tick_after(time: float) -> float:
    return math.ceil(time / TICK) * TICK
