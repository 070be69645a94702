"""What waits to be posted to Phoenix: one daemon thread, a bounded queue, and patience with spans on their way."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable

from rageval_hooks.errors import RagevalError
from rageval_hooks.exporters.phoenix.annotations import Annotation
from rageval_hooks.exporters.phoenix.batches import BATCH, Parcel, batches, halves, pack, size
from rageval_hooks.exporters.phoenix.server import (
    AbsentError,
    PhoenixServer,
    RefusedError,
    SpansMissingError,
    UnreachableError,
    quiet_context,
)
from rageval_hooks.runtime.ids import RANDOM
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger

__all__ = ["Outbox"]

_logger = logging.getLogger(__name__)

_CAPACITY = 20_000
"""Annotations that may wait; at about 1 KiB each."""

_KEPT = 600.0
"""Seconds that annotations are kept for a server that cannot be reached."""

_PATIENCE = 20.0
"""Seconds that a span may take to arrive, beside the delay of the batch span processor."""

_LONGEST_PAUSE = 60.0
_HURRY = 0.1
_CLOSING_PAUSES = (0.1, 0.2, 0.3)


class Outbox:
    """Takes annotations, and posts them once their spans have arrived.

    Spans travel through a batch span processor, perhaps through a collector, and come later than their scores. Posted
    with ``sync=true``, a request for a span that is not there is answered with 404 and the ids of what is missing: the
    rest is posted again at once, the missing ones are tried again. After a while they are handed over to the server
    with ``sync=false``: it goes on looking for 10 minutes. It could do so from the start, but it looks every
    10 seconds only, and says nothing of what it drops.

    Args:
        connect: returns the server, or raises AbsentError. Called on the outbox's own thread.
        capacity: annotations that may wait; beyond it the newest are dropped and counted.
    """

    def __init__(self, connect: Callable[[], PhoenixServer], *, capacity: int = _CAPACITY) -> None:
        self._connect = connect
        self._capacity = capacity
        self._patience = _PATIENCE + _schedule_delay()
        self._reset()
        if hasattr(os, "register_at_fork"):
            method = weakref.WeakMethod(self._reset)
            os.register_at_fork(after_in_child=lambda: (reset := method()) and reset())

    def _reset(self) -> None:
        """Begin anew: what was queued before a fork is the parent's, its connections too."""
        self._changed = threading.Condition()
        self._waiting: list[Parcel] = []
        self._queued = 0
        self._counts: Counter[str] = Counter()
        self._thread: threading.Thread | None = None
        self._server: PhoenixServer | None = None
        self._absent_until = -math.inf
        self._paused_until = -math.inf
        self._failed_at = -math.inf
        self._failures = 0
        self._hurrying = 0
        self._undelivered = 0
        self._closed = False
        self._limited_log = RateLimitedLogger(_logger)

    # -- on the threads of others

    def put(self, annotations: Iterable[Annotation]) -> None:
        """Queue annotations. Never waits for the network."""
        parcels = pack(annotations, now := time.monotonic())
        amount = size(parcels)
        with self._changed:
            if not amount or now < self._absent_until:
                return
            if self._closed or self._queued + amount > self._capacity:
                self._counts["dropped"] += amount
                why = "it was shut down" if self._closed else f"{self._queued} wait already"
                self._limited_log.warn("dropped", "scores for Phoenix are dropped: %s", why)
                return
            self._queued += amount
            self._waiting += parcels
            self._start()
            self._changed.notify_all()

    def count(self, name: str, amount: int) -> None:
        """Add to a counter."""
        with self._changed:
            self._counts[name] += amount

    def stats(self) -> dict[str, int]:
        """Return the counters; they count annotations, ``errors`` requests."""
        with self._changed:
            return {"queued": self._queued, **{name: self._counts[name] for name in _COUNTERS}}

    def flush(self, timeout: float) -> bool:
        """Deliver what is queued, with shorter pauses between attempts.

        Returns:
            True if everything since the last flush was delivered or handed over within the timeout.
        """
        with self._changed:
            self._hurrying += 1
            self._changed.notify_all()
            try:
                empty = self._changed.wait_for(lambda: self._queued == 0, timeout)
            finally:
                self._hurrying -= 1
            return self._nothing_undelivered() and empty

    def _nothing_undelivered(self) -> bool:
        """Return True if nothing was rejected or lost since this was asked last; under the lock."""
        undelivered = sum(self._counts[name] for name in ("rejected", "dropped", "lost"))
        new, self._undelivered = undelivered - self._undelivered, undelivered
        return new == 0

    def close(self, timeout: float) -> bool:
        """Deliver what is queued within the timeout; annotations whose spans are missing are left to the server.

        Returns:
            False if something was lost or rejected since the last flush.
        """
        with self._changed:
            if self._closed:
                return True
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread.is_alive():
            thread.join(timeout)
        elif self._waiting:  # no thread could be started: the interpreter is at its exit
            quiet_context().run(self._finish)
        with self._changed:
            lost, self._queued = self._queued, 0
            self._counts["lost"] += lost
            complete = self._nothing_undelivered()
        if lost:
            _logger.warning("rageval-hooks: %d scores could not be posted to Phoenix in time and are lost", lost)
        return complete

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        context = quiet_context()
        self._thread = threading.Thread(target=lambda: context.run(self._run), name="rageval-phoenix", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is going down: close() does it
            self._thread = None

    # -- on the outbox's thread

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (batch := self._take()) and not self._closed:
                    self._changed.wait(self._until_next())
                if self._closed:
                    self._waiting += batch
                    break
            self._deliver(batch)
        self._finish()

    def _take(self) -> list[Parcel]:
        """Return the parcels of the next request; under the lock."""
        now = time.monotonic()
        due = [parcel for parcel in self._waiting if self._due(parcel) <= now]
        if not due or now < self._pause_end():
            return []
        batch = next(batches(due))
        taken = set(map(id, batch))
        self._waiting = [parcel for parcel in self._waiting if id(parcel) not in taken]
        return batch

    def _until_next(self) -> float | None:
        if not self._waiting:
            return None
        due = max(self._pause_end(), min(map(self._due, self._waiting)))
        return max(0.0, due - time.monotonic())

    def _due(self, parcel: Parcel) -> float:
        return min(parcel.due, parcel.tried_at + _HURRY) if self._hurrying else parcel.due

    def _pause_end(self) -> float:
        return min(self._paused_until, self._failed_at + 1.0) if self._hurrying else self._paused_until

    def _deliver(self, parcels: list[Parcel], *, sync: bool = True) -> None:
        """Post parcels of one route; whatever happens, each is settled or waits again."""
        try:
            if self._server is None:
                self._server = self._connect()
            self._post(self._server, parcels, sync=sync)
        except AbsentError as absence:
            with self._changed:
                self._absent_until = time.monotonic() + absence.ask_again
                self._waiting.clear()
                self._queued = 0
                self._changed.notify_all()
        except Exception as error:
            why = error if isinstance(error, RagevalError) else type(error).__name__
            self._limited_log.warn("internal", "scores could not be posted to Phoenix: %s", why)
            self._settle("lost", parcels)

    def _post(self, server: PhoenixServer, parcels: list[Parcel], *, sync: bool) -> None:
        bodies = [body for parcel in parcels for body in parcel.bodies]
        try:
            server.post(parcels[0].route, bodies, sync=sync)
        except SpansMissingError as error:
            self._failures = 0
            missing = [parcel for parcel in parcels if parcel.span_id in error.span_ids]
            if present := [parcel for parcel in parcels if parcel.span_id not in error.span_ids]:
                self._post(server, present, sync=sync)
            self._wait_for_spans(server, missing)
        except RefusedError as error:
            self._failures = 0
            if len(bodies) > 1:  # the rest of it may be all right
                for part in halves(parcels):
                    self._post(server, part, sync=sync)
                return
            self._limited_log.warn("refused", "Phoenix does not take the score %s: it %s", bodies[0]["name"], error)
            self._settle("rejected", parcels)
        except UnreachableError as error:
            self._cannot(server, parcels, error)
        else:
            self._failures = 0
            self._settle("delivered" if sync else "handed_over", parcels)

    def _wait_for_spans(self, server: PhoenixServer, parcels: list[Parcel]) -> None:
        now = time.monotonic()
        late = [parcel for parcel in parcels if now - parcel.born > self._patience and not self._closed]
        with self._changed:
            for parcel in parcels:
                parcel.postpone(now)
            self._waiting += [parcel for parcel in parcels if parcel not in late]
        if late:
            self._limited_log.warn(
                "late",
                "after %.0f seconds Phoenix has not got the spans of %d scores; it is left to look for them for 10 "
                "minutes. Are the spans sent elsewhere, or sampled out on their way?",
                now - late[0].born,
                size(late),
            )
            self._post(server, late, sync=False)

    def _cannot(self, server: PhoenixServer, parcels: list[Parcel], error: UnreachableError) -> None:
        """Put parcels back until the server is better; those that have waited for long are lost."""
        now = time.monotonic()
        old = [parcel for parcel in parcels if now - parcel.born > _KEPT]
        with self._changed:
            pause = min(_LONGEST_PAUSE, 2.0 ** min(self._failures, 10))
            self._paused_until = now + pause * RANDOM.uniform(0.8, 1.2)  # many processes, one server
            self._failed_at = now
            self._failures += 1
            self._counts["errors"] += 1
            self._waiting += [parcel for parcel in parcels if parcel not in old]
        self._limited_log.warn("server", "%r %s. Scores wait; they are on the spans all the same", server, error)
        if old:
            self._settle("lost", old)

    def _settle(self, outcome: str, parcels: Iterable[Parcel]) -> None:
        with self._changed:
            amount = min(self._queued, size(parcels))
            self._queued -= amount
            self._counts[outcome] += amount
            if self._queued == 0:
                self._changed.notify_all()

    def _finish(self) -> None:
        """Post everything once more, then leave to the server what has no span yet, or would take too long."""
        for pause in _CLOSING_PAUSES:
            if not self._waiting or self._failures or size(self._waiting) > 2 * BATCH:
                break
            self._deliver_all(sync=True)
            time.sleep(pause if self._waiting else 0)  # spans that were sent just now are stored within a moment
        self._deliver_all(sync=False)
        if self._server is not None:
            self._server.close()

    def _deliver_all(self, *, sync: bool) -> None:
        with self._changed:
            parcels, self._waiting = self._waiting, []
        failures = self._failures
        for batch in batches(parcels):
            if self._failures > failures:  # it is no use
                self._waiting += batch
            else:
                self._deliver(batch, sync=sync)


_COUNTERS = ("delivered", "handed_over", "rejected", "dropped", "lost", "unplaced", "errors")


def _schedule_delay() -> float:
    """Return the delay of the batch span processor in seconds, as the SDK reads it."""
    try:
        return max(0.0, float(os.environ.get("OTEL_BSP_SCHEDULE_DELAY", "5000")) / 1000)
    except ValueError:
        return 5.0
