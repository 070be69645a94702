"""A bounded queue and a daemon thread that deliver items to a server, with batches, retries and counted losses.

The items are scores for the API of a backend, or spans, log events and metrics for an OTLP endpoint.

* ExportError
    * DestinationAbsentError   forget the queue; ask again later or never
    * PostError
        * TargetsMissingError  wait: spans are still on their way
        * RejectedError        never send this again
        * UnavailableError     send this again after a pause
"""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

from rageval_hooks.errors import ExportError, RagevalError
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.queues import BoundedQueue
from rageval_hooks.runtime.suppression import quiet_context
from rageval_hooks.runtime.threads import Signal, start_daemon_thread
from rageval_hooks.runtime.time_limit import within

_logger = logging.getLogger(__name__)

_CAPACITY = 20_000
"""Items that may wait, at about 1 KiB each."""

_BATCH = 200
"""Items in a request. A Phoenix server stores about 500 a second and should not be blocked for longer than that."""

# All in seconds.
_TICK = 0.5
"""Items that arrive within one tick go in one request."""

_KEPT = 600.0
"""How long items are kept for a server that cannot be reached."""

_PATIENCE = 20.0
"""How long a span may take to arrive, in addition to the delay of the batch span processor."""

_CLOSING_PATIENCE = 0.6
"""The same at the end: the spans were sent before, and a server stores them within a moment."""

_MAX_WAIT = 5.0
_FIRST_PAUSE = 0.1
_MAX_PAUSE = 60.0
# Someone waits for a flush, so it tries more often.
_FLUSH_WAIT = 0.1
_FLUSH_PAUSE = 1.0

_SUSPECT = 2
"""After so many answers 5xx an item travels apart from the others, and its batch is halved: it may be to blame."""

_HALVINGS = 2
"""How often a batch is halved in one attempt while no part of it is stored: a server that is down fails them all."""

_MAX_FAILURES = 10
"""Answers 5xx after which an item is rejected, if the server has stored others of its kind in the meantime."""

_MAX_NAMED = 20
"""Scores without a span whose traces a log line names."""

# Not the module's own functions: an application that has seeded them gets the same numbers as without us.
_JITTER = random.SystemRandom()

_COUNTERS = ("delivered", "handed_over", "rejected", "lost", "unplaced", "errors")


@dataclass(kw_only=True, slots=True, eq=False)
class Item:
    """One score on its way to an API, or one span. The queue sets the fields that have a default.

    Attributes:
        route: the kind of request that takes it, if there are several; a request has items of one route.
        target: the id of the span or trace that it is about.
        trace_id: of the turn that it is about, for log lines.
        name: the score's name, for log lines.
        body: as the destination expects it. Sent twice, it must not become two scores: it has an id, or the API
            replaces what has the same target and name.
        size: its characters as text; 0 if the queue has to count them.
        queued_at: when it came, on the monotonic clock.
        due: when it is posted next, on the monotonic clock.
        attempts: how often its target was missing.
        missing_since: when it was found missing first, on the monotonic clock.
        failures: attempts that the server answered with 5xx.
        failed_at: when the first of these was, on the monotonic clock.
    """

    route: str = ""
    target: str = ""
    trace_id: str = ""
    name: str
    body: Any
    size: int = 0
    queued_at: float = 0.0
    due: float = 0.0
    attempts: int = 0
    missing_since: float = math.inf
    failures: int = 0
    failed_at: float = math.inf


@dataclass(slots=True)
class _Route:
    """What is known of the requests of one kind. Times are on the monotonic clock.

    Attributes:
        failures: attempts in a row that failed.
        paused_until: when the next one may begin.
        refused_until: the end of the pause that the server asked for.
        stored_at: when the server last took an item.
    """

    failures: int = 0
    paused_until: float = -math.inf
    refused_until: float = -math.inf
    stored_at: float = -math.inf

    def blames(self, item: Item, error: UnavailableError) -> bool:
        """Return True if a server cannot store one item, though it works for others: it would wait in vain."""
        if not error.by_server:
            return False
        item.failures += 1
        item.failed_at = min(item.failed_at, time.monotonic())
        return item.failures >= _MAX_FAILURES and self.stored_at > item.failed_at


