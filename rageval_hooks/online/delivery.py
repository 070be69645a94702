"""Delivery: evaluations go to ``on_evaluation`` and to the exporters, which get a deadline to finish."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from rageval_hooks.exporters.base import ContentPolicy, Exporter, hide
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.job import Job
from rageval_hooks.online.shared_exporters import shared_exporters
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.queues import BoundedQueue
from rageval_hooks.runtime.suppression import suppressed
from rageval_hooks.runtime.time_limit import remaining, within
from rageval_hooks.runtime.worker import Work, Worker
from rageval_hooks.score import Evaluation

_logger = logging.getLogger(__name__)

_CAPACITY = 10_000
_FLUSH_INTERVAL = 2.0
"""A batch processor of OpenTelemetry exports every five seconds. More flushes would mean more, smaller requests."""

_GRACE = 0.1
"""Seconds that an exporter gets to shut down when no time is left."""


_LOST = ("lost", "rejected", "dropped")
"""Ends of the names under which exporters count what they could not deliver."""

OnEvaluation = Callable[[Evaluation], None]

FlushReader = Literal["application", "jobs"]
"""Who flushes the exporters: the application, or who keeps jobs until their results are delivered: spool or broker."""


class Delivery:
    """Hands evaluations to exporters, one at a time and in order.

    Args:
        exporters: the exporters.
        worker: the background thread.
        counters: count results, and what goes wrong.
        privacy: what may leave the process.
        content: the texts that exporters may get.
        max_bytes: size of the turns that may wait for their export.
        on_evaluation: called with every evaluation.
    """

    def __init__(
        self,
        *,
        exporters: Sequence[Exporter],
        worker: Worker,
        counters: Counters,
        privacy: PrivacyPolicy,
        content: ContentPolicy,
        max_bytes: float,
        on_evaluation: OnEvaluation | None = None,
    ) -> None:
        # Exporters of spans come first: score APIs wait until the spans have arrived.
        self._exporters = sorted(exporters, key=lambda exporter: not exporter.traces)
        self._content = content
        shared_exporters.take(self, exporters)
        self._worker = worker
        self._counters = counters
        self._privacy = privacy
        self._on_evaluation = on_evaluation
        self._queue = BoundedQueue("export", _CAPACITY, max_bytes)
        self._log = RateLimitedLogger(_logger)
        self._failed_exports = 0
        self._losses_counted = 0
        self._losses_seen: Counter[FlushReader] = Counter()

    @property
    def flush_interval(self) -> float:
        """Seconds between two flushes that find out what was delivered: 0 if no exporter buffers."""
        return _FLUSH_INTERVAL if any(exporter.buffers for exporter in self._exporters) else 0.0

    @property
    def has_callback(self) -> bool:
        """True if there is an ``on_evaluation``."""
        return self._on_evaluation is not None

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
        for exporter, shown in self._shown(evaluation, self._content):
            try:
                exporter.annotate(shown)
            except BaseException as error:  # also those that end a thread: this one has other turns to do
                self._counters.add("export_errors")
                kind = f"annotate {exporter.name}"
                self._log.warn(kind, "the exporter %s failed [RAGEVAL-207]", exporter.name, error=error)

    def _shown(self, evaluation: Evaluation, content: ContentPolicy) -> Iterator[tuple[Exporter, Evaluation]]:
        """Yield each exporter with the evaluation as it may get it: of all policies, the strictest."""
        policies = [self._content & content & exporter.content for exporter in self._exporters]
        shown = {policy: hide(evaluation, policy) for policy in set(policies)}
        for exporter, policy in zip(self._exporters, policies, strict=True):
            yield exporter, shown[policy]

    def call_back(self, evaluation: Evaluation) -> None:
        """Call ``on_evaluation``."""
        if self._on_evaluation is None:
            return
        try:
            with suppressed():
                self._on_evaluation(evaluation)
        except BaseException as error:
            self._counters.add("callback_errors")
            self._log.warn("on_evaluation", "on_evaluation raised [RAGEVAL-205]", error=error)

    async def deliver(self, evaluation: Evaluation, job: Job, is_repeated: bool = False) -> None:
        """Deliver late results, in the event loop of the background thread.

        Args:
            evaluation: the results.
            job: the job that they are of.
            is_repeated: True after a delivery that failed: only the exporters get them again.
        """
        if not is_repeated:
            self._counters.counted(evaluation)
            if self.has_callback:
                # It may block, and must not stop the event loop of all other turns.
                await self._worker.in_thread(lambda: self.call_back(evaluation))
        self.export(evaluation, job)

    def skip(self, job: Job, reason: str) -> None:
        """Show on the trace why the metrics of a job are missing; on the background thread."""
        self.export(self._counters.counted(job.skipped(reason)), job)

    def export(self, evaluation: Evaluation, job: Job | None = None, *, to: Exporter | None = None) -> None:
        """Hand an evaluation to every exporter, or to one of them; on the background thread.

        Args:
            evaluation: the results.
            job: the job that they are of; None for a turn of this process.
            to: one of the exporters; None for all.
        """
        # A job of another process may come from the spool as that process has stored it, with other settings.
        if evaluation.stage == "background" and self._privacy.active:
            evaluation = evaluation.model_copy(update={"turn": self._privacy.turn(evaluation.turn)})
        for exporter, shown in self._shown(evaluation, self._content if job is None else job.content):
            if to is not None and exporter is not to:
                continue
            # Only an exporter that was used has something to deliver at exit.
            EXIT_DRAIN.add(exporter.shutdown, "export")
            try:
                exporter.export(shown)
            # One exporter that fails must not keep the others from their evaluation.
            except BaseException as error:
                self._counters.add("export_errors")
                self._failed_exports += 1
                self._log.warn(
                    f"export {exporter.name}", "the exporter %s failed [RAGEVAL-206]", exporter.name, error=error
                )

    def flush(self, timeout: float, *, reader: FlushReader = "application") -> bool:
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

    def shutdown(self, timeout: float) -> bool:
        """Shut down the exporters that no other pipeline uses. Returns False if one of them could not finish in time.

        Args:
            timeout: seconds, for all together.
        """
        end = time.monotonic() + timeout
        done = True
        for exporter in self._exporters:
            if shared_exporters.give_back(exporter, self):
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
            kind = f"{method} {exporter.name}"
            unexpected = None if isinstance(error, TimeoutError) else error  # then a server does not answer
            if unexpected:
                self._counters.add("internal_errors")
            self._log.warn(
                kind, "the exporter %s failed to %s: %s [RAGEVAL-208]", exporter.name, method, error, error=unexpected
            )
            return False


def _losses_of(exporter: Exporter) -> dict[str, int]:
    """Return how much an exporter could not deliver, by its own names, such as ``log_events_lost``."""
    return {name: count for name, count in exporter.stats().items() if name.endswith(_LOST)}
