"""A bounded queue and a daemon thread that deliver items to a score API."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

from rageval_hooks.errors import RagevalError
from rageval_hooks.exporters.delivery.batches import (
    BATCH,
    Parcel,
    all_bodies,
    batches,
    by_age,
    by_target,
    count_bytes,
    count_items,
    halves,
    pack,
    without_first,
)
from rageval_hooks.exporters.delivery.destination import (
    Destination,
    DestinationAbsentError,
    PostError,
    TargetsMissingError,
    UnavailableError,
)
from rageval_hooks.exporters.delivery.item import Item
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.runtime.suppression import quiet_context
from rageval_hooks.runtime.tracing.random_ids import RANDOM

__all__ = ["DeliveryQueue"]

_logger = logging.getLogger(__name__)

_CAPACITY = 20_000
"""Items that may wait, at about 1 KiB each."""

_MAX_BYTES = 128 * 2**20

_KEPT = 600.0
"""Seconds that items are kept for a server that cannot be reached."""

_PATIENCE = 20.0
"""Seconds that a span may take to arrive, in addition to the delay of the batch span processor."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 60.0
_HURRIED_WAIT = 0.1
_HURRIED_PAUSE = 1.0
_CLOSING_PAUSES = (0.1, 0.2, 0.3)

_NAME_FIELDS = ("name", "key", "label")
"""Where score APIs have a score's name."""

_COUNTERS = ("delivered", "handed_over", "rejected", "dropped", "dropped_by_size", "lost", "unplaced", "errors")
_UNDELIVERED = ("rejected", "dropped", "lost")


