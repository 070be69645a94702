"""The delivery queue with a destination that follows a script."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rageval_hooks.exporters.delivery_queue import (
    DeliveryQueue,
    DestinationAbsentError,
    Item,
    PostError,
    RejectedError,
    TargetsMissingError,
    UnavailableError,
)
from rageval_hooks.exporters.score_api import ScoreServer
from rageval_hooks.runtime.threads import wait_until


class Scripted(ScoreServer):
    """Raises what the script says, then takes everything."""

    backend = "Test"
    workers = 1

    def __init__(self, *script: Exception) -> None:
        self.script = list(script)
        self.taken: list[str] = []
        self.posted_at: list[float] = []

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> list[PostError | None] | None:
        self.posted_at.append(time.monotonic())
        if self.script:
            raise self.script.pop(0)
        self.taken += [body["name"] for body in bodies]
        return None

    def __repr__(self) -> str:
        return "Test"

    def close(self) -> None:
        pass


def item(name: str) -> Item:
    return Item(route="scores", target="t", name=name, body={"name": name})


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


def test_a_queue_is_bounded_by_bytes() -> None:
    """What does not fit is dropped and counted by cause; an empty queue takes anything, and is empty in the end."""
    destination = Scripted()
    queue = DeliveryQueue("Test", lambda: destination)
    queue.max_bytes = 10_000
    queue.put([item("a" * 20_000)])
    queue.put([item("b")])
    waiting = queue.stats()

    assert waiting["queued_bytes"] > 20_000
    assert (waiting["queued"], waiting["dropped"], waiting["dropped_by_size"]) == (1, 1, 1)
    assert not queue.flush(10)
    assert queue.stats()["queued_bytes"] == 0
    queue.put([item("b")])
    assert queue.flush(10)
    queue.close(1)


@pytest.mark.parametrize(("ask_again", "asked", "taken"), [(math.inf, 1, []), (0, 2, ["a"])])
def test_a_server_that_is_not_there_is_asked_again_when_it_said(ask_again: float, asked: int, taken: list[str]) -> None:
    """Until then nothing is queued; what waited for it is forgotten."""
    destination = Scripted()
    calls: list[str] = []

    def connect() -> Scripted:
        calls.append("connect")
        if len(calls) == 1:
            raise DestinationAbsentError(ask_again)
        return destination

    queue = DeliveryQueue("Test", connect)
    for _ in range(2):
        queue.put([item("a")])
        assert queue.flush(10)

    assert (len(calls), destination.taken) == (asked, taken)
    assert queue.stats()["queued"] == 0
    queue.close(1)


def test_a_queue_that_was_closed_drops_what_comes_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """A turn may end after the exporter was shut down."""
    queue = DeliveryQueue("Test", Scripted)
    queue.close(1)
    queue.put([item("a"), item("b")])

    assert queue.stats()["dropped"] == 2
    assert "scores for Test are dropped: it was shut down [RAGEVAL-505]" in caplog.text


def test_a_server_that_misses_other_spans_gets_all_items_again() -> None:
    """It does not say which of these has to wait."""
    destination = Scripted(TargetsMissingError(frozenset({"another"})))
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item("a"), item("b")])

    assert queue.flush(10)
    assert destination.taken == ["a", "b"]
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


class OneByOne(Scripted):
    """An API that takes one score per request; each item fails once with the script's errors for it."""

    def __init__(self, **errors: PostError) -> None:
        super().__init__()
        self.errors = errors

    post = ScoreServer.post

    def post_one(self, body: Mapping[str, Any]) -> None:
        error = self.errors.pop(body["name"], None)
        if error is not None:
            raise error
        self.taken.append(body["name"])


@pytest.mark.parametrize(
    "error", [UnavailableError("answers 503"), TargetsMissingError(frozenset({"t"}))], ids=["unavailable", "missing"]
)
def test_items_that_were_taken_before_one_failed_are_not_posted_again(error: PostError) -> None:
    """An API without batches stores a part of what it gets."""
    destination = OneByOne(c=error)
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item(name) for name in "abcd"])

    assert queue.flush(10)
    assert sorted(destination.taken) == ["a", "b", "c", "d"]
    assert queue.stats()["delivered"] == 4
    queue.close(1)


