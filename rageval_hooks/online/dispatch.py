"""Dispatchers carry jobs to where they are evaluated: here, to the background thread of this process."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Protocol

from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import Job
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.pool import local_pool
from rageval_hooks.runtime.suppression import suppress
from rageval_hooks.runtime.worker import BoundedQueue, Worker
from rageval_hooks.score import Evaluation

_logger = logging.getLogger(__name__)

_CANCEL_SECONDS = 0.1
"""How long a shutdown waits for cancelled jobs to end."""

_UNDONE = "the end of the process or the shutdown did not wait for it any longer"


class Dispatcher(Protocol):
    """Carries jobs to an engine and their evaluations back.

    A dispatcher is bounded: it refuses jobs when it is full, and counts them. None of its methods raises.
    """

    def submit(self, job: Job, *, analysis: TurnAnalysis | None = None, in_memory: bool = False) -> bool:
        """Take a job without blocking.

        Args:
            job: the turn and its metrics.
            analysis: what this process has already computed for the turn. A dispatcher that evaluates jobs in another
                process ignores it.
            in_memory: True for a job that only this process can evaluate, with its analysis.

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
        deliver: receives evaluations as they arrive; awaited in the background thread's event loop.
        drop: receives jobs that the end of the process or of the pipeline leaves undone, with the reason.
        capacity: jobs that may wait or run.
        max_bytes: size of their turns.
        counters: count the jobs that a shutdown has cancelled.
    """

    def __init__(
        self,
        engine: Engine,
        worker: Worker,
        deliver: Callable[[Evaluation], Awaitable[None]],
        drop: Callable[[Job, str], None],
        capacity: int,
        max_bytes: float,
        counters: Counters,
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._deliver = deliver
        self._drop = drop
        self._queue = BoundedQueue("evaluate", capacity, max_bytes)
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._counters = counters
        _dispatchers.add(self)
        # Before the steps of the exporters, which are added when they export for the first time.
        EXIT_DRAIN.add(_give_up_at_exit, "export")

    def submit(self, job: Job, *, analysis: TurnAnalysis | None = None, in_memory: bool = False) -> bool:
        """Queue a job. Returns False, and counts, if the queue is full."""
        return self._worker.submit(self._queue, partial(self._evaluate, job, analysis), job.turn.size)

    def flush(self, timeout: float) -> bool:
        """Wait until nothing is pending. Returns False if ``timeout`` seconds pass first."""
        return self._worker.flush(timeout)

    def shutdown(self, timeout: float) -> bool:
        """Wait, then cancel what is left. Returns False if jobs were cancelled."""
        end = time.monotonic() + timeout
        done = self.flush(timeout)
        self._closed = True
        undone = self._queue.pending
        if not done and undone:
            _logger.warning("rageval-hooks: shut down with %d turns not fully evaluated [RAGEVAL-603]", undone)
            self.give_up(end - time.monotonic())
        return done

    def give_up(self, timeout: float) -> None:
        """Cancel what is pending. Its metrics are skipped, so that their traces say why they are missing."""
        self._closed = True
        # Counted before cancelling: afterwards nothing is pending.
        undone = self._queue.pending
        if undone:
            self._counters.add("undone", undone)
            cancel_tasks(self._worker, self._running, timeout)

    def stats(self) -> dict[str, int]:
        """Return the counters of the queue."""
        return self._queue.stats()

    async def _evaluate(self, job: Job, analysis: TurnAnalysis | None) -> None:
        """Evaluate a job, unless a shutdown has passed its deadline."""
        # The job runs as a task with its own context, so the suppression ends with it.
        suppress()
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
        missing = set(job.names)

        async def deliver(part: Evaluation) -> None:
            await self._deliver(part)
            missing.difference_update(part.durations)

        try:
            if self._closed:
                self._drop(job, _UNDONE)
            else:
                await self._engine.evaluate(
                    job, analysis=analysis, executor=local_pool(), on_part=deliver, stage="background"
                )
        except asyncio.CancelledError:  # counted by the shutdown that cancelled it
            if missing:
                self._drop(job.only(missing), _UNDONE)
        finally:
            if task is not None:
                self._running.discard(task)


_dispatchers: weakref.WeakSet[ThreadDispatcher] = weakref.WeakSet()


def _give_up_at_exit(timeout: float) -> None:
    """Let the traces say what the exit did not wait for."""
    for dispatcher in list(_dispatchers):
        dispatcher.give_up(timeout)


def cancel_tasks(worker: Worker, running: Collection[asyncio.Task[Any]], timeout: float) -> None:
    """Cancel tasks of a worker's event loop, and wait until they have ended."""

    async def cancel() -> None:
        tasks = list(running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    if not running:
        return
    try:
        worker.call(cancel).result(max(_CANCEL_SECONDS, timeout))
    except Exception:
        _logger.warning("rageval-hooks: background jobs did not end when they were cancelled [RAGEVAL-604]")