class DeliveryQueue:
    """Takes items and posts them once their targets have arrived.

    Spans travel through a batch span processor, perhaps through a collector, and arrive later than their scores. A
    request for a span that is not there fails as a whole: the rest is posted again at once, the items of the missing
    span later. After some time they are left to the server's own queue.

    Args:
        name: the backend's name, for log lines, the thread and metrics.
        connect: returns the destination, or raises DestinationAbsentError. Called on the queue's own thread.
        capacity: items that may wait. Beyond it the newest are dropped and counted.
        max_bytes: their size. The items of one call are always taken by an empty queue, whatever their size.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Destination],
        *,
        capacity: int = _CAPACITY,
        max_bytes: float = _MAX_BYTES,
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.max_bytes = max_bytes
        self._connect = connect
        self._patience = _PATIENCE + _schedule_delay()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start empty. What was queued before a fork is the parent's, and so are its connections."""
        self._changed = threading.Condition()
        self._waiting: list[Parcel] = []
        self._queued = 0
        self._queued_bytes = 0
        self._counts: Counter[str] = Counter()
        self._thread: threading.Thread | None = None
        self._destination: Destination | None = None
        self._absent_until = -math.inf
        self._paused_until = -math.inf
        self._failed_at = -math.inf
        self._failures = 0
        self._flushes = 0
        self._undelivered = 0
        self._closed = False
        self._limited_log = RateLimitedLogger(_logger)

    @property
    def pending(self) -> int:
        """How many items wait."""
        return self._queued

    # -- on the threads of callers

    def put(self, items: Iterable[Item]) -> None:
        """Queue items. Never waits for the network."""
        now = time.monotonic()
        parcels = pack(items, now)
        amount, size = count_items(parcels), count_bytes(parcels)
        with self._changed:
            # Without a server nothing is kept: the queue would fill for nothing.
            if not amount or now < self._absent_until:
                return
            # The newest are dropped, since the oldest are closest to delivery.
            is_too_large = self._queued > 0 and self._queued_bytes + size > self.max_bytes
            if self._closed or is_too_large or self._queued + amount > self.capacity:
                self._drop(amount, by_size=is_too_large)
                return
            self._queued += amount
            self._queued_bytes += size
            self._waiting += parcels
            # From the first item on: metrics do not list the queues of backends that are not in use.
            PROCESS_TOTALS.watch(self)
            self._start()
            self._changed.notify_all()

    def _drop(self, amount: int, *, by_size: bool) -> None:
        """Count items that are not taken; under the lock."""
        self._counts["dropped"] += amount
        self._counts["dropped_by_size"] += amount if by_size else 0
        PROCESS_TOTALS.add_dropped(self.name, amount)
        waiting = f"{self._queued} are waiting, {self._queued_bytes / 2**20:.1f} MiB"
        why = "it was shut down" if self._closed else waiting
        self._limited_log.warn("dropped", "scores for %s are dropped: %s [RAGEVAL-505]", self.name, why)

    def count(self, name: str, amount: int) -> None:
        """Add to a counter."""
        with self._changed:
            self._counts[name] += amount

    def stats(self) -> dict[str, int]:
        """Return the counters: items, and requests for ``errors``."""
        with self._changed:
            counts = {name: self._counts[name] for name in _COUNTERS}
            return {"queued": self._queued, "queued_bytes": self._queued_bytes, **counts}

    def flush(self, timeout: float) -> bool:
        """Deliver what is queued, with shorter pauses between attempts.

        Returns:
            True if everything since the last flush was delivered or handed over within the timeout.
        """
        with self._changed:
            # Counted and not a flag: several threads may flush at the same time.
            self._flushes += 1
            self._changed.notify_all()
            try:
                empty = self._changed.wait_for(lambda: self._queued == 0, timeout)
            finally:
                self._flushes -= 1
            return self._nothing_undelivered() and empty

    def close(self, timeout: float) -> bool:
        """Deliver what is queued within the timeout. Items whose targets are missing are left to the server.

        Returns:
            False if something was lost or rejected since the last flush.
        """
        with self._changed:
            if self._closed:
                return True
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join(timeout)
        with self._changed:
            lost, self._queued, self._queued_bytes = self._queued, 0, 0
            self._counts["lost"] += lost
            complete = self._nothing_undelivered()
        if lost:
            _logger.warning(
                "rageval-hooks: %d scores could not be posted to %s in time and are lost [RAGEVAL-605]", lost, self.name
            )
        return complete

    def _nothing_undelivered(self) -> bool:
        """Return True if nothing was rejected, dropped or lost since this was asked last; under the lock."""
        undelivered = sum(self._counts[name] for name in _UNDELIVERED)
        new, self._undelivered = undelivered - self._undelivered, undelivered
        return new == 0

    def _start(self) -> None:
        """Start the thread. While the interpreter exits none can be started, and the items count as lost."""
        if self._thread is not None and self._thread.is_alive():
            return
        # The thread lives for long: it must not keep the spans and variables of the turn that started it.
        context = quiet_context()
        name = f"rageval-{self.name.lower()}"
        thread = threading.Thread(target=lambda: context.run(self._run), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return
        self._thread = thread

    # -- on the queue's thread

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
        if now < self._pause_end():
            return []
        due = [parcel for parcel in self._waiting if self._due(parcel) <= now]
        batch = next(batches(due), [])
        taken = set(map(id, batch))
        self._waiting = [parcel for parcel in self._waiting if id(parcel) not in taken]
        return batch

    def _until_next(self) -> float | None:
        if not self._waiting:
            return None
        due = max(self._pause_end(), min(map(self._due, self._waiting)))
        return max(0.0, due - time.monotonic())

    def _due(self, parcel: Parcel) -> float:
        return min(parcel.due, parcel.tried_at + _HURRIED_WAIT) if self._flushes else parcel.due

    def _pause_end(self) -> float:
        return min(self._paused_until, self._failed_at + _HURRIED_PAUSE) if self._flushes else self._paused_until

    def _deliver(self, parcels: list[Parcel], *, confirmed: bool = True) -> None:
        """Post parcels of one route. Whatever happens, each of them is settled or waits again."""
        try:
            if self._destination is None:
                self._destination = self._connect()
            self._post(self._destination, parcels, confirmed=confirmed)
        except DestinationAbsentError as absence:
            self._forget_everything(absence.ask_again)
        except Exception as error:
            # Only our own messages are known to hold no key.
            why = error if isinstance(error, RagevalError) else type(error).__name__
            self._limited_log.warn("internal", "scores could not be posted to %s: %s [RAGEVAL-506]", self.name, why)
            self._settle("lost", parcels)

    def _forget_everything(self, ask_again: float) -> None:
        with self._changed:
            self._absent_until = time.monotonic() + ask_again
            self._waiting.clear()
            self._queued = self._queued_bytes = 0
            self._changed.notify_all()

    def _post(self, destination: Destination, parcels: list[Parcel], *, confirmed: bool) -> None:
        outcome = "handed_over" if destination.own_queue and not confirmed else "delivered"
        try:
            destination.post(parcels[0].route, all_bodies(parcels), confirmed=confirmed)
        except PostError as error:
            if error.taken:
                self._failures = 0
                size = count_bytes(parcels)
                parcels = without_first(parcels, error.taken)
                self._count_settled(outcome, error.taken, size - count_bytes(parcels))
            self._handle(destination, parcels, error, confirmed=confirmed)
        else:
            self._failures = 0
            self._settle(outcome, parcels)

    def _handle(self, destination: Destination, parcels: list[Parcel], error: PostError, *, confirmed: bool) -> None:
        """Settle items that were not posted, or let them wait."""
        if isinstance(error, UnavailableError):
            self._pause(destination, parcels, error)
            return
        self._failures = 0
        if isinstance(error, TargetsMissingError):
            missing, present = by_target(parcels, error.targets)
            if present:
                self._post(destination, present, confirmed=confirmed)
            if confirmed:
                self._wait_for_targets(destination, missing)
            else:
                self._give_up(missing)
            return
        self._reject(destination, parcels, error, confirmed=confirmed)

    def _reject(self, destination: Destination, parcels: list[Parcel], error: PostError, *, confirmed: bool) -> None:
        """Count a rejected item. Of several items, perhaps one is to blame: the halves are posted again."""
        if count_items(parcels) > 1:
            for part in halves(parcels):
                self._post(destination, part, confirmed=confirmed)
            return
        body = parcels[0].bodies[0]
        name = next((body[field] for field in _NAME_FIELDS if field in body), None)
        self._limited_log.warn(
            "rejected", "%s does not accept the score %s: it %s [RAGEVAL-501]", self.name, name, error
        )
        self._settle("rejected", parcels)

    def _wait_for_targets(self, destination: Destination, parcels: list[Parcel]) -> None:
        now = time.monotonic()
        # While the queue closes, all of them wait for the last attempts of `_finish`.
        patience = math.inf if self._closed else self._patience
        late, early = by_age(parcels, now, patience)
        with self._changed:
            for parcel in early:
                parcel.postpone(now)
            self._waiting += early
        if not late:
            return
        self._limited_log.warn(
            "late",
            "after %.0f seconds %s does not have the spans of %d scores. Are the spans sent elsewhere, or sampled out "
            "on their way? [RAGEVAL-502]",
            now - late[0].queued_at,
            self.name,
            count_items(late),
        )
        self._post(destination, late, confirmed=False)

    def _give_up(self, parcels: list[Parcel]) -> None:
        """Count items whose targets did not arrive; the server has no queue for them."""
        amount = count_items(parcels)
        self._limited_log.warn(
            "missing", "%d scores are lost: %s does not have their spans [RAGEVAL-503]", amount, self.name
        )
        self._settle("lost", parcels)

    def _pause(self, destination: Destination, parcels: list[Parcel], error: UnavailableError) -> None:
        """Put parcels back until the server is better. Those that have waited for too long are lost."""
        now = time.monotonic()
        old, young = by_age(parcels, now, _KEPT)
        # Single errors are common behind a load balancer, so the first pause is short; after six it is the longest.
        backoff = min(_LONGEST_PAUSE, _FIRST_PAUSE * 3.0 ** min(self._failures, 6))
        backoff *= RANDOM.uniform(0.8, 1.2)  # many processes share one server
        asked = min(_LONGEST_PAUSE, error.retry_after or 0.0)
        with self._changed:
            self._paused_until = now + max(backoff, asked)
            # A flush shortens our own backoff, but not the pause that the server asked for.
            self._failed_at = now + max(0.0, asked - _HURRIED_PAUSE)
            self._failures += 1
            self._counts["errors"] += 1
            self._waiting += young
        self._limited_log.warn(
            "server", "%r %s. Scores wait; the spans have them too [RAGEVAL-504]", destination, error
        )
        if old:
            self._settle("lost", old)

    def _settle(self, outcome: str, parcels: list[Parcel]) -> None:
        """Count what became of parcels."""
        self._count_settled(outcome, count_items(parcels), count_bytes(parcels))

    def _count_settled(self, outcome: str, amount: int, size: int) -> None:
        with self._changed:
            # After `close` an answer may still come for items that were counted as lost.
            amount = min(self._queued, amount)
            self._queued -= amount
            self._queued_bytes = max(0, self._queued_bytes - size)
            self._counts[outcome] += amount
            if self._queued == 0:
                self._changed.notify_all()

    def _finish(self) -> None:
        """Post everything once more, then leave to the server what has no target yet or would take too long."""
        for pause in _CLOSING_PAUSES:
            if not self._waiting or self._failures or count_items(self._waiting) > 2 * BATCH:
                break
            self._deliver_all(confirmed=True)
            time.sleep(pause if self._waiting else 0)  # a server stores new spans within a moment
        self._deliver_all(confirmed=False)
        # On this thread, because HTTP clients are not always safe to close from another.
        if self._destination is not None:
            self._destination.close()

    def _deliver_all(self, *, confirmed: bool) -> None:
        with self._changed:
            parcels, self._waiting = self._waiting, []
        failures = self._failures
        for batch in batches(parcels):
            if self._failures > failures:  # the server failed just now: the rest would fail too
                self._waiting += batch
            else:
                self._deliver(batch, confirmed=confirmed)


def _schedule_delay() -> float:
    """Return the delay of the batch span processor in seconds, as the SDK reads it."""
    try:
        return max(0.0, float(os.environ.get("OTEL_BSP_SCHEDULE_DELAY", "5000")) / 1000)
    except ValueError:
        return 5.0
