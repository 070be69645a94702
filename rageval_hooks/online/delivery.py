"""Delivery: evaluations go to the exporters on the background thread, and exporters get a deadline to finish."""

from __future__ import annotations

import logging
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from opentelemetry.trace import TracerProvider

from rageval_hooks.exporters.base import AUTOMATIC, REGISTRY, Exporter
from rageval_hooks.online.counters import Counters
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.time_limit import remaining, within
from rageval_hooks.runtime.worker import BoundedQueue, Work, Worker
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings

_logger = logging.getLogger(__name__)

_CAPACITY = 10_000
_FLUSH_INTERVAL = 2.0
"""A batch processor of OpenTelemetry exports every five seconds. More flushes would mean more, smaller requests."""

_GRACE = 0.1
"""Seconds that an exporter gets to shut down when no time is left."""


_LOST = ("lost", "rejected", "dropped")
"""Ends of the names under which exporters count what they could not deliver."""

FlushReader = Literal["application", "spool"]
"""Who flushes the exporters: the application, or the spool, which keeps jobs until their results are delivered."""


class Delivery:
    """Hands evaluations to exporters, one at a time and in order.

    Args:
        exporters: the exporters.
        worker: the background thread.
        counters: count what goes wrong.
        max_bytes: size of the turns that may wait for their export.
    """

    def __init__(self, exporters: Sequence[Exporter], worker: Worker, counters: Counters, max_bytes: float) -> None:
        # Exporters of spans come first: score APIs wait until the spans have arrived.
        self._exporters = sorted(exporters, key=lambda exporter: not exporter.traces)
        self._worker = worker
        self._counters = counters
        self._queue = BoundedQueue("export", _CAPACITY, max_bytes)
        self._log = RateLimitedLogger(_logger)
        self._failed_exports = 0
        self._losses_counted = 0
        self._losses_seen: Counter[FlushReader] = Counter()

    @property
    def flush_interval(self) -> float:
        """Seconds between two flushes that find out what was delivered: 0 if no exporter buffers."""
        return _FLUSH_INTERVAL if any(exporter.buffers for exporter in self._exporters) else 0.0

    def submit(self, deliver: Work, size: int) -> bool:
        """Queue work for the background thread. Returns False, and counts, if too much is waiting.

        Args:
            deliver: the work.
            size: bytes of its turn.
        """
        if self._worker.submit(self._queue, deliver, size):
            return True
        waiting = self._queue.pending
        self._log.warn("full", "%d turns wait for their export: newer ones are dropped [RAGEVAL-202]", waiting)
        return False

    def annotate(self, evaluation: Evaluation) -> None:
        """Let every exporter add scores to a span of another tracer that is still open; on any thread."""
        if evaluation.turn.span is None or evaluation.turn.span.live_span is None:
            return
        for exporter in self._exporters:
            try:
                exporter.annotate(evaluation)
            except Exception as error:
                self._counters.add("export_errors")
                kind = f"annotate {exporter.name}"
                self._log.warn(kind, "the exporter %s failed [RAGEVAL-207]", exporter.name, error=error)

    def export(self, evaluation: Evaluation) -> None:
        """Hand an evaluation to every exporter; on the background thread."""
        for exporter in self._exporters:
            # Only an exporter that was used has something to deliver at exit.
            EXIT_DRAIN.add(exporter.shutdown, "export")
            try:
                exporter.export(evaluation)
            # One exporter that fails must not keep the others from their evaluation.
            except (Exception, SystemExit) as error:
                self._counters.add("export_errors")
                self._failed_exports += 1
                self._log.warn(
                    f"export {exporter.name}", "the exporter %s failed [RAGEVAL-206]", exporter.name, error=error
                )

    def flush(self, timeout: float, reader: FlushReader = "application") -> bool:
        """Flush the exporters.

        Args:
            timeout: seconds, for all together.
            reader: who flushes. An exporter says only once that something was lost, and each reader has to learn of it.

        Returns:
            False if an exporter was not done in time, or if since the reader's last flush an export has failed or
            something was lost.
        """
        end = time.monotonic() + timeout
        done = True
        for exporter in self._exporters:
            left, began = remaining(end), time.monotonic()
            if self._finish(exporter, "flush", left):
                continue
            done = False
            if left:
                lost = ", ".join(f"{count} {name}" for name, count in _losses_of(exporter).items() if count)
                is_in_time = time.monotonic() - began < left
                self._log.warn(
                    f"flush {exporter.name}",
                    "the exporter %s has not delivered everything %s [RAGEVAL-218]",
                    exporter.name,
                    f"({lost})" if is_in_time and lost else f"within {left:.1f} seconds",
                )
        losses = self._losses()
        seen, self._losses_seen[reader] = self._losses_seen[reader], losses
        return done and losses <= seen

    def _losses(self) -> int:
        """Return how much was not delivered and never will be: evaluations, and what exporters have counted."""
        counted = sum(sum(_losses_of(exporter).values()) for exporter in self._exporters)
        # What exporters find out by themselves, such as a refusal of the server, is an export error as well.
        new, self._losses_counted = counted - self._losses_counted, max(counted, self._losses_counted)
        self._counters.add("export_errors", max(0, new))
        return self._failed_exports + self._queue.failed + counted

    def shutdown(self, timeout: float, owner: Any) -> bool:
        """Shut down the exporters that no other pipeline uses. Returns False if one of them could not finish in time.

        Args:
            timeout: seconds, for all together.
            owner: the pipeline that uses the exporters.
        """
        end = time.monotonic() + timeout
        done = True
        for exporter in self._exporters:
            if shared_exporters.give_back(exporter, owner):
                EXIT_DRAIN.remove(exporter.shutdown)
                done = self._finish(exporter, "shutdown", end - time.monotonic()) and done
        self._losses()
        return done

    def stats(self) -> dict[str, int]:
        """Return the counters of the queue."""
        return self._queue.stats()

    def exporter_stats(self) -> dict[str, dict[str, int]]:
        """Return what each exporter has counted, by the exporter's name."""
        counted = {exporter.name: dict(exporter.stats()) for exporter in self._exporters}
        return {name: counts for name, counts in counted.items() if counts}

    def _finish(self, exporter: Exporter, method: str, timeout: float) -> bool:
        """Call ``flush`` or ``shutdown`` of an exporter, on a thread that may be left behind if it hangs."""
        timeout = max(0.0, timeout)
        wait = max(_GRACE, timeout)
        try:
            return within(lambda: getattr(exporter, method)(timeout) is not False, wait)
        except Exception as error:
            self._counters.add("internal_errors")
            kind = f"{method} {exporter.name}"
            self._log.warn(kind, "the exporter %s failed to %s [RAGEVAL-208]", exporter.name, method, error=error)
            return False