class _Schedule:
    """The items that wait, and when each is posted. Used under the lock of its queue.

    Args:
        max_request: size of the items in a request.

    Attributes:
        items: the items that wait.
        routes: the kinds of requests.
    """

    def __init__(self, max_request: float) -> None:
        self._max_request = max_request
        self.items: list[Item] = []
        self.routes = defaultdict[str, _Route](_Route)

    def _begins(self) -> dict[Item, float]:
        return {item: max(item.due, self.routes[item.route].paused_until) for item in self.items}

    @property
    def next_at(self) -> float:
        """When the next item is due; infinite without one."""
        return min(self._begins().values(), default=math.inf)

    def take(self, now: float) -> list[Item]:
        """Take out the due items of one request; empty if none is due."""
        begins = self._begins()
        due = [item for item, begin in begins.items() if begin <= now]
        if not due:
            return []
        # Items of one target keep their order, also where the first has waited for it: the judge's verdict replaces the
        # local one, and not the other way round.
        targets = {(item.route, item.target) for item in due if item.target}
        due = [item for item in begins if begins[item] <= now or (item.route, item.target) in targets]
        # The oldest first, since they expire first, and those that may be to blame apart from the others.
        kinds = {item: (item.failures >= _SUSPECT, item.route) for item in due}
        due.sort(key=lambda item: (kinds[item][0], item.queued_at))
        batch = [item for item in due if kinds[item] == kinds[due[0]]][:_BATCH]
        sizes = accumulate(item.size for item in batch)
        batch = batch[: max(1, sum(size <= self._max_request for size in sizes))]
        taken = set(batch)
        self.items = [item for item in self.items if item not in taken]
        return batch

    def hurry(self, now: float, *, is_last: bool) -> None:
        """Post everything after a short pause, or that which the server asked for, but at the end at once."""
        for item in self.items:
            item.due = min(item.due, now)
        for route in self.routes.values():
            short = max(min(route.paused_until, now + _FLUSH_PAUSE), route.refused_until)
            route.paused_until = now if is_last else short


class DestinationAbsentError(ExportError):
    """There is no such server.

    Attributes:
        ask_again: seconds after which it may be worth asking again.
    """

    def __init__(self, ask_again: float = math.inf) -> None:
        super().__init__("there is no such server")
        self.ask_again = ask_again


class PostError(ExportError):
    """A post failed, and none of its items was stored."""


class TargetsMissingError(PostError):
    """Targets have not arrived at the server yet.

    Attributes:
        targets: their ids; empty for that of a post with one item.
    """

    def __init__(self, targets: frozenset[str] = frozenset()) -> None:
        super().__init__("targets are missing")
        self.targets = targets


class RejectedError(PostError):
    """The server does not accept what was sent, and never will."""


