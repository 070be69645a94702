"""The delivery queue with a destination that follows a script."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rageval_hooks.exporters.delivery import DeliveryQueue, Item, RejectedError, UnavailableError


class Scripted:
    """Raises what the script says, then takes everything."""

    def __init__(self, *script: Exception) -> None:
        self.script = list(script)
        self.taken: list[str] = []
        self.posted_at: list[float] = []

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool) -> None:
        self.posted_at.append(time.monotonic())
        if self.script:
            raise self.script.pop(0)
        self.taken += [body["name"] for body in bodies]

    def close(self) -> None:
        pass


def item(name: str) -> Item:
    return Item(route="scores", target="t", body={"name": name})


def test_items_of_one_tick_travel_in_one_request() -> None:
    """In the order in which they came."""
    destination = Scripted()
    queue = DeliveryQueue("Test", lambda: destination)
    for name in "abc":
        queue.put([item(name)])

    assert queue.flush(10)
    assert destination.taken == ["a", "b", "c"]
    assert len(destination.posted_at) == 1
    assert queue.close(1)


def test_the_pause_that_a_server_asks_for_is_kept() -> None:
    """A flush shortens our own backoff only."""
    destination = Scripted(UnavailableError("answers 429", retry_after=1.5))
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item("a")])

    assert queue.flush(10)
    first, second = destination.posted_at
    assert second - first >= 1.5
    queue.close(1)


def test_a_full_queue_drops_the_newest_and_counts_them() -> None:
    """Nothing grows without bound."""
    queue = DeliveryQueue("Test", Scripted, capacity=2)
    queue.put([item("a"), item("b")])
    queue.put([item("c")])

    assert queue.stats()["dropped"] == 1
    assert not queue.flush(10)
    assert queue.stats()["delivered"] == 2
    queue.close(1)


def test_a_rejected_item_is_counted_and_not_sent_again() -> None:
    """The flush is not true."""
    destination = Scripted(RejectedError("answers 422"))
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item("a")])

    assert not queue.flush(10)
    assert queue.stats()["rejected"] == 1
    assert len(destination.posted_at) == 1
    assert queue.close(1)