def _losses_of(exporter: Exporter) -> dict[str, int]:
    """Return how much an exporter could not deliver, by its own names, such as ``log_events_lost``."""
    return {name: count for name, count in exporter.stats().items() if name.endswith(_LOST)}


class _SharedExporters:
    """Exporters by name or class. Pipelines with the same settings share them, so that creating handlers is cheap."""

    def __init__(self) -> None:
        # With the pipelines that use an exporter. Weak references: a handler that was dropped counts no more.
        self._made: dict[tuple[Any, ...], tuple[Exporter, weakref.WeakSet[Any]]] = {}
        self._lock = ForkSafeLock()

    def get(self, given: Any, settings: Settings, tracer_provider: TracerProvider | None) -> Exporter:
        """Return the exporter of a name or class and settings, always the same one; return an instance unchanged."""

        def make(kind: type[Exporter]) -> Exporter:
            return kind.from_settings(settings, tracer_provider)

        # An instance belongs to the user: it is neither shared nor closed for others.
        if not isinstance(given, (str, type)):
            return REGISTRY.create(given, make)
        key = given, settings.model_dump_json(), settings.phoenix_endpoint, tracer_provider and id(tracer_provider)
        with self._lock:
            if key not in self._made:
                self._made[key] = REGISTRY.create(given, make, others=[AUTOMATIC]), weakref.WeakSet()
            return self._made[key][0]

    def take(self, pipeline: Any, exporters: Sequence[Exporter]) -> None:
        """Note that a pipeline uses exporters, for as long as the pipeline exists."""
        with self._lock:
            for made, users in self._made.values():
                if any(made is exporter for exporter in exporters):
                    users.add(pipeline)

    def give_back(self, exporter: Exporter, pipeline: Any) -> bool:
        """Note that a pipeline no longer uses an exporter. Returns True if the exporter must be shut down now."""
        with self._lock:
            for key, (made, users) in list(self._made.items()):
                if made is exporter:
                    users.discard(pipeline)
                    if users:
                        return False
                    del self._made[key]
        return True


shared_exporters = _SharedExporters()
