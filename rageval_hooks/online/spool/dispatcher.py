"""The durable dispatcher: jobs wait in a file, survive the process, and are evaluated once.

A job is stored first. The spool's thread claims as many jobs as there is room for; they are evaluated on the background
thread. Each result is stored before it is handed to the exporters, and the job is removed once the exporters have
delivered its results.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.dispatch import ThreadDispatcher, cancel_tasks
from rageval_hooks.online.engine import PASSING_FAILURES, Engine
from rageval_hooks.online.job import Job
from rageval_hooks.online.spool.store import Outcome, SpoolFile, StoredJob
from rageval_hooks.online.spool.thread import SpoolThread
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import ForkSafeLock, reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import local_pool
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.runtime.suppression import suppress
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.worker import BoundedQueue, Worker
from rageval_hooks.score import Evaluation, Failed, Skipped, metric_of
from rageval_hooks.settings import Settings

_logger = logging.getLogger(__name__)

_CONCURRENT = 32
"""Jobs of a process that are evaluated at the same time. The judge has its own limit."""

_REMEMBERED = 64
"""Own jobs of which the analysis is kept until they are evaluated; the others are read from the file."""

_MOST_TAKEOVERS = 10
"""A job that so many processes did not survive is given up: it may be what ends them."""

_MOST_DELIVERIES = 40
"""Attempts to deliver results. From the sixth on they are five minutes apart: about three hours together."""

_POLL = 0.05
_COUNT_SECONDS = 1.0
"""Seconds between two counts of what is in the file."""

_FLUSH_SECONDS = 10.0
"""Seconds that the exporters get to deliver results."""

_EVALUATION_SHARE = 0.7
"""Share of a shutdown's time for the jobs that are being evaluated; the rest is for the file."""

_COUNTS = (
    "accepted",
    "buffered",
    "stored",
    "duplicates",
    "in_memory",
    "refused",
    "dropped_queue_full",
    "dropped_spool_full",
    "dropped_memory_full",
    "finished",
    "redelivered",
    "taken_over",
    "lost_leases",
    "undelivered",
    "given_up",
    "unreadable",
)


class Deliver(Protocol):
    """Receives evaluations as they arrive."""

    def __call__(self, evaluation: Evaluation, is_repeated: bool = False) -> Awaitable[None]:
        """Deliver an evaluation; ``is_repeated`` is True if this process has delivered it before."""


class _Exported(NamedTuple):
    """A job whose results were handed to the exporters.

    Attributes:
        id: the job.
        waits: True if more results will come: the rest of the job waits for the judge.
    """

    id: int
    waits: bool


class _Attempt:
    """The outcome of an attempt to evaluate a job.

    Attributes:
        is_lost: True if another process has taken the job over.
        waits: True if metrics remain that wait for the judge.
        has_exported: True if results were handed to the exporters.
    """

    def __init__(self) -> None:
        self.is_lost = self.waits = self.has_exported = False