def test_a_rejected_item_does_not_take_others_with_it() -> None:
    """Also where a part was taken already."""
    destination = OneByOne()
    destination.errors = Always(c=RejectedError("answers 400"))
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item(name) for name in "abcdef"])

    assert not queue.flush(10)
    assert sorted(destination.taken) == ["a", "b", "d", "e", "f"]
    assert queue.stats()["rejected"] == 1
    queue.close(1)


class Always(dict[str, PostError]):
    """Errors that repeat."""

    def pop(self, name: str, default: Any = None) -> Any:
        return self.get(name, default)


def test_items_whose_target_never_arrives_are_lost_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Of a server without a queue; a log line says so."""
    destination = OneByOne()
    destination.errors = Always(a=TargetsMissingError(frozenset({"t"})))
    queue = DeliveryQueue("Test", lambda: destination)
    lost = item("a")
    lost.trace_id = "5b8e"
    queue.put([lost])

    assert not queue.close(10)
    assert queue.stats()["lost"] == 1
    assert "1 scores are lost: Test does not have their spans (traces 5b8e) [RAGEVAL-503]" in caplog.text


def test_items_of_one_target_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the first has waited for its target so long that it would be tried again later than the second."""
    monkeypatch.setattr("rageval_hooks.exporters.delivery_queue._TICK", 0.05)

    class Late(Scripted):
        has_arrived = False

        def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> list[PostError | None] | None:
            super().post(route, bodies if self.has_arrived else ())
            if not self.has_arrived:
                raise TargetsMissingError(frozenset({"t"}))
            return None

    destination = Late()
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item("local")])
    assert wait_until(lambda: len(destination.posted_at) >= 5, 30)
    destination.has_arrived = True
    queue.put([item("judged")])
    assert wait_until(lambda: len(destination.taken) == 2, 30)
    queue.close(1)

    assert destination.taken == ["local", "judged"]


def test_a_request_has_at_most_two_hundred_items() -> None:
    """A server must not be blocked for longer than a moment."""
    destination = Scripted()
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item(f"{number}") for number in range(450)])

    assert queue.flush(10)
    assert destination.taken == [str(number) for number in range(450)]
    assert len(destination.posted_at) == 3
    queue.close(1)


def test_items_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a server is down: what has waited for too long is lost, and counted; what comes later is delivered."""
    destination = Scripted(UnavailableError("cannot be reached"))
    queue = DeliveryQueue("Test", lambda: destination)
    with monkeypatch.context() as shorter:
        shorter.setattr("rageval_hooks.exporters.delivery_queue._KEPT", 0.0)
        queue.put([item("old")])
        assert not queue.flush(10)
    queue.put([item("new")])
    assert queue.flush(10)

    assert destination.taken == ["new"]
    assert (queue.stats()["lost"], queue.stats()["delivered"], queue.stats()["queued"]) == (1, 1, 0)
    assert queue.close(1)


def test_a_server_that_is_down_is_not_asked_for_each_item() -> None:
    """Each request might wait for its timeout."""
    asked: list[str] = []

    class Down(OneByOne):
        workers = 2

        def post_one(self, body: Mapping[str, Any]) -> None:
            asked.append(body["name"])
            raise UnavailableError("cannot be reached")

    errors = Down().post("scores", [{"name": str(number)} for number in range(100)])

    assert errors is not None
    assert len(asked) < 10
    assert {type(error) for error in errors} == {UnavailableError}
    assert len(errors) == 100


def test_a_fault_of_ours_loses_the_items_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """The thread goes on with the next ones."""

    class Faulty(Scripted):
        def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> list[PostError | None] | None:
            if bodies[0]["name"] == "bad":
                raise KeyError("secret")
            return super().post(route, bodies)

    destination = Faulty()
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item("bad")])
    assert not queue.flush(10)
    queue.put([item("good")])

    assert queue.flush(10)
    assert (queue.stats()["lost"], destination.taken) == (1, ["good"])
    assert "scores could not be posted to Test: KeyError [RAGEVAL-506]" in caplog.text
    assert "secret" not in caplog.text
    queue.close(1)


def test_a_full_backlog_is_posted_when_the_queue_closes() -> None:
    """In several requests, although its items are not due yet and the server has a pause."""
    destination = Scripted(UnavailableError("answers 503"))
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item(f"{number}") for number in range(450)])

    assert queue.close(10)
    assert len(destination.taken) == 450


def test_items_that_come_while_the_interpreter_exits_are_posted_when_the_queue_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.12 and later start no threads then."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    destination = Scripted()
    queue = DeliveryQueue("Test", lambda: destination)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    queue.put([item("a")])

    assert queue.close(10)
    assert destination.taken == ["a"]


def test_a_server_that_is_down_ends_the_closing_early(caplog: pytest.LogCaptureFixture) -> None:
    """After a few attempts, and not only at the timeout; everything is counted as lost."""
    destination = Scripted(*[UnavailableError("cannot be reached")] * 1000)
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item("a")])
    began = time.monotonic()

    assert not queue.close(60)
    assert time.monotonic() - began < 20
    assert len(destination.posted_at) > 1
    assert queue.stats()["lost"] == 1
    assert "1 scores could not be delivered to Test in time and are lost [RAGEVAL-605]" in caplog.text


class Poisoned(Scripted):
    """Answers 5xx to every request that has one of some items."""

    def __init__(self, *poison: str) -> None:
        super().__init__()
        self.poison = frozenset(poison)

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> list[PostError | None] | None:
        if self.poison.intersection(body["name"] for body in bodies):
            self.posted_at.append(time.monotonic())
            raise UnavailableError("answers 500", by_server=True)
        return super().post(route, bodies)


class PoisonedOneByOne(Poisoned):
    """The same for an API that takes one score per request."""

    post = ScoreServer.post

    def post_one(self, body: Mapping[str, Any]) -> None:
        Poisoned.post(self, "", [body])


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the attempts of a flush."""
    monkeypatch.setattr("rageval_hooks.exporters.delivery_queue._FLUSH_PAUSE", 0.02)


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("kind", [Poisoned, PoisonedOneByOne])
@pytest.mark.parametrize("poison", [("0",), ("0", "1", "2", "3", "4"), ("7", "30", "59"), ("58", "59")], ids=str)
def test_an_item_that_a_server_cannot_store_stops_no_other(kind: type[Poisoned], poison: tuple[str, ...]) -> None:
    """The server answers 500: it may be down, or an item is to blame, which is then rejected after some attempts."""
    destination = kind(*poison)
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item(f"{number}") for number in range(60)])

    assert not queue.flush(20)
    assert sorted(map(int, destination.taken)) == [n for n in range(60) if f"{n}" not in poison]
    stats = queue.stats()
    assert (stats["delivered"], stats["rejected"], stats["queued"]) == (60 - len(poison), len(poison), 0)
    queue.close(1)