class UnavailableError(PostError):
    """The server cannot be reached, does not work, or wants another key. A later attempt may succeed.

    Attributes:
        retry_after: seconds for which the server wants to be left alone; 0 if it does not say.
        by_server: True for an answer 5xx: what was sent may be to blame.
    """

    def __init__(self, message: str, retry_after: float = 0.0, *, by_server: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.by_server = by_server


Outcomes = Sequence[PostError | None] | None
"""The error of each item that was posted; None if all are stored."""


class Destination(Protocol):
    """What a queue posts to: see :class:`rageval_hooks.exporters.score_api.ScoreServer`."""

    def post(self, route: str, bodies: Sequence[Any]) -> Outcomes:
        """Send the bodies of items of one route."""

    def hand_over(self, route: str, bodies: Sequence[Any]) -> bool:
        """Leave to the server what it cannot store yet. Returns False if the server does not keep it."""

    def close(self) -> None:
        """Close the connections."""


class DeliveryQueue:
    """Takes items and posts them once their targets have arrived.

    Spans travel through a batch span processor, perhaps through a collector, and arrive later than their scores. A
    request for a span that is not there fails as a whole: the rest is posted again at once, the items of the missing
    span later. After some time they are left to the server's own queue, or lost.

    Args:
        name: where the items go, for log lines, the thread and metrics.
        connect: returns the destination, or raises DestinationAbsentError. Called on the queue's own thread.
        capacity: items that may wait. Beyond it the newest are dropped and counted.
        what: what the items are, for log lines.
        max_request: size of the items in a request. A larger item has a request of its own.

    Attributes:
        max_bytes: size of the items that may wait. An empty queue always takes one item, whatever its size.
    """

    max_bytes: float = 128 * 2**20

    def __init__(
        self,
        name: str,
        connect: Callable[[], Destination],
        *,
        capacity: int = _CAPACITY,
        what: str = "scores",
        max_request: float = math.inf,
    ) -> None:
        self.name = name
        self.capacity = capacity
        self._connect = connect
        self._what = what
        self._max_request = max_request
        try:
            delay = max(0.0, float(os.environ.get("OTEL_BSP_SCHEDULE_DELAY", "5000")) / 1000)
        except ValueError:
            delay = 5.0
        self._patience = _PATIENCE + delay
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start empty. What was queued before a fork is the parent's, and so are its connections."""
        self._changed = threading.Condition()
        self._schedule = _Schedule(self._max_request)
        self._bounds = BoundedQueue(self.name, self.capacity, self.max_bytes)
        self._counts: Counter[str] = Counter()
        self._ended: Signal | None = None  # set at the end of the queue's thread; None before its start
        self._destination: Destination | None = None
        self._absent_until = -math.inf
        self._flushes = 0
        self._undelivered = 0
        self._closed_at: float | None = None
        self._gave_up = False
        self._limited_log = RateLimitedLogger(_logger)

    # -- on the threads of callers

    def put(self, items: Iterable[Item]) -> None:
        """Queue items. Never waits for the network."""
        now = time.monotonic()
        new = list(items)
        for item in new:
            item.size, item.queued_at = item.size or len(str(item.body)), now
            item.due = math.ceil((now + _TICK) / _TICK) * _TICK
        with self._changed:
            # Without a server nothing is kept: the queue would fill for nothing.
            if not new or now < self._absent_until:
                return
            bounds, is_closed = self._bounds, self._closed_at is not None
            bounds.max_bytes = self.max_bytes
            # The newest are dropped, since the oldest are closest to delivery.
            taken = [] if is_closed else [item for item in new if bounds.add(item.size)]
            if dropped := len(new) - len(taken):
                if is_closed:
                    bounds.drop(dropped)
                waiting = f"{bounds.pending} are waiting, {bounds.pending_bytes / 2**20:.1f} MiB"
                why = "it was shut down" if is_closed else waiting
                about = f"{self._what} for {self.name}"
                self._limited_log.warn("dropped", "%s are dropped: %s [RAGEVAL-505]", about, why)
            if not taken:
                return
            self._schedule.items += taken
            if self._ended is None or self._ended.is_set():
                # The thread lives for long: it must not keep the spans and variables of the turn that started it.
                run, ended = quiet_context().run, Signal()
                # With gevent no greenlet: it would end with the thread that made it, such as that of a flush.
                with suppress(RuntimeError):  # the interpreter is exiting: `close` delivers the items
                    start_daemon_thread(lambda: run(self._run, ended), f"rageval-{self.name.lower()}")
                    self._ended = ended
            self._changed.notify_all()

    def count(self, name: str, amount: int) -> None:
        """Add to a counter."""
        with self._changed:
            self._counts[name] += amount

    def stats(self) -> dict[str, int]:
        """Return the counters: items, and requests for ``errors``."""
        with self._changed:
            bounds = self._bounds
            return {
                "queued": bounds.pending,
                "queued_bytes": bounds.pending_bytes,
                **{name: self._counts[name] for name in _COUNTERS},
                "dropped": bounds.dropped,
                "dropped_by_size": bounds.dropped_by_size,
            }

    def flush(self, timeout: float) -> bool:
        """Deliver what is queued, with shorter pauses between attempts.

        Returns:
            True if everything since the last flush was delivered within the timeout. What was left to the server's own
            queue is not known to be delivered.
        """
        with self._changed:
            # Counted and not a flag: several threads may flush at the same time.
            self._flushes += 1
            self._hurry()
            try:
                empty = self._changed.wait_for(lambda: self._bounds.pending == 0, timeout)
            finally:
                self._flushes -= 1
            return self._nothing_undelivered() and empty

    def close(self, timeout: float) -> bool:
        """Deliver what is queued within the timeout. Items whose targets are missing are left to the server.

        Returns:
            False if something was lost or rejected since the last flush.
        """
        with self._changed:
            if self._closed_at is not None:
                return True
            self._closed_at = time.monotonic()
            self._hurry()
            ended = self._ended
        if ended is not None:
            ended.wait(timeout)
        elif self._schedule.items:  # the interpreter was exiting when the first item came
            with suppress(TimeoutError):
                within(lambda: self._run(Signal()), timeout)
        with self._changed:
            lost = self._forget_queued()
            self._counts["lost"] += lost
            complete = self._nothing_undelivered()
        if lost:
            _logger.warning(
                "rageval-hooks: %d %s could not be delivered to %s in time and are lost [RAGEVAL-605]",
                lost,
                self._what,
                self.name,
            )
        return complete

    def _hurry(self) -> None:
        """Post what waits soon; under the lock."""
        self._schedule.hurry(time.monotonic(), is_last=self._closed_at is not None)
        self._changed.notify_all()

    def _nothing_undelivered(self) -> bool:
        """Return True if everything since this was asked last was delivered; under the lock."""
        fates = ("handed_over", "rejected", "lost")
        undelivered = sum(self._counts[name] for name in fates) + self._bounds.dropped
        new, self._undelivered = undelivered - self._undelivered, undelivered
        return new == 0

    def _forget_queued(self) -> int:
        """Empty the queue, and return how many items it had; under the lock."""
        amount, self._bounds.pending, self._bounds.pending_bytes = self._bounds.pending, 0, 0
        self._schedule.items.clear()
        self._changed.notify_all()
        return amount

    # -- on the queue's thread

    def _run(self, ended: Signal) -> None:
        try:
            while batch := self._next_batch():
                self._deliver(batch)
            # On this thread, because HTTP clients are not always safe to close from another.
            if self._destination is not None:
                self._destination.close()
        finally:
            ended.set()

    def _next_batch(self) -> list[Item]:
        """Wait for items that are due and return those of one request; empty once the queue is closed and done."""
        with self._changed:
            while not self._gave_up and (self._schedule.items or self._closed_at is None):
                now = time.monotonic()
                if batch := self._schedule.take(now):
                    return batch
                wake = self._schedule.next_at
                self._changed.wait(None if wake == math.inf else max(0.0, wake - now))
            return []

    def _deliver(self, batch: list[Item]) -> None:
        """Post a batch. Whatever happens, each of its items is settled or waits again."""
        try:
            if self._destination is None:
                self._destination = self._connect()
            self._post(self._destination, batch)
        except DestinationAbsentError as absence:
            with self._changed:
                self._absent_until = time.monotonic() + absence.ask_again
                self._forget_queued()
        except Exception as error:
            # Only our own messages are known to hold no key.
            why = error if isinstance(error, RagevalError) else type(error).__name__
            about = f"{self._what} could not be posted to {self.name}"
            self._limited_log.warn("internal", "%s: %s [RAGEVAL-506]", about, why)
            self._settle("lost", batch)

    def _post(self, destination: Destination, batch: list[Item]) -> None:
        """Post a batch, and settle its items or let them wait, by the error of each."""
        delivered, missing = list[Item](), list[Item]()
        failed: dict[Item, UnavailableError] = {}
        route = self._schedule.routes[batch[0].route]
        for item, error in _outcomes(destination, batch).items():
            if error is None:
                delivered.append(item)
            elif isinstance(error, TargetsMissingError):
                missing.append(item)
            elif isinstance(error, UnavailableError) and not route.blames(item, error):
                failed[item] = error
            elif isinstance(error, (RejectedError, UnavailableError)):
                about = f"the {self._what.removesuffix('s')} {item.name}: it {error}"
                self._limited_log.warn("rejected", "%s does not accept %s [RAGEVAL-501]", self.name, about)
                self._settle("rejected", [item])
            else:
                self._settle("lost", [item])
        if len(failed) < len(batch):
            route.failures = 0
        if delivered:
            route.stored_at = time.monotonic()
        self._settle("delivered", delivered)
        if missing:
            self._wait_for_targets(destination, missing)
        if failed:
            self._pause(destination, failed, route)

    def _wait_for_targets(self, destination: Destination, batch: list[Item]) -> None:
        """Put items back until their spans arrive. Those that have waited for too long are given up."""
        now = time.monotonic()
        in_a_hurry = self._flushes or self._closed_at is not None
        for item in batch:
            item.missing_since = min(item.missing_since, now)
        late = [item for item in batch if self._is_late(item, now)]
        with self._changed:
            for item in batch:
                # After half a second at first, after five seconds in the end.
                item.due = now + (_FLUSH_WAIT if in_a_hurry else min(_MAX_WAIT, _TICK * 2**item.attempts))
                item.attempts += 1
            self._schedule.items += [item for item in batch if item not in late]
        if not late:
            return
        outcome = "lost"
        with suppress(PostError):
            if destination.hand_over(late[0].route, [item.body for item in late]):
                outcome = "handed_over"
        # So that they can be looked for: a server may lose spans that it has accepted when it is restarted.
        traces = ", ".join(dict.fromkeys(item.trace_id for item in late[:_MAX_NAMED]))
        if outcome == "lost":
            about = f"{self.name} does not have their spans (traces {traces})"
            self._limited_log.warn("missing", "%d scores are lost: %s [RAGEVAL-503]", len(late), about)
        else:
            self._limited_log.warn(
                "late",
                "after %.0f seconds %s does not have the spans of %d scores (traces %s). Were they lost, sent "
                "elsewhere, or sampled out on their way? [RAGEVAL-502]",
                now - late[0].queued_at,
                self.name,
                len(late),
                traces,
            )
        self._settle(outcome, late)

    def _is_late(self, item: Item, now: float) -> bool:
        """Return True if the span of an item should have arrived."""
        if self._closed_at is not None:
            return now - self._closed_at > _CLOSING_PATIENCE
        # After an outage the spans may still wait for the end of their own pause.
        was_down = item.missing_since - item.queued_at > self._patience
        return now - item.missing_since > self._patience + (_MAX_PAUSE if was_down else 0.0)

    def _pause(self, destination: Destination, failed: Mapping[Item, UnavailableError], route: _Route) -> None:
        """Put items back until the server is better. Those that have waited for too long are lost."""
        now = time.monotonic()
        longest = max(failed.values(), key=lambda error: error.retry_after)
        with self._changed:
            # A flush shortens our own backoff, but not the pause that the server asked for.
            route.refused_until = now + min(_MAX_PAUSE, longest.retry_after)
            route.paused_until = max(now + self._backoff(route.failures), route.refused_until)
            for item in failed:
                # Others of its route, which the server may store, do not wait for it.
                item.due = now + min(_MAX_WAIT, self._backoff(item.failures))
            if self._closed_at is not None:
                # A few short attempts; then the rest would fail, too, and `close` counts it as lost.
                route.paused_until = now + _FLUSH_WAIT
                self._gave_up = now - self._closed_at > _CLOSING_PATIENCE
            route.failures += 1
            self._counts["errors"] += 1
            self._schedule.items += [item for item in failed if now - item.queued_at <= _KEPT]
        waits = "Scores wait; the spans have them too" if self._what == "scores" else f"{self._what} wait"
        self._limited_log.warn("server", "%r %s. %s [RAGEVAL-504]", destination, longest, waits)
        self._settle("lost", [item for item in failed if now - item.queued_at > _KEPT])

    def _backoff(self, failures: int) -> float:
        """Return the seconds until the next attempt after some failures in a row."""
        # Single errors are common behind a load balancer, so the first pause is short; after six it is the longest.
        backoff = min(_MAX_PAUSE, _FIRST_PAUSE * 3.0 ** min(failures, 6))
        backoff *= _JITTER.uniform(0.8, 1.2)  # many processes share one server
        if self._closed_at is not None:
            return _FLUSH_WAIT
        return min(backoff, _FLUSH_PAUSE) if self._flushes else backoff

    def _settle(self, outcome: str, batch: list[Item]) -> None:
        """Count what became of items."""
        with self._changed:
            for item in batch:
                # After `close` an answer may still come for items that were counted as lost.
                if self._bounds.pending:
                    self._bounds.remove(item.size)
                    self._counts[outcome] += 1
            if self._bounds.pending == 0:
                self._changed.notify_all()


def _outcomes(destination: Destination, batch: list[Item]) -> dict[Item, PostError | None]:
    """Post a batch, and return the error of each item. If one may be to blame, the halves are posted again."""
    outcomes: dict[Item, PostError | None] = {}
    parts, halvings = [batch], 0
    while parts:
        refused = list[list[Item]]()
        for part in parts:
            try:
                errors = destination.post(part[0].route, [item.body for item in part]) or [None] * len(part)
                outcomes.update(zip(part, errors, strict=True))
            except TargetsMissingError as error:
                outcomes.update(dict.fromkeys(part, error))
                present = [item for item in part if item.target not in error.targets]
                if present and len(present) < len(part):  # else the server names others, or all
                    outcomes.update(_outcomes(destination, present))
            except PostError as error:
                outcomes.update(dict.fromkeys(part, error))
                is_suspect = isinstance(error, UnavailableError) and error.by_server and not error.retry_after
                if isinstance(error, RejectedError) or (is_suspect and part[0].failures >= _SUSPECT):
                    refused.append(part)
        is_down = halvings >= _HALVINGS and all(isinstance(error, UnavailableError) for error in outcomes.values())
        halves = [(part[: len(part) // 2], part[len(part) // 2 :]) for part in refused if len(part) > 1]
        parts = [] if is_down else [half for pair in halves for half in pair]
        halvings += 1
    return outcomes
