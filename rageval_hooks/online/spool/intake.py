"""Takes new jobs: they wait in memory until they are in the file, for some milliseconds."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.dispatch import ThreadDispatcher
from rageval_hooks.online.job import Job
from rageval_hooks.online.spool.options import SpoolOptions
from rageval_hooks.online.spool.store import Added, NewJob
from rageval_hooks.online.spool.tally import Tally
from rageval_hooks.online.spool.thread import Command, SpoolThread
from rageval_hooks.runtime.fork import ForkSafeLock, reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.runtime.worker import BoundedQueue, Worker

__all__ = ["SpoolIntake"]

_logger = logging.getLogger(__name__)

_REMEMBERED = 64
"""Jobs of which the analysis is kept until they are evaluated; the others are read from the file."""


class SpoolIntake:
    """Hands new jobs to the thread that uses the file. Jobs that cannot be stored are evaluated from memory.

    Args:
        thread: uses the file.
        memory: evaluates jobs that cannot be stored.
        worker: the background thread.
        drop: receives jobs that cannot be taken, with the reason; called on the background thread.
        options: the limits.
        tally: counts.

    Attributes:
        closed: True to take no more jobs.
    """

    def __init__(
        self,
        thread: SpoolThread,
        memory: ThreadDispatcher,
        worker: Worker,
        drop: Callable[[Job, str], None],
        options: SpoolOptions,
        tally: Tally,
    ) -> None:
        self._thread = thread
        self._memory = memory
        self._worker = worker
        self._drop = drop
        self._options = options
        self._tally = tally
        self._refusals = BoundedQueue("refused", options.memory_jobs, options.memory_bytes)
        self._log = RateLimitedLogger(_logger)
        self._lock = ForkSafeLock()
        self.closed = False
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget the parent's jobs: the parent stores them."""
        self._live: OrderedDict[str, tuple[Job, TurnAnalysis]] = OrderedDict()

    def add(self, job: Job, analysis: TurnAnalysis | None) -> bool:
        """Queue a job for the file. Returns False, and counts, if too much waits for the file."""
        new = NewJob(job.key, job.model_dump_json())
        with self._lock:
            if not self._has_room(len(new.text)):
                self._count_dropped("queue_full")
                return False
            self._tally.add(accepted=1, buffered=1, buffered_bytes=len(new.text))
            if analysis is not None:
                self._remember(new.key, job, analysis)
        command = Command(
            lambda file: file.add(new),
            done=lambda added: self._added(job, new, added),
            failed=lambda _: self._evaluate_from_memory(job, analysis, new),
        )
        self._thread.post(command)
        return True

    def live(self, key: str) -> tuple[Job, TurnAnalysis] | None:
        """Return an own job with its live trace context and its analysis, once; None if it is not known any more."""
        return self._live.pop(key, None)

    def _has_room(self, size: int) -> bool:
        if self.closed or self._tally["buffered"] >= self._options.memory_jobs:
            return False
        return self._tally["buffered_bytes"] + size <= self._options.memory_bytes

    def _remember(self, key: str, job: Job, analysis: TurnAnalysis) -> None:
        self._live[key] = (job, analysis)
        if len(self._live) > _REMEMBERED:
            self._live.popitem(last=False)

    def _count_dropped(self, cause: str) -> None:
        self._tally.add(dropped=1, **{f"dropped_{cause}": 1})
        PROCESS_TOTALS.add_dropped("spool")

    # -- on the spool's thread

    def _added(self, job: Job, new: NewJob, added: Added) -> None:
        if added.stored:
            self._leave_buffer(new, "stored" if added.is_new else "duplicates")
            return
        self._leave_buffer(new, "refused")
        reason = f"the spool is full: {self._options.max_bytes / 2**20:g} MB"
        self._log.warn("full", "%s (%s); newer turns are not judged [RAGEVAL-403]", reason, self._options.path)
        self._refuse(job, "spool_full", reason)

    def _evaluate_from_memory(self, job: Job, analysis: TurnAnalysis | None, new: NewJob) -> None:
        """Evaluate a job that could not be stored."""
        self._leave_buffer(new, "in_memory")
        self._live.pop(new.key, None)
        if not self._memory.submit(job, analysis=analysis):
            self._refuse(job, "memory_full", "the spool cannot be used, and too many turns wait in memory")

    def _leave_buffer(self, new: NewJob, outcome: str) -> None:
        self._tally.add(buffered=-1, buffered_bytes=-len(new.text), **{outcome: 1})

    def _refuse(self, job: Job, cause: str, reason: str) -> None:
        self._count_dropped(cause)
        # Exporters are used on the background thread only.
        self._worker.submit(self._refusals, partial(self._drop, job, reason), job.turn.size)
