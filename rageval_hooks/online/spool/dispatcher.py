"""The durable dispatcher: jobs wait in a file, survive the process, and are evaluated once.

A job is stored first. The spool's thread, the only one that uses the file, claims as many jobs as there is room for;
they are evaluated on the background thread. Each result is stored before it is handed to the exporters, and the job is
removed once the exporters have delivered its results.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any, Protocol, TypeVar

from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.dispatch import ThreadDispatcher, cancel_tasks
from rageval_hooks.online.engine import PASSING_FAILURES, Engine
from rageval_hooks.online.job import Job
from rageval_hooks.online.spool.store import Outcome, SpoolFile, StoredJob
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import ForkSafeLock, delay_forks, is_fork_waiting, reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import local_pool
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.runtime.suppression import suppress
from rageval_hooks.runtime.threads import SimpleQueue, start_daemon_thread, wait_until
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.worker import BoundedQueue, Worker
from rageval_hooks.score import Evaluation, Failed, Skipped, metric_of
from rageval_hooks.settings import Settings

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_CONCURRENT = 32
"""Jobs of a process that are evaluated at the same time. The judge has its own limit."""

_REMEMBERED = 64
"""Own jobs of which the analysis is kept until they are evaluated; the others are read from the file."""

_MOST_TAKEOVERS = 10
"""A job that so many processes did not survive is given up: it may be what ends them."""

_MOST_DELIVERIES = 40
"""Attempts to deliver results. From the sixth on they are five minutes apart: about three hours together."""

_BATCH = 256
"""Requests of one transaction, at most."""

# All in seconds.
_POLL = 0.05
_LINGER = 0.02
"""The file stays open so long after a batch: work comes in bursts, and opening costs a millisecond."""

_LONGEST_SESSION = 1.0
"""Then the file is closed and opened again: it may have been moved away meanwhile."""

_REST_SECONDS = 10.0
"""After a failure, the file is not used for so long: each attempt costs up to two seconds."""

_COUNT_SECONDS = 1.0
"""Between two counts of what is in the file."""

_FLUSH_SECONDS = 10.0
"""The exporters get so long to deliver results."""

_LONGEST_PAUSE = 300.0

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
    "errors",
)


class Deliver(Protocol):
    """Receives evaluations as they arrive."""

    def __call__(self, evaluation: Evaluation, is_repeated: bool = False) -> Awaitable[None]:
        """Deliver an evaluation; ``is_repeated`` is True if this process has delivered it before."""


_Request = tuple[Callable[[SpoolFile], Any], Future[Any]]
"""Something to do with the file, inside of a transaction; gets the result once it is on the disk, or the error."""


class _Attempt:
    """An attempt to evaluate a job.

    Attributes:
        stored: the job.
        is_lost: True if another process has taken the job over.
        waits: True if metrics remain that wait for the judge.
        has_exported: True if results were handed to the exporters.
    """

    def __init__(self, stored: StoredJob) -> None:
        self.stored = stored
        self.is_lost = self.waits = self.has_exported = False


class _Pause:
    """A pause that doubles with each failure in a row, of the judge or of the exporters' backends.

    Args:
        shortest: seconds of the first pause.
    """

    def __init__(self, shortest: float) -> None:
        self._shortest = shortest
        self._seconds = self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds until the pause ends; 0 without a pause."""
        return remaining(self._until)

    def begin(self) -> bool:
        """Note a failure. Returns True if a pause begins; False if one was running."""
        if self.left:
            return False
        self._seconds = min(max(self._shortest, self._seconds * 2), _LONGEST_PAUSE)
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
        size = int(settings.spool_max_mb * 2**20)
        self._make_file = partial(SpoolFile, Path(settings.spool_path).expanduser(), size, settings.spool_lease)
        self._file = self._make_file()
        self._closed = False
        self.reset_after_fork()
        reset_in_child(self)
        PROCESS_TOTALS.watch(self)
        _open_dispatchers.add(self)
        EXIT_DRAIN.add(_stop_claiming, "capture")
        EXIT_DRAIN.add(_drain, "evaluate", _has_jobs)

    def reset_after_fork(self) -> None:
        """Forget what the parent has in memory: the parent finishes it. The child's thread starts when it is needed."""
        # Forks wait until the file is closed. If one did not wait long enough, SQLite's memory is wrong in this child.
        self._unusable = self._file.is_open
        self._file = self._make_file()
        self._counts: Counter[str] = Counter()
        self._buffer = BoundedQueue("spool", self.capacity, self._max_bytes)
        self._known: dict[str, tuple[Job, TurnAnalysis]] = {}
        self._in_flight: dict[int, int] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._judge_pause = _Pause(5.0)
        self._takes_jobs = not self._closed
        self._in_file = (0, 0, 0)
        self._counted_at = 0.0
        self._is_counted = False
        self._hurries_until = 0.0
        # Jobs whose results were handed to the exporters.
        self._exported: list[_Attempt] = []
        self._confirming: asyncio.Task[None] | None = None
        self._delivery_pause = _Pause(10.0)
        # Of the spool's thread.
        self._requests = SimpleQueue()
        self._changes: list[Callable[[SpoolFile], None]] = []
        self._problems: set[str] = set()
        self._rests_until = 0.0
        self._error: Exception = OSError("this process was forked while the file was in use")
        self._started = self._stopped = False

    @property
    def pending(self) -> int:
        """Jobs in memory: not stored yet, or being evaluated."""
        return self._buffer.pending + len(self._in_flight)

    # -- on the threads of callers

    def start(self) -> None:
        """Look for jobs that earlier processes have left."""
        EXIT_DRAIN.register()
        self._post(SpoolFile.forget_pauses)

    def submit(self, job: Job, *, analysis: TurnAnalysis | None = None, in_memory: bool = False) -> bool:
        """Queue a job for the file, or for memory. Returns False, and counts, if too much waits."""
        EXIT_DRAIN.register()
        if in_memory:
            return self._memory.submit(job, analysis=analysis)
        key, text = job.key, job.model_dump_json()
        size = len(text)
        with self._lock:
            has_room = not self._closed and self._buffer.add(size)
            if has_room and analysis is not None:
                self._known[key] = job, analysis
                if len(self._known) > _REMEMBERED:
                    del self._known[next(iter(self._known))]
        if not has_room:
            self._count_drop("queue_full")
            return False

        def stored(future: Future[Outcome]) -> None:
            error = future.exception()
            outcome = "in_memory" if error else future.result()
            with self._lock:
                self._buffer.remove(size)
                self._counts[outcome] += 1
            if outcome == "in_memory":
                self._known.pop(key, None)
                if not self._memory.submit(job, analysis=analysis):
                    self._refuse(job, "memory_full", "the spool cannot be used, and too many turns wait in memory")
            elif outcome == "refused":
                reason = f"the spool is full: {self._max_mb:g} MB"
                self._log.warn("full", "%s (%s); newer turns are not judged [RAGEVAL-403]", reason, self._file.path)
                self._refuse(job, "spool_full", reason)

        self._post(lambda file: file.add(key, text)).add_done_callback(stored)
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
            self._hurries_until = 0.0
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
        wait_until(lambda: not self._is_busy, remaining(end))
        is_stored = not self._buffer.pending
        released = self._post(SpoolFile.release_all)
        self._stopped = True
        self._requests.put(None)
        wait_until(released.done, max(_POLL, remaining(end)))
        _open_dispatchers.discard(self)
        return self._memory.shutdown(remaining(end)) and is_stored

    def stats(self) -> dict[str, int]:
        """Return the counters of the queue in memory."""
        memory = self._memory.stats()
        return {
            "pending": self.pending + memory["pending"],
            "accepted": self._buffer.accepted,
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
            counts |= {"accepted": self._buffer.accepted, "buffered": self._buffer.pending}
        evaluating = len(self._in_flight)
        return {**counts, "evaluating": evaluating, "in_file": total, "waiting_for_judge": waiting, "file_bytes": size}

    @property
    def _is_busy(self) -> bool:
        """True if something is not in the file yet that soon will be."""
        unconfirmed = (self._exported or self._confirming) and not self._delivery_pause.left
        return self.pending > 0 or bool(unconfirmed) or bool(self._changes and not remaining(self._rests_until))

    def _is_done(self, timeout: float) -> bool | None:
        """Return whether the own jobs are done; None if it is too early to say."""
        count = self._post(lambda file: file.count(own=True))
        is_answered = wait_until(count.done, timeout) and count.exception() is None
        # A file that cannot be used has none of them.
        total, waiting = count.result() if is_answered else (0, 0)
        if self._is_busy:
            return None
        if total == 0:
            return True
        stays = self._delivery_pause.left > 0 or (total == waiting and not self._can_judge)
        return False if stays else None

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _count_drop(self, cause: str) -> None:
        self._count("dropped")
        self._count(f"dropped_{cause}")
        PROCESS_TOTALS.add_dropped("spool")

    def _refuse(self, job: Job, cause: str, reason: str) -> None:
        self._count_drop(cause)
        # Exporters are used on the background thread only.
        self._worker.submit(self._refusals, partial(self._drop, job, reason), job.turn.size)

    # -- what other threads ask of the spool's thread

    def _post(self, apply: Callable[[SpoolFile], T]) -> Future[T]:
        """Do something with the file, in a transaction. While the interpreter exits, it is done here.

        Returns:
            The result once it is on the disk, or the reason why it is not.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # a task that is cancelled while it waits must not cancel it
        self._requests.put((apply, future))
        with self._lock:
            is_started, self._started = self._started, True
        if not is_started:
            try:
                start_daemon_thread(partial(_serve_forever, weakref.ref(self), self._requests), "rageval-spool")
            except RuntimeError:
                self._started = False
                self._serve(_receive(self._requests, 0))
        return future

    def _change(self, apply: Callable[[SpoolFile], None]) -> None:
        """Change a job in the file, later if the file cannot be used now: otherwise it would stay ours for ever."""
        self._changes.append(apply)
        self._requests.put(None)

    def _give_back(self, stored: StoredJob, *, waiting: bool) -> None:
        self._change(lambda file: file.release(stored, waiting=waiting))
        self._in_flight.pop(stored.id, None)

    def _set_aside(self, stored: StoredJob, error: Exception) -> None:
        self._count("unreadable")
        # Without the message: it may quote the turn.
        self._log.warn(
            "unreadable",
            "the job %d of the spool cannot be read, and is set aside: %s [RAGEVAL-406]",
            stored.id,
            type(error).__name__,
        )
        self._change(lambda file: file.set_aside(stored))
        self._in_flight.pop(stored.id, None)

    # -- on the spool's thread

    def _serve(self, requests: list[_Request]) -> float:
        """Do what is asked and claim jobs, as long as there is something to do.

        Returns:
            The seconds after which there may be something to do without a request.
        """
        error = self._error if self._unusable or remaining(self._rests_until) else None
        end = time.monotonic() + _LONGEST_SESSION
        if error is None:
            try:
                with delay_forks(), self._file.session():
                    while True:
                        has_claimed = self._transact(requests)
                        requests = []
                        if is_fork_waiting() or not remaining(end):
                            break
                        requests = _receive(self._requests, _LINGER)
                        if not (requests or has_claimed or self._changes):
                            break
            except (sqlite3.Error, OSError) as failure:
                error = failure
                self._note(error)
        if error is not None:
            for _, future in requests:
                future.set_exception(error)
        # A full disk can still be read, so only writing shows that the file works again.
        if error is None and self._problems and self._file.has_written:
            self._problems.clear()
            _logger.warning("rageval-hooks: the spool %s works again [RAGEVAL-402]", self._file.path)
        pause = min(self._lease / 3, _REST_SECONDS, *filter(None, [self._judge_pause.left, self._delivery_pause.left]))
        return pause if self._is_counted else min(pause, _COUNT_SECONDS)

    def _transact(self, requests: list[_Request]) -> bool:
        """Do what is asked and claim jobs, in one transaction. Returns True if jobs were claimed."""
        changes = list(self._changes)
        with self._file.transaction():
            for change in changes:
                change(self._file)
            results = [apply(self._file) for apply, _ in requests]
            self._file.renew()
            claimed = self._claim(self._file) if self._takes_jobs else []
        del self._changes[: len(changes)]
        for (_, future), result in zip(requests, results, strict=True):
            future.set_result(result)
        for job in claimed:
            self._in_flight[job.id] = len(job.text)
            if not self._worker.submit(self._queue, partial(self._evaluate, job)):
                self._give_back(job, waiting=False)
        return bool(claimed)

    def _claim(self, file: SpoolFile) -> list[StoredJob]:
        """Claim as many jobs as there is room for."""
        now = time.monotonic()
        self._is_counted = now - self._counted_at >= _COUNT_SECONDS
        if self._is_counted:
            self._counted_at = now
            self._in_file = (*file.count(), file.used_bytes())
        jobs: list[StoredJob] = []
        # Without a judge, or while it cannot be reached, jobs that wait for it stay in the file.
        for waiting in (False, True) if self._can_judge else (False,):
            # A copy, because jobs end on the background thread meanwhile.
            sizes = [*list(self._in_flight.values()), *(len(job.text) for job in jobs)]
            if len(sizes) < _CONCURRENT and sum(sizes) < self._max_bytes:
                free_bytes = self._max_bytes - sum(sizes)
                jobs += file.claim(_CONCURRENT - len(sizes), waiting=waiting, max_bytes=free_bytes)
        return jobs

    def _note(self, error: Exception) -> None:
        """Count a failure of the file, and log each kind once, until the file works again."""
        self._count("errors")
        self._error = error
        self._rests_until = time.monotonic() + _REST_SECONDS
        if str(error) not in self._problems:
            self._problems.add(str(error))
            _logger.warning(
                "rageval-hooks: the spool %s cannot be used (%s): jobs are evaluated from memory and end with the "
                "process. Give it space and permissions; move a damaged file away, with its -wal and -shm files; or "
                "set another spool_path [RAGEVAL-401]",
                self._file.path,
                error,
            )

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
        attempt = _Attempt(stored)
        try:
            await self._try(attempt)
        except asyncio.CancelledError:
            self._give_back(stored, waiting=False)
            return
        except Exception as error:
            self._set_aside(stored, error)
            return
        if attempt.is_lost or not attempt.has_exported:
            self._give_back(stored, waiting=attempt.waits)
            return
        self._exported.append(attempt)
        self._in_flight.pop(stored.id, None)
        if self._confirming is None:
            self._confirming = asyncio.get_running_loop().create_task(self._confirm())
        self._requests.put(None)  # there is room for another job

    async def _try(self, attempt: _Attempt) -> None:
        """Deliver the results that a job has, and compute those that it has not.

        Raises:
            ValueError: the job cannot be read: it is damaged, or another version of this package wrote it.
        """
        stored = attempt.stored
        # An own job has its live trace context, and what this process has computed already.
        job, analysis = self._known.pop(stored.key, None) or (Job.model_validate_json(stored.text), None)
        if stored.takeovers:
            self._count("taken_over")
        rest = job.only(set(job.names) - await self._deliver_stored(job, attempt))
        if rest.metrics and stored.takeovers >= _MOST_TAKEOVERS:
            self._count("given_up")
            reason = f"given up: {stored.takeovers} processes ended while they evaluated this turn"
            await self._keep(attempt, self._engine.skip(rest, reason).model_copy(update={"id": rest.key}))
            return
        local, judged = self._engine.split(rest)
        if judged.metrics and not self._can_judge:
            attempt.waits = True
            rest = local
        if rest.metrics:
            keep = partial(self._keep, attempt)
            await self._engine.evaluate(
                rest, analysis=analysis, executor=local_pool(), on_part=keep, stage="background"
            )  # fmt: skip

    async def _deliver_stored(self, job: Job, attempt: _Attempt) -> set[str]:
        """Deliver results of earlier attempts that are not delivered yet. Returns the names of their metrics."""
        stored, names = attempt.stored, set[str]()
        is_given_up = stored.deliveries >= _MOST_DELIVERIES
        if is_given_up:
            self._count("undelivered")
            self._log.warn(
                "undelivered", "scores of the spool could not be delivered for hours and are given up [RAGEVAL-405]"
            )
            attempt.has_exported = True
        for text, is_delivered in stored.results:
            evaluation = Evaluation.model_validate({**json.loads(text), "turn": job.turn})
            names.update(map(metric_of, evaluation.results))
            if not is_delivered and not is_given_up:
                self._count("redelivered")
                attempt.has_exported = True
                await self._deliver(evaluation, stored.deliveries > 0)
        return names

    async def _keep(self, attempt: _Attempt, part: Evaluation) -> None:
        """Store a part of the results, then deliver it."""
        if any(isinstance(result, Failed) and result.error_type in PASSING_FAILURES for result in part.results):
            attempt.waits = True
            if self._judge_pause.begin():
                path = self._file.path
                self._log.warn("judge", "the judge cannot be asked now: turns wait in %s [RAGEVAL-404]", path)
            return
        if any(not isinstance(result, Skipped) and result.annotator == "LLM" for result in part.results):
            self._judge_pause.end()
        text = part.model_dump_json(exclude={"turn"})
        kept = self._post(lambda file: file.keep(attempt.stored, part.id or "", text))
        try:
            is_kept = await asyncio.wrap_future(kept)
        except Exception:
            # Results that cannot be stored are delivered all the same: only after a crash are they computed again.
            is_kept = True
        if not is_kept:
            self._count("lost_leases")
            attempt.is_lost = True
            return
        attempt.has_exported = True
        await self._deliver(part)

    async def _confirm(self) -> None:
        """Find out what the exporters have delivered, for many jobs at once, and remove these jobs."""
        try:
            while self._exported:
                next_flush = time.monotonic() + self._flush_interval
                # While a caller waits, results are delivered at once.
                while not self._stopped and (
                    self._delivery_pause.left or (remaining(next_flush) and not remaining(self._hurries_until))
                ):
                    await asyncio.sleep(_POLL)
                if self._stopped:
                    return
                attempts, self._exported = self._exported, []
                is_delivered = await self._worker.in_thread(partial(self._flush, _FLUSH_SECONDS))
                if is_delivered:
                    self._delivery_pause.end()
                else:
                    self._delivery_pause.begin()
                # In this order: who sees that nothing is pending must find the jobs removed.
                self._change(partial(self._settle, attempts, is_delivered))
                with self._lock:
                    self._counts["finished"] += sum(is_delivered and not attempt.waits for attempt in attempts)
        finally:
            self._confirming = None

    def _settle(self, attempts: list[_Attempt], is_delivered: bool, file: SpoolFile) -> None:
        """Remove jobs whose results are delivered; keep the others for another delivery, after a pause."""
        for attempt in attempts:
            if not is_delivered:
                file.release(attempt.stored, waiting=attempt.waits, retry_after=self._delivery_pause.left)
            elif attempt.waits:
                file.note_delivery(attempt.stored)
                file.release(attempt.stored, waiting=True)
            else:
                file.finish(attempt.stored)


# -- the spool's thread: it must not keep its dispatcher alive while it waits


def _serve_forever(dispatcher: weakref.ref[SpoolDispatcher], queue: Any) -> None:
    pause = 0.0
    while True:
        requests = _receive(queue, pause)
        owner = dispatcher()
        if owner is None:
            return
        if owner._stopped and not requests:
            owner._started = False  # a later request starts another thread
            return
        pause = owner._serve(requests)
        del owner, requests


def _receive(queue: Any, pause: float) -> list[_Request]:
    """Return what is queued; wait for the first request."""
    found: list[_Request] = []
    try:
        item = queue.get(timeout=pause) if pause > 0 else queue.get_nowait()
        while len(found) < _BATCH:
            if item is not None:
                found.append(item)
            item = queue.get_nowait()
    except Empty:
        pass
    return found


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
