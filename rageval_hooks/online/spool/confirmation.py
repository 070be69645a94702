"""Confirmation: a job is removed from the spool once the exporters have delivered its results."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rageval_hooks.online.spool.pauses import Pause
from rageval_hooks.runtime.fork import ForkSafeLock, reset_in_child
from rageval_hooks.runtime.pool import DaemonPool

__all__ = ["Confirmation", "Exported"]

_FLUSH_SECONDS = 10.0


class Exported(NamedTuple):
    """A job whose results were handed to the exporters.

    Attributes:
        id: the job.
        waits: True if more results will come: the rest of the job waits for the judge.
    """

    id: int
    waits: bool


class Confirmation:
    """Collects jobs whose results were exported, and flushes the exporters now and then.

    An exporter keeps scores in memory for some seconds. A job that was removed when its scores were handed over would
    be lost with them.

    Args:
        flush: flushes the exporters within some seconds; returns False if something was not delivered.
        interval: seconds between two flushes.
    """

    def __init__(self, flush: Callable[[float], bool], interval: float) -> None:
        self._flush = flush
        self._interval = interval
        self._lock = ForkSafeLock()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start empty."""
        self._exported: list[Exported] = []
        self._under_way: list[Exported] = []
        self._failed: list[Exported] = []
        self._executor: DaemonPool | None = None
        self._hurries = 0
        self._started_at = -math.inf
        self._pause = Pause(10.0, 300.0)

    @property
    def pending(self) -> int:
        """Jobs that are exported and not confirmed."""
        return len(self._exported) + len(self._under_way) + len(self._failed)

    @property
    def due_in(self) -> float:
        """Seconds until the next flush is due; infinite if there is nothing to confirm."""
        is_empty = not self._exported and not self._failed
        if is_empty or self._under_way:
            return math.inf
        if self._hurries or self._pause.left:
            return self._pause.left
        return max(0.0, self._started_at + self._interval - time.monotonic())

    @property
    def is_paused(self) -> bool:
        """True for a while after a delivery that failed."""
        return self._pause.left > 0

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Flush at once while a caller waits."""
        with self._lock:
            self._hurries += 1
        try:
            yield
        finally:
            with self._lock:
                self._hurries -= 1

    def add(self, jobs: Iterable[Exported]) -> None:
        """Note that the results of some jobs were handed to the exporters."""
        with self._lock:
            self._exported.extend(jobs)

    def put_back(self, jobs: Iterable[Exported]) -> None:
        """Confirm jobs again after a pause: the file could not be changed."""
        self._pause.begin()
        self.add(jobs)

    def start(self, confirmed: Callable[[list[Exported], bool], None]) -> None:
        """Flush the exporters, if that is due, on a thread that may wait for them.

        Args:
            confirmed: receives the jobs, and whether their results were delivered. If not, after a pause.
        """
        if self.due_in > 0:
            return
        if self._failed:
            failed, self._failed = self._failed, []
            confirmed(failed, False)
        if not self._exported:
            return
        with self._lock:
            self._under_way, self._exported = self._exported, []
        self._started_at = time.monotonic()
        if self._executor is None:
            self._executor = DaemonPool(1, "rageval-spool-confirm")
            # Its thread ends with the pipeline, not with the process.
            weakref.finalize(self, self._executor.shutdown).atexit = False
        self._executor.submit(self._run, self._under_way, confirmed)

    def _run(self, jobs: list[Exported], confirmed: Callable[[list[Exported], bool], None]) -> None:
        is_delivered = False
        try:
            is_delivered = self._flush(_FLUSH_SECONDS)
        finally:
            # In this order: who sees that nothing is pending must find the jobs removed.
            if is_delivered:
                self._pause.end()
                confirmed(jobs, True)
            else:
                self._pause.begin()
                self._failed = jobs
            self._under_way = []