class _Pause:
    """A pause that doubles with each failure in a row, of the judge or of the exporters' backends.

    Args:
        shortest: seconds of the first pause.
    """

    _LONGEST = 300.0

    def __init__(self, shortest: float) -> None:
        self._shortest = shortest
        self._seconds = self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds until the pause ends; 0 without a pause."""
        return remaining(self._until)

    @property
    def is_trial(self) -> bool:
        """True after a pause, until it is known whether it works again."""
        return self._seconds > 0 and not self.left

    def begin(self) -> bool:
        """Note a failure. Returns True if a pause begins; False if one was running."""
        if self.left:
            return False
        self._seconds = min(max(self._shortest, self._seconds * 2), self._LONGEST)
        self._until = time.monotonic() + self._seconds
        return True

    def end(self) -> None:
        """Note that it works."""
        self._seconds = self._until = 0.0


class SpoolDispatcher:
    """Stores jobs in a file before they are evaluated, and removes them once their results are delivered.

    Several processes share the file. Each result is stored before it is delivered: after a crash it is delivered again,
    with the same ids and values, and not computed again. A job whose judge cannot be reached waits. If the file cannot
    be used, jobs are evaluated from memory.

    Args:
        engine: evaluates the jobs.
        worker: the background thread, on which jobs are evaluated and evaluations exported.
        deliver: receives evaluations as they arrive.
        drop: receives jobs that cannot be taken, with the reason; called on the background thread.
        flush: flushes the exporters within some seconds; returns False if something was not delivered.
        flush_interval: seconds between two flushes. An exporter keeps scores in memory for some seconds; a job that was
            removed when its scores were handed over would be lost with them.
        settings: the file and its limits.
        counters: count the jobs that a shutdown has cancelled.
    """

    name = "spool"

    def __init__(
        self,
        engine: Engine,
        worker: Worker,
        deliver: Deliver,
        drop: Callable[[Job, str], None],
        flush: Callable[[float], bool],
        flush_interval: float,
        settings: Settings,
        counters: Counters,
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._deliver = deliver
        self._drop = drop
        self._flush = flush
        self._flush_interval = flush_interval
        self._max_mb = settings.spool_max_mb
        self._lease = settings.spool_lease
        self._max_bytes = int(settings.queue_max_mb * 2**20)
        self.capacity = settings.queue_size
        self._queue = BoundedQueue("evaluate", _CONCURRENT * 2)
        self._refusals = BoundedQueue("refused", self.capacity, self._max_bytes)
        self._memory = ThreadDispatcher(engine, worker, deliver, drop, self.capacity, self._max_bytes, counters)
        self._log = RateLimitedLogger(_logger)
        self._lock = ForkSafeLock()
        path = Path(settings.spool_path).expanduser()
        make_file = partial(SpoolFile, path, int(settings.spool_max_mb * 2**20), settings.spool_lease)
        self._thread = SpoolThread(make_file, weakref.ref(self))
        self._closed = False
        self.reset_after_fork()
        reset_in_child(self)
        PROCESS_TOTALS.watch(self)
        _open_dispatchers.add(self)
        EXIT_DRAIN.add(_stop_claiming, "capture")
        EXIT_DRAIN.add(_drain, "evaluate", _has_jobs)
        weakref.finalize(self, self._thread.stop).atexit = False

    def reset_after_fork(self) -> None:
        """Forget what the parent has in memory: the parent finishes it."""
        self._counts: Counter[str] = Counter()
        self._buffered_bytes = 0
        self._known: OrderedDict[str, tuple[Job, TurnAnalysis]] = OrderedDict()
        self._in_flight: dict[int, int] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._judge_pause = _Pause(5.0)
        self._takes_jobs = not self._closed
        self._in_file = (0, 0, 0)
        self._counted_at = 0.0
        self._counted_changes = -1
        # Of the delivery.
        self._exported: list[_Exported] = []
        self._undelivered: list[_Exported] = []
        self._being_delivered: list[_Exported] = []
        self._delivery_pause = _Pause(10.0)
        self._flushed_at = -math.inf
        self._hurries_until = -math.inf

    @property
    def pending(self) -> int:
        """Jobs in memory: not stored yet, or being evaluated."""
        return self._counts["buffered"] + len(self._in_flight)

    # -- on the threads of callers

    def start(self) -> None:
        """Look for jobs that earlier processes have left."""
        EXIT_DRAIN.register()
        self._thread.start()
        self._thread.wake()

    def submit(self, job: Job, *, analysis: TurnAnalysis | None = None, in_memory: bool = False) -> bool:
        """Queue a job for the file, or for memory. Returns False, and counts, if too much waits."""
        EXIT_DRAIN.register()
        if in_memory:
            return self._memory.submit(job, analysis=analysis)
        key, text = job.key, job.model_dump_json()
        size = len(text)
        with self._lock:
            if (
                self._closed
                or self._counts["buffered"] >= self.capacity
                or self._buffered_bytes + size > self._max_bytes
            ):
                has_room = False
            else:
                has_room = True
                self._counts.update(accepted=1, buffered=1)
                self._buffered_bytes += size
                if analysis is not None:
                    self._known[key] = job, analysis
                    if len(self._known) > _REMEMBERED:
                        self._known.popitem(last=False)
        if not has_room:
            self._count_drop("queue_full")
            return False

        def stored(outcome: Future[Outcome]) -> None:
            error = outcome.exception()
            with self._lock:
                self._buffered_bytes -= size
                self._counts.update({"buffered": -1, "in_memory" if error else outcome.result(): 1})
            if error is not None:
                self._known.pop(key, None)
                if not self._memory.submit(job, analysis=analysis):
                    self._refuse(job, "memory_full", "the spool cannot be used, and too many turns wait in memory")
            elif outcome.result() == "refused":
                reason = f"the spool is full: {self._max_mb:g} MB"
                path = self._thread.file.path
                self._log.warn("full", "%s (%s); newer turns are not judged [RAGEVAL-403]", reason, path)
                self._refuse(job, "spool_full", reason)

        self._thread.post(lambda file: file.add(key, text)).add_done_callback(stored)
        return True

    def flush(self, timeout: float) -> bool:
        """Wait until the jobs of this process are evaluated and delivered.

        Returns:
            False if they were not in time, or if all that is left waits for a judge or a backend that cannot be
            reached.
        """
        end = time.monotonic() + timeout
        # Turns that are being exported have not come here yet.
        if not self._worker.flush(timeout):
            return False
        self._hurries_until = end
        try:
            while remaining(end):
                is_done = self._is_done(remaining(end))
                if is_done is not None:
                    return is_done and self._worker.flush(remaining(end))
                time.sleep(_POLL)
        finally:
            self._hurries_until = -math.inf
        return False

    def shutdown(self, timeout: float) -> bool:
        """Store what is in memory, finish what is being evaluated, and leave the rest to other processes.

        Returns:
            False if jobs were lost: neither stored nor evaluated.
        """
        end = time.monotonic() + timeout
        self._takes_jobs = False
        self._hurries_until = end
        self._worker.flush(timeout * _EVALUATION_SHARE)
        self._closed = True
        # Their jobs stay in the file.
        cancel_tasks(self._worker, self._running, remaining(end) / 2)
        while remaining(end) and self._is_busy:
            self._thread.wake()
            time.sleep(_POLL)
        is_stored = not self._counts["buffered"]
        wait_until(self._thread.post(SpoolFile.release_all).done, max(_POLL, remaining(end)))
        self._thread.stop()
        _open_dispatchers.discard(self)
        return self._memory.shutdown(remaining(end)) and is_stored

    def stats(self) -> dict[str, int]:
        """Return the counters of the queue in memory."""
        memory = self._memory.stats()
        return {
            "pending": self.pending + memory["pending"],
            "accepted": self._counts["accepted"],
            "dropped": self._counts["dropped"],
            "failed": self._queue.failed + memory["failed"],
        }

    def details(self) -> dict[str, int]:
        """Return the counters of the spool.

        ``accepted`` is the sum of ``buffered``, ``stored``, ``duplicates``, ``in_memory`` and ``refused``.
        """
        total, waiting, size = self._in_file
        with self._lock:
            counts = {name: self._counts[name] for name in _COUNTS}
        return {
            **counts,
            "evaluating": len(self._in_flight),
            "in_file": total,
            "waiting_for_judge": waiting,
            "file_bytes": size,
            "errors": self._thread.errors,
        }

    @property
    def _is_busy(self) -> bool:
        """True if something is not in the file yet that soon will be."""
        unconfirmed = self._exported or self._undelivered or self._being_delivered
        return self.pending > 0 or bool(unconfirmed and not self._delivery_pause.left)

    def _is_done(self, timeout: float) -> bool | None:
        """Return whether the own jobs are done; None if it is too early to say."""
        count = self._thread.post(lambda file: file.count(own=True))
        is_answered = wait_until(count.done, timeout) and count.exception() is None
        # A file that cannot be used has none of them.
        total, waiting = count.result() if is_answered else (0, 0)
        if self._is_busy:
            return None
        if total == 0:
            return True
        stays = self._delivery_pause.left > 0 or (total == waiting and not self._can_judge)
        return False if stays else None

    def _add(self, **amounts: int) -> None:
        with self._lock:
            self._counts.update(amounts)

    def _count_drop(self, cause: str) -> None:
        self._add(dropped=1, **{f"dropped_{cause}": 1})
        PROCESS_TOTALS.add_dropped("spool")

    def _refuse(self, job: Job, cause: str, reason: str) -> None:
        self._count_drop(cause)
        # Exporters are used on the background thread only.
        self._worker.submit(self._refusals, partial(self._drop, job, reason), job.turn.size)

    # -- on the spool's thread

    def claim(self, file: SpoolFile) -> list[StoredJob]:
        """Claim as many jobs as there is room for."""
        now = time.monotonic()
        if now - self._counted_at >= _COUNT_SECONDS:
            self._counted_at, self._counted_changes = now, self._changes
            self._in_file = (*file.count(), file.used_bytes())
        free = _CONCURRENT - len(self._in_flight)
        # A copy, because jobs end on the background thread meanwhile.
        free_bytes = self._max_bytes - sum(list(self._in_flight.values()))
        if not self._takes_jobs or free <= 0 or free_bytes <= 0:
            return []
        jobs = file.claim(free, waiting=False, max_bytes=free_bytes)
        if self._can_judge:
            # After a pause, one job finds out whether the judge works again.
            free = 1 if self._judge_pause.is_trial else free - len(jobs)
            free_bytes -= sum(len(job.text) for job in jobs)
            jobs += file.claim(max(0, free), waiting=True, max_bytes=free_bytes)
        numbers, file.unreadable = file.unreadable, []
        for number in numbers:
            self._note_set_aside(number, "the file is damaged")
        return jobs

    def take(self, jobs: list[StoredJob]) -> None:
        """Start to evaluate jobs."""
        for job in jobs:
            self._in_flight[job.id] = len(job.text)
            if not self._worker.submit(self._queue, partial(self._evaluate, job)):
                self._give_back(job, waiting=False)

    def pause(self) -> float:
        """Start to deliver what is due; return the seconds until the next look."""
        due = self._delivery_due_in()
        if due <= 0:
            self._start_delivery()
            due = self._delivery_due_in()
        pauses = [self._lease / 3, due]
        if self._judge_pause.left:
            pauses.append(self._judge_pause.left)
        if self._counted_changes != self._changes:
            pauses.append(_COUNT_SECONDS)
        return max(_POLL, min(pauses))

    @property
    def _changes(self) -> int:
        """Changes of the file by this process."""
        return self._counts["stored"] + self._counts["finished"]

    def _note_set_aside(self, number: int, why: str) -> None:
        self._add(unreadable=1)
        self._log.warn(
            "unreadable", "the job %d of the spool cannot be read, and is set aside: %s [RAGEVAL-406]", number, why
        )

    def _give_back(self, stored: StoredJob, *, waiting: bool) -> None:
        self._in_flight.pop(stored.id, None)
        # Kept until it worked: a job that is not given back would stay ours, and would not be claimed again.
        self._thread.post(lambda file: file.release(stored.id, waiting=waiting), is_kept=True)

    # -- delivery: a job is removed once the exporters have delivered its results

    def _delivery_due_in(self) -> float:
        """Return the seconds until the exporters are to be flushed; infinite if nothing waits for it."""
        if self._being_delivered or not (self._exported or self._undelivered):
            return math.inf
        # While a caller waits, results are delivered one by one.
        if remaining(self._hurries_until) or self._delivery_pause.left:
            return self._delivery_pause.left
        return max(0.0, self._flushed_at + self._flush_interval - time.monotonic())

    def _start_delivery(self) -> None:
        if self._undelivered:
            failed, self._undelivered = self._undelivered, []
            self._settle(failed, is_delivered=False)
        with self._lock:
            self._being_delivered, self._exported = self._exported, []
        self._flushed_at = time.monotonic()
        if not self._being_delivered:
            return
        try:
            self._worker.call(self._deliver_exported)
        except RuntimeError:  # the interpreter is exiting; the next process delivers them again
            self._being_delivered = []

    async def _deliver_exported(self) -> None:
        """Flush the exporters outside of the event loop, and settle the jobs that are handed over."""
        is_delivered, jobs = False, self._being_delivered
        try:
            is_delivered = await self._worker.in_thread(partial(self._flush, _FLUSH_SECONDS))
        finally:
            # In this order: who sees that nothing is pending must find the jobs removed.
            if is_delivered:
                self._delivery_pause.end()
                self._settle(jobs, is_delivered=True)
            else:
                # Given back after the pause: claimed at once, they would be handed over again at once.
                self._delivery_pause.begin()
                self._undelivered = jobs
            self._being_delivered = []
            self._thread.wake()

    def _settle(self, jobs: Sequence[_Exported], *, is_delivered: bool) -> None:
        """Remove jobs whose results are delivered; keep the others for another delivery."""

        def change(file: SpoolFile) -> None:
            for job in jobs:
                if not is_delivered:
                    file.release(job.id, waiting=job.waits, undelivered=True)
                elif job.waits:
                    file.note_delivery(job.id)
                    file.release(job.id, waiting=True)
                else:
                    file.finish(job.id)

        def settled(outcome: Future[None]) -> None:
            if outcome.exception() is None:
                self._add(finished=sum(not job.waits for job in jobs) if is_delivered else 0)
                return
            # The file cannot be changed now.
            self._delivery_pause.begin()
            with self._lock:
                self._exported.extend(jobs)

        self._thread.post(change).add_done_callback(settled)

    # -- evaluation, on the background thread

    @property
    def _can_judge(self) -> bool:
        """True if there is a judge, and it is not known to be unreachable."""
        return self._engine.judge is not None and not self._judge_pause.left

    async def _evaluate(self, stored: StoredJob) -> None:
        """Evaluate a job, and say what is to become of it in the file."""
        # The job runs as a task with its own context, so the suppression ends with it.
        suppress()
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        attempt = _Attempt()
        try:
            await self._try(stored, attempt)
        except asyncio.CancelledError:
            self._give_back(stored, waiting=False)
            return
        except Exception as error:
            # Without the message: it may quote the turn.
            self._note_set_aside(stored.id, type(error).__name__)
            self._in_flight.pop(stored.id, None)
            self._thread.post(lambda file: file.set_aside(stored.id), is_kept=True)
            return
        if attempt.is_lost or not attempt.has_exported:
            self._give_back(stored, waiting=attempt.waits)
            return
        with self._lock:
            self._exported.append(_Exported(stored.id, attempt.waits))
        self._in_flight.pop(stored.id, None)
        self._thread.wake()

    async def _try(self, stored: StoredJob, attempt: _Attempt) -> None:
        """Deliver the results that a job has, and compute those that it has not.

        Raises:
            ValueError: the job cannot be read: another version of this package wrote it.
        """
        # An own job has its live trace context, and what this process has computed already.
        known = self._known.pop(stored.key, None)
        job, analysis = known or (Job.model_validate_json(stored.text), None)
        if stored.takeovers:
            self._add(taken_over=1)
        done = await self._deliver_stored(job, stored, attempt)
        rest = job.only(set(job.names) - done)
        if not rest.metrics:
            return
        if stored.takeovers >= _MOST_TAKEOVERS:
            self._add(given_up=1)
            reason = f"given up: {stored.takeovers} processes ended while they evaluated this turn"
            await self._keep(stored, attempt, self._engine.skip(rest, reason).model_copy(update={"id": rest.key}))
            return
        local, judged = self._engine.split(rest)
        if judged.metrics and not self._can_judge:
            attempt.waits = True
            rest = local
        if rest.metrics:
            keep = partial(self._keep, stored, attempt)
            await self._engine.evaluate(
                rest, analysis=analysis, executor=local_pool(), on_part=keep, stage="background"
            )  # fmt: skip

    async def _deliver_stored(self, job: Job, stored: StoredJob, attempt: _Attempt) -> set[str]:
        """Deliver results of earlier attempts that are not delivered yet. Returns the names of their metrics."""
        names: set[str] = set()
        is_given_up = stored.deliveries >= _MOST_DELIVERIES
        if is_given_up:
            self._add(undelivered=1)
            self._log.warn(
                "undelivered", "scores of the spool could not be delivered for hours and are given up [RAGEVAL-405]"
            )
            attempt.has_exported = True
        for text, is_delivered in stored.results:
            evaluation = Evaluation.model_validate({**json.loads(text), "turn": job.turn})
            names.update(map(metric_of, evaluation.results))
            if not is_delivered and not is_given_up:
                self._add(redelivered=1)
                attempt.has_exported = True
                await self._deliver(evaluation, stored.deliveries > 0)
        return names

    async def _keep(self, stored: StoredJob, attempt: _Attempt, part: Evaluation) -> None:
        """Store a part of the results, then deliver it."""
        if any(isinstance(result, Failed) and result.error_type in PASSING_FAILURES for result in part.results):
            attempt.waits = True
            if self._judge_pause.begin():
                path = self._thread.file.path
                self._log.warn("judge", "the judge cannot be asked now: turns wait in %s [RAGEVAL-404]", path)
            return
        if any(not isinstance(result, Skipped) and result.annotator == "LLM" for result in part.results):
            self._judge_pause.end()
        text = part.model_dump_json(exclude={"turn"})
        try:
            is_kept = await asyncio.wrap_future(
                self._thread.post(lambda file: file.keep(stored.id, part.id or "", text))
            )  # fmt: skip
        except Exception:
            # Results that cannot be stored are delivered all the same: only after a crash are they computed again.
            is_kept = True
        if not is_kept:
            self._add(lost_leases=1)
            attempt.is_lost = True
            return
        attempt.has_exported = True
        await self._deliver(part)


# -- at exit


_open_dispatchers: weakref.WeakSet[SpoolDispatcher] = weakref.WeakSet()


def _stop_claiming(_timeout: float) -> None:
    for dispatcher in list(_open_dispatchers):
        dispatcher._takes_jobs = False


def _has_jobs() -> bool:
    return any(dispatcher.pending for dispatcher in list(_open_dispatchers))


def _drain(timeout: float) -> None:
    end = time.monotonic() + timeout
    for dispatcher in list(_open_dispatchers):
        dispatcher.shutdown(remaining(end))