def test_a_route_with_a_fault_does_not_hold_up_the_others() -> None:
    """Each kind of request has a pause of its own."""

    class HalfDown(Scripted):
        def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> list[PostError | None] | None:
            if route == "down":
                raise UnavailableError("answers 503", retry_after=60, by_server=True)
            return super().post(route, bodies)

    destination = HalfDown()
    queue = DeliveryQueue("Test", lambda: destination)
    for name in "abc":
        queue.put([Item(route="down", name="x", body={"name": "x"}), item(name)])
        assert not queue.flush(0.8)

    assert destination.taken == ["a", "b", "c"]
    assert queue.stats()["queued"] == 3
    queue.close(1)


@pytest.mark.usefixtures("short_pauses")
def test_a_server_that_answers_5xx_to_all_is_not_asked_for_each_item() -> None:
    """It is down. Nothing is rejected, and each attempt costs a few requests."""
    destination = Poisoned(*map(str, range(200)))
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item(f"{number}") for number in range(200)])

    assert not queue.flush(1)
    attempts = queue.stats()["errors"]
    assert attempts > 6
    # The whole, two halves and four quarters.
    assert len(destination.posted_at) <= attempts * 7
    assert queue.stats()["queued"] == 200
    destination.poison = frozenset()
    assert queue.flush(20)
    assert len(destination.taken) == 200
    queue.close(1)


def test_an_item_that_is_not_worth_a_second_try_is_lost_and_counted() -> None:
    """An export of metrics, for example: the next one has newer counts."""
    destination = OneByOne(b=PostError("answers 503"))
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item(name) for name in "abc"])

    assert not queue.flush(10)
    assert (queue.stats()["lost"], queue.stats()["delivered"]) == (1, 2)
    assert sorted(destination.taken) == ["a", "c"]
    queue.close(1)


def test_a_delay_of_spans_that_is_no_number_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is OpenTelemetry's, whose own processor says so."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "soon")
    destination = Scripted()
    queue = DeliveryQueue("Test", lambda: destination)
    queue.put([item("a")])

    assert queue.flush(10)
    assert destination.taken == ["a"]
    queue.close(1)
