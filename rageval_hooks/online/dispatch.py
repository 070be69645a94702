"""Dispatchers carry jobs to where they are evaluated: here, to the background thread of this process."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Protocol

from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.delivery import Delivery
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import Job
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.pool import local_pool
from rageval_hooks.runtime.queues import BoundedQueue
from rageval_hooks.runtime.suppression import suppress
from rageval_hooks.runtime.worker import Worker
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings

_logger = logging.getLogger(__name__)

_UNDONE = "the end of the process or the shutdown did not wait for it any longer"


class Dispatcher(Protocol):
    """Carries jobs to an engine and their evaluations back.

    A dispatcher is bounded: it refuses jobs when it is full, and counts them. None of its methods raises.
    """

    async def submit(self, job: Job, *, analysis: TurnAnalysis | None = None) -> bool:
        """Take a job, in the event loop of the background thread. Its turn is exported next, before any of its results.

        Args:
            job: the turn and its metrics.
            analysis: what this process has already computed for the turn. A dispatcher that evaluates jobs in another
                process ignores it.

        Returns:
            False if the job was dropped.
        """

    def flush(self, timeout: float) -> bool:
        """Wait until every job so far is evaluated. Returns False if ``timeout`` seconds pass first."""

    def shutdown(self, timeout: float) -> bool:
        """Flush, then stop. Returns False if jobs remain that were not evaluated."""

    def stats(self) -> dict[str, int]:
        """Return the counters, among them ``dropped``."""


class ThreadDispatcher:
    """Evaluates jobs in the event loop of this process's background thread. Pending jobs end with the process.

    Args:
        engine: evaluates the jobs.
        worker: the background thread.
        delivery: receives evaluations, and jobs that the end of the process or of the pipeline leaves undone.
        settings: how many jobs may wait or run, and the size of their turns.
        counters: count the jobs that a shutdown has cancelled.
    """

    def __init__(
        self, *, engine: Engine, worker: Worker, delivery: Delivery, settings: Settings, counters: Counters
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._delivery = delivery
        self._queue = BoundedQueue("evaluate", settings.queue_size, settings.queue_max_mb * 2**20)
        self._closed = False
        self._counters = counters
        EXIT_DRAIN.add(self.give_up, "give_up", weak=True)

    async def submit(self, job: Job, *, analysis: TurnAnalysis | None = None) -> bool:
        """Queue a job. Returns False, and counts, if the queue is full."""
        return self._worker.submit(self._queue, partial(self._evaluate, job, analysis), job.turn.size)

    def flush(self, timeout: float) -> bool:
        """Wait until nothing is pending. Returns False if ``timeout`` seconds pass first."""
        return self._worker.flush(timeout)

    def shutdown(self, timeout: float) -> bool:
        """Wait, then cancel what is left. Returns False if jobs were cancelled."""
        end = time.monotonic() + timeout
        done = self.flush(timeout)
        undone = 0 if done else self._queue.pending
        if undone:
            _logger.warning("rageval-hooks: shut down with %d turns not fully evaluated [RAGEVAL-603]", undone)
            self.give_up(end - time.monotonic())
        self._closed = True
        return done

    def give_up(self, timeout: float) -> None:
        """Cancel what is pending. Its metrics are skipped, so that their traces say why they are missing."""
        self._closed = True
        if self._queue.pending:
            # Counted before cancelling: afterwards nothing is pending.
            self._counters.add("undone", self._queue.pending)
            self._worker.cancel(self._queue, timeout)

    def stats(self) -> dict[str, int]:
        """Return the counters of the queue."""
        return self._queue.stats()

    async def _evaluate(self, job: Job, analysis: TurnAnalysis | None) -> None:
        """Evaluate a job, unless a shutdown has passed its deadline."""
        # The job runs as a task with its own context, so the suppression ends with it.
        suppress()
        missing = set(job.names)

        async def deliver(part: Evaluation) -> None:
            await self._delivery.deliver(part, job)
            missing.difference_update(part.durations)

        try:
            if not self._closed:
                await self._engine.evaluate(
                    job, analysis=analysis, executor=local_pool(), on_part=deliver, stage="background"
                )
                return
        except asyncio.CancelledError:  # counted by the shutdown that cancelled it
            pass
        if missing:
            self._delivery.skip(job.only(missing), _UNDONE)
