"""Delivery: evaluations go to the exporters on the background thread, and exporters get a deadline to finish."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from rageval_hooks.exporters.base import Exporter
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.exporter_pool import shared_exporters
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.time_limit import within
from rageval_hooks.runtime.worker import Lane, Worker
from rageval_hooks.score import Evaluation

__all__ = ["Delivery"]

_logger = logging.getLogger(__name__)

_CAPACITY = 10_000
_FLUSH_INTERVAL = 2.0
"""A batch processor of OpenTelemetry exports every five seconds. More flushes would mean more, smaller requests."""

_GRACE = 0.1
"""Seconds that an exporter gets to shut down when no time is left."""


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
        self._lane = Lane("export", _CAPACITY, max_bytes)
        self._log = RateLimitedLogger(_logger)

    @property
    def flush_interval(self) -> float:
        """Seconds between two flushes that find out what was delivered: 0 if no exporter holds anything back."""
        is_direct = all(type(exporter).flush is Exporter.flush for exporter in self._exporters)
        return 0.0 if is_direct else _FLUSH_INTERVAL

    def submit(self, deliver: Callable[[], None], size: int) -> bool:
        """Queue work for the background thread. Returns False, and counts, if too much is waiting.

        Args:
            deliver: the work.
            size: bytes of its turn.
        """
        if self._worker.submit(self._lane, deliver, size):
            return True
        waiting = self._lane.pending
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
                self._log.warn(
                    f"export {exporter.name}", "the exporter %s failed [RAGEVAL-206]", exporter.name, error=error
                )

    def flush(self, timeout: float) -> bool:
        """Flush the exporters. Returns False if one of them could not deliver everything in time."""
        end = time.monotonic() + timeout
        done = True
        for exporter in self._exporters:
            done = self._finish(exporter, "flush", end - time.monotonic()) and done
        return done

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
        return done

    def stats(self) -> dict[str, int]:
        """Return the counters of the queue."""
        return self._lane.stats()

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
