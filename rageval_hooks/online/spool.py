"""The durable dispatcher: jobs wait in a file, survive the process, and are evaluated once.

A job is stored first. Then as many jobs are claimed as there is room for, and evaluated. Each result is stored before
it is handed to the exporters, and the job is removed once the exporters have delivered its results. All this happens in
the event loop of the background thread; another thread reads and writes the file.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sqlite3
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress as suppress_errors
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.delivery import Delivery
from rageval_hooks.online.dispatch import Dispatcher
from rageval_hooks.online.engine import PASSING_FAILURES, Engine
from rageval_hooks.online.job import Job
from rageval_hooks.online.spool_file import SpoolFile, StoredJob
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import is_fork_waiting, reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import local_pool
from rageval_hooks.runtime.queues import BoundedQueue
from rageval_hooks.runtime.suppression import suppress
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.worker import Worker
from rageval_hooks.score import Evaluation, Failed, Result, Skipped, metric_of

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_CONCURRENT = 32
"""Jobs of a process that are evaluated at the same time. The judge has its own limit."""

_REMEMBERED = 64
"""Own jobs of which the analysis is kept until they are evaluated; the others are read from the file."""

_MAX_TAKEOVERS = 10
"""A job that so many processes did not survive is given up: it may be what ends them."""

_MAX_DELIVERIES = 40
"""Attempts to deliver results. From the sixth on they are five minutes apart: about three hours together."""

_BATCH = 256
"""Requests of one transaction, at most."""

# All in seconds.
_POLL = 0.05
_LINGER, _LINGER_POLL = 0.02, 0.0005
"""The file stays open so long after a batch. A job is in no file until the open file is looked at again."""

_MAX_SESSION = 1.0
"""Then the file is closed and opened again: it may have been moved away meanwhile."""

_REST_SECONDS = 10.0
"""After a failure, the file is not used for so long: each attempt costs up to two seconds."""

_FLUSH_SECONDS = 10.0
"""The exporters get so long to deliver results."""

_MAX_PAUSE = 300.0

_EVALUATION_SHARE = 0.7
"""Share of a shutdown's time for the jobs that are being evaluated; the rest is for the file."""

_COUNTS = """
    accepted buffered stored duplicates in_memory refused dropped_queue_full dropped_spool_full dropped_memory_full
    finished redelivered taken_over lost_leases undelivered given_up unreadable errors
""".split()


class _Request(NamedTuple):
    """Something to do with the file, in a transaction.

    Attributes:
        apply: does it.
        outcome: gets the result once it is on the disk, or the error. None if it is done later when the file cannot be
            used now.
    """

    apply: Callable[[SpoolFile], Any]
    outcome: asyncio.Future[Any] | None


@dataclass(eq=False)
class _Attempt:
    """An attempt to evaluate a job.

    Attributes:
        stored: the job.
        waits: True if metrics remain that wait for the judge.
        has_exported: True if results were handed to the exporters.
    """

    stored: StoredJob
    waits: bool = False
    has_exported: bool = False


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
        self._seconds = min(max(self._shortest, self._seconds * 2), _MAX_PAUSE)
        self._until = time.monotonic() + self._seconds
        return True

    def end(self) -> None:
        """Note that it works."""
        self._seconds = self._until = 0.0


class SharedFile:
    """The file as an event loop uses it: all that is asked for meanwhile is one transaction, on another thread.

    Args:
        file: the file.
        worker: the background thread.
        counts: count errors.
        owner: claims jobs at the end of each transaction, and says when to look again. Not kept alive.
        was_open: True if the parent process has used the file during the fork.

    Attributes:
        path: the file.
        size: how many jobs are in it, how many of them wait for the judge, and its bytes.
        closed: True to look no more at the file when nothing is asked for.
    """

    def __init__(
        self, *, file: SpoolFile, worker: Worker, counts: Counter[str], owner: SpoolDispatcher, was_open: bool
    ) -> None:
        self._file = file
        self._worker = worker
        self._counts = counts
        self._owner = weakref.ref(owner)
        # Forks wait until the file is closed. If one did not wait long enough, SQLite's memory is wrong in this child.
        self._rests_until = math.inf if was_open else 0.0
        self._error: Exception = OSError("this process was forked while the file was in use")
        self._problems: set[str] = set()
        self._requests: deque[_Request] = deque()
        self._postponed: list[_Request] = []
        self._serving: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.path, self.max_bytes, self.lease = file.path, file.max_bytes, file.lease
        self.size = (0, 0, 0)
        self.closed = False

    @property
    def is_open(self) -> bool:
        """True while the file is open."""
        return self._file.is_open

    async def do(self, apply: Callable[[SpoolFile], T]) -> T:
        """Do something with the file, in one transaction with whatever else is asked meanwhile.

        Raises:
            OSError: the file cannot be used.
            sqlite3.Error: the file cannot be used.
        """
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._requests.append(_Request(apply, outcome))
        self.wake()
        return await outcome

    def change(self, apply: Callable[[SpoolFile], None]) -> None:
        """Change a job in the file, later if the file cannot be used now: otherwise it would stay ours for ever."""
        self._requests.append(_Request(apply, None))
        self.wake()

    def wake(self) -> None:
        """Do what is asked, and claim jobs."""
        if self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        """Do what is asked and claim jobs, as long as there is something to do."""
        loop = asyncio.get_running_loop()
        while True:
            await self._worker.in_order(partial(self._use_file, loop))
            if not self._requests:
                break
        self._serving = None
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed and (owner := self._owner()) is not None:
            self._timer = loop.call_later(owner.next_look, _wake, weakref.ref(self))

    def _use_file(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the file, do what is asked and claim jobs; not in the event loop."""
        requests: list[_Request] = []
        end, owner = time.monotonic() + _MAX_SESSION, self._owner()
        try:
            if remaining(self._rests_until):
                # Without the traceback of the last time: it would grow with each turn, and keep all of them in memory.
                raise self._error.with_traceback(None)
            with self._file.session():
                while remaining(end) and not is_fork_waiting():
                    requests = [self._requests.popleft() for _ in range(min(_BATCH, len(self._requests)))]
                    requests, self._postponed = self._postponed + requests, []
                    with self._file.transaction():
                        results = [apply(self._file) for apply, _ in requests]
                        self._file.renew()
                        claimed = [] if owner is None else owner.claim(self._file)
                    loop.call_soon_threadsafe(_answer, requests, results, None)
                    requests = []
                    # A full disk can still be read, so only writing shows that the file works again.
                    if self._problems and self._file.has_written:
                        self._problems.clear()
                        _logger.warning("rageval-hooks: the spool %s works again [RAGEVAL-402]", self._file.path)
                    if owner is not None:
                        for job in claimed:
                            owner.begin(job)
                    # Work comes in bursts.
                    if not claimed and not wait_until(lambda: self._requests, _LINGER, _LINGER_POLL):
                        break
                with self._file.transaction():
                    self.size = (*self._file.count(), self._file.used_bytes())
        except Exception as error:
            if error is not self._error and isinstance(error, (sqlite3.Error, OSError)):
                self._note(error)
            while self._requests:
                requests.append(self._requests.popleft())
            self._postponed += [request for request in requests if request.outcome is None]
            loop.call_soon_threadsafe(_answer, requests, (), error)

    def _note(self, error: Exception) -> None:
        """Count a failure of the file, and log each kind once, until the file works again."""
        self._counts["errors"] += 1
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


class SpoolEvaluator:
    """Evaluates jobs of the file: each result is stored, then delivered. Jobs wait while the judge cannot be asked.

    Args:
        engine: evaluates jobs.
        delivery: receives evaluations as they arrive.
        file: the file.
        counts: count what became of jobs.
    """

    def __init__(self, engine: Engine, delivery: Delivery, file: SharedFile, counts: Counter[str]) -> None:
        self._engine = engine
        self._delivery = delivery
        self._file = file
        self._counts = counts
        self._log = RateLimitedLogger(_logger)
        self._known: dict[str, tuple[Job, TurnAnalysis | None]] = {}
        self.judge_pause = _Pause(5.0)

    def remember(self, key: str, job: Job, analysis: TurnAnalysis | None) -> None:
        """Keep an own job, with its live trace context and what this process has computed, until it is evaluated."""
        self._known[key] = job, analysis
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    @property
    def can_judge(self) -> bool:
        """True if there is a judge, and it is not known to be unreachable."""
        return self._engine.judge is not None and not self.judge_pause.left

    async def evaluate(self, attempt: _Attempt) -> None:
        """Deliver the results that a job has, and compute those that it has not.

        Raises:
            ValueError: the job cannot be read: it is damaged, or another version of this package wrote it.
        """
        stored = attempt.stored
        remembered = self._known.pop(stored.key, None)
        job, analysis = remembered or (Job.model_validate_json(stored.text), None)
        if stored.takeovers:
            self._counts["taken_over"] += 1
        known = await self._deliver_stored(job, attempt)
        rest = job.decided(known).only(set(job.names) - set(map(metric_of, known)))
        if rest.metrics and stored.takeovers >= _MAX_TAKEOVERS:
            self._counts["given_up"] += 1
            reason = f"given up: {stored.takeovers} processes ended while they evaluated this turn"
            await self._keep(attempt, job, rest.skipped(reason).model_copy(update={"id": rest.key}))
            return
        local, judged = self._engine.split(rest)
        if judged.metrics and not self.can_judge:
            attempt.waits = True
            rest = local
        keep = partial(self._keep, attempt, job)
        found = await self._engine.evaluate(
            rest, analysis=analysis, executor=local_pool(), on_part=keep, stage="background"
        )
        # Sampled out by the verdict that the judge was to wait for: there is nothing to deliver.
        attempt.has_exported |= not found.results and not attempt.waits

    async def _deliver_stored(self, job: Job, attempt: _Attempt) -> list[Result]:
        """Deliver results of earlier attempts that are not delivered yet. Returns all of them."""
        stored, found = attempt.stored, list[Result]()
        is_given_up = stored.deliveries >= _MAX_DELIVERIES
        if is_given_up:
            self._counts["undelivered"] += 1
            self._log.warn(
                "undelivered", "scores of the spool could not be delivered for hours and are given up [RAGEVAL-405]"
            )
            attempt.has_exported = True
        for text, is_delivered in stored.results:
            evaluation = Evaluation.model_validate({**json.loads(text), "turn": job.turn})
            found += evaluation.results
            if not is_delivered and not is_given_up:
                self._counts["redelivered"] += 1
                attempt.has_exported = True
                await self._delivery.deliver(evaluation, job, stored.deliveries > 0)
        return found

    async def _keep(self, attempt: _Attempt, job: Job, part: Evaluation) -> None:
        """Store a part of the results, then deliver it."""
        if any(isinstance(result, Failed) and result.error_type in PASSING_FAILURES for result in part.results):
            attempt.waits = True
            if self.judge_pause.begin():
                path = self._file.path
                self._log.warn("judge", "the judge cannot be asked now: turns wait in %s [RAGEVAL-404]", path)
            return
        if any(not isinstance(result, Skipped) and result.annotator == "LLM" for result in part.results):
            self.judge_pause.end()
        text = part.model_dump_json(exclude={"turn"})
        is_kept: bool | None = None
        while is_kept is None:
            try:
                is_kept = await self._file.do(lambda file: file.keep(attempt.stored, part.id or "", text))
            except sqlite3.OperationalError:
                # The disk is full, or the file is locked. If this process ended now, the next one would judge the job
                # again: a result that was delivered before it is stored would have a second value.
                await asyncio.sleep(_REST_SECONDS)
            except (sqlite3.Error, OSError):
                is_kept = True  # the file is damaged or gone, and the job with it: no other process has it
        if not is_kept:
            self._counts["lost_leases"] += 1
            return
        attempt.has_exported = True
        await self._delivery.deliver(part, job)


class Confirmations:
    """Finds out what the exporters have delivered, for many jobs at once, and removes these jobs from the file.

    Args:
        delivery: flushes the exporters.
        worker: the background thread.
        file: the file.
        counts: count finished jobs.

    Attributes:
        hurries_until: until then a caller waits, and results are delivered at once.
        pause: begins when the exporters could not deliver.
    """

    def __init__(self, delivery: Delivery, worker: Worker, file: SharedFile, counts: Counter[str]) -> None:
        self._delivery = delivery
        self._worker = worker
        self._file = file
        self._counts = counts
        self._exported: list[_Attempt] = []
        self._task: asyncio.Task[None] | None = None
        self._next_flush = 0.0
        self.hurries_until = 0.0
        self.pause = _Pause(10.0)

    def add(self, attempt: _Attempt) -> None:
        """Take a job whose results were handed to the exporters."""
        self._exported.append(attempt)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._confirm())

    @property
    def is_busy(self) -> bool:
        """True if it is not known of some results whether they are delivered."""
        return bool(self._exported or self._task) and not self.pause.left

    def cancel(self) -> None:
        """Leave the jobs to the next process."""
        if self._task is not None:
            self._task.cancel()

    async def _confirm(self) -> None:
        try:
            while self._exported:
                # While a caller waits, results are delivered at once.
                while self.pause.left or (remaining(self._next_flush) and not remaining(self.hurries_until)):
                    await asyncio.sleep(_POLL)
                self._next_flush = time.monotonic() + self._delivery.flush_interval
                attempts, self._exported = self._exported, []
                flush = partial(self._delivery.flush, _FLUSH_SECONDS, reader="jobs")
                is_delivered = await self._worker.in_thread(flush)
                if is_delivered:
                    self.pause.end()
                else:
                    self.pause.begin()
                # In this order: who sees that nothing is pending must find the jobs removed.
                self._file.change(partial(self._settle, attempts, is_delivered))
                self._counts["finished"] += sum(is_delivered and not attempt.waits for attempt in attempts)
        finally:
            self._task = None

    def _settle(self, attempts: list[_Attempt], is_delivered: bool, file: SpoolFile) -> None:
        """Remove jobs whose results are delivered; keep the others for another delivery, after a pause."""
        for attempt in attempts:
            if not is_delivered:
                file.release(attempt.stored, waiting=attempt.waits, retry_after=self.pause.left)
            elif attempt.waits:
                file.note_delivery(attempt.stored)
                file.release(attempt.stored, waiting=True)
            else:
                file.finish(attempt.stored)


class SpoolDispatcher:
    """Stores jobs in a file before they are evaluated, and removes them once their results are delivered.

    Several processes share the file. Each result is stored before it is delivered: after a crash it is delivered again,
    with the same ids and values, and not computed again. A job whose judge cannot be reached waits. If the file cannot
    be used, new jobs are evaluated from memory, and results of jobs that are in the file wait until they can be stored.

    Args:
        engine: evaluates the jobs.
        worker: the background thread, on which jobs are evaluated and evaluations exported.
        delivery: receives evaluations as they arrive, and flushes the exporters. They keep scores in memory for some
            seconds; a job that was removed when its scores were handed over would be lost with them.
        memory: evaluates jobs while the file cannot be used.
        open_file: makes the file, again after a fork.
        queue_size: how many jobs may be in memory before they are stored.
        max_bytes: the size of the jobs in memory.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        worker: Worker,
        delivery: Delivery,
        memory: Dispatcher,
        open_file: Callable[[], SpoolFile],
        queue_size: int,
        max_bytes: int,
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._delivery = delivery
        self._memory = memory
        self._open_file = open_file
        self._queue_size = queue_size
        self._max_bytes = max_bytes
        self._log = RateLimitedLogger(_logger)
        self._use_new_file()
        reset_in_child(self)
        EXIT_DRAIN.add(self._stop_claiming, "capture", weak=True)
        EXIT_DRAIN.add(self.shutdown, "evaluate", weak=True)

    def reset_after_fork(self) -> None:
        """Forget what the parent has in memory: the parent finishes it."""
        self._use_new_file(was_open=self._file.is_open, closed=self._file.closed)

    def _use_new_file(self, *, was_open: bool = False, closed: bool = False) -> None:
        self._counts: Counter[str] = Counter()
        # Jobs that are not stored yet, and jobs that are being evaluated.
        self._buffer = BoundedQueue("spool", self._queue_size, self._max_bytes)
        self._queue = BoundedQueue("evaluate", _CONCURRENT * 2)
        self._in_flight: dict[int, int] = {}
        self._file = SharedFile(
            file=self._open_file(), worker=self._worker, counts=self._counts, owner=self, was_open=was_open
        )
        self._file.closed = closed
        self._takes_jobs = not closed
        self._evaluator = SpoolEvaluator(self._engine, self._delivery, self._file, self._counts)
        self._confirmations = Confirmations(self._delivery, self._worker, self._file, self._counts)

    # -- on the threads of callers

    def start(self) -> None:
        """Look for jobs that earlier processes have left."""
        EXIT_DRAIN.register()
        with suppress_errors(RuntimeError):  # the interpreter is exiting; another process will look
            self._worker.call(lambda: self._file.do(SpoolFile.forget_pauses))

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
        self._confirmations.hurries_until = end
        try:
            return self._call(lambda: self._finish_own(end), end) and self._worker.flush(remaining(end))
        finally:
            self._confirmations.hurries_until = 0.0

    def shutdown(self, timeout: float) -> bool:
        """Store what is in memory, finish what is being evaluated, and leave the rest to other processes.

        Returns:
            False if jobs were lost: neither stored nor evaluated.
        """
        end = time.monotonic() + timeout
        self._stop_claiming()
        self._confirmations.hurries_until = end
        self._worker.flush(timeout * _EVALUATION_SHARE)
        self._file.closed = True
        # Their jobs stay in the file.
        self._worker.cancel(self._queue, remaining(end) / 2)
        is_stored = self._call(lambda: self._close(end), end)
        EXIT_DRAIN.remove(self.shutdown, weak=True)
        return self._memory.shutdown(remaining(end)) and is_stored

    def _stop_claiming(self, _timeout: float = 0.0) -> None:
        self._takes_jobs = False

    def _call(self, make: Callable[[], Coroutine[Any, Any, bool]], end: float) -> bool:
        """Run a coroutine in the event loop. Returns its result; False if it is not there in time."""
        try:
            return self._worker.call(make).result(max(_POLL, remaining(end)))
        except (RuntimeError, TimeoutError):  # the former without a thread: the interpreter is exiting
            return False

    def stats(self) -> dict[str, int]:
        """Return the counters of the queue in memory."""
        memory = self._memory.stats()
        return {
            "pending": self._pending + memory["pending"],
            "accepted": self._buffer.accepted,
            "dropped": self._counts["dropped"],
            "failed": self._queue.failed + memory["failed"],
        }

    def details(self) -> dict[str, int]:
        """Return the counters of the spool.

        ``accepted`` is the sum of ``buffered``, ``stored``, ``duplicates``, ``in_memory`` and ``refused``.
        """
        total, waiting, size = self._file.size
        counts = {name: self._counts[name] for name in _COUNTS}
        counts |= {"accepted": self._buffer.accepted, "buffered": self._buffer.pending}
        evaluating = len(self._in_flight)
        return {**counts, "evaluating": evaluating, "in_file": total, "waiting_for_judge": waiting, "file_bytes": size}

    @property
    def _pending(self) -> int:
        """Jobs in memory: not stored yet, or being evaluated."""
        return self._buffer.pending + len(self._in_flight)

    # -- in the event loop of the background thread, as all that follows

    async def submit(self, job: Job, *, analysis: TurnAnalysis | None = None) -> bool:
        """Store a job; evaluate it from memory if the file cannot be used. Returns False, and counts, if too many wait.

        Its turn is exported next, so that the job of each exported turn is in the file, whenever the process ends.
        """
        text, key = job.model_dump_json(), job.key
        if self._file.closed:
            self._buffer.drop()
        if self._file.closed or not self._buffer.add(len(text)):
            self._counts.update(("dropped", "dropped_queue_full"))
            return False
        self._evaluator.remember(key, job, analysis)
        try:
            outcome = await self._file.do(lambda file: file.add(key, text))
        except (sqlite3.Error, OSError):
            self._counts["in_memory"] += 1
            if not await self._memory.submit(job, analysis=analysis):
                self._refuse(job, "memory_full", "the spool cannot be used, and too many turns wait in memory")
            return True
        finally:
            self._buffer.remove(len(text))
        self._counts[outcome] += 1
        if outcome == "refused":
            reason = f"the spool is full: {self._file.max_bytes / 2**20:g} MB"
            self._log.warn("full", "%s (%s); newer turns are not judged [RAGEVAL-403]", reason, self._file.path)
            self._refuse(job, "spool_full", reason)
        return True

    def _refuse(self, job: Job, cause: str, reason: str) -> None:
        self._counts.update(("dropped", f"dropped_{cause}"))
        self._buffer.drop()
        asyncio.get_running_loop().call_soon(self._delivery.skip, job, reason)  # after the turn's export

    async def _finish_own(self, end: float) -> bool:
        """Wait for the jobs of this process; see :meth:`flush`."""
        while remaining(end):
            try:
                total, waiting = await self._file.do(lambda file: file.count(own=True))
            except (sqlite3.Error, OSError):  # a file that cannot be used has none of them
                total, waiting = 0, 0
            if not self._is_busy:
                if total == 0:
                    return True
                if self._confirmations.pause.left or (total == waiting and not self._evaluator.can_judge):
                    return False
            await asyncio.sleep(_POLL)
        return False

    async def _close(self, end: float) -> bool:
        """Give the jobs of this process back. Returns True if all were stored."""
        while self._is_busy and remaining(end):
            await asyncio.sleep(_POLL)
        is_stored = not self._buffer.pending
        self._confirmations.cancel()
        with suppress_errors(sqlite3.Error, OSError):
            await self._file.do(SpoolFile.release_all)
        return is_stored

    @property
    def _is_busy(self) -> bool:
        """True if jobs are not stored yet, are being evaluated, or have results whose delivery is not known."""
        return self._pending > 0 or self._confirmations.is_busy

    # -- jobs of the file

    @property
    def next_look(self) -> float:
        """Seconds until the file is looked at again, if nobody asks for anything."""
        pauses = (self._evaluator.judge_pause.left, self._confirmations.pause.left)
        return min(self._file.lease / 3, _REST_SECONDS, *filter(None, pauses))

    def claim(self, file: SpoolFile) -> list[StoredJob]:
        """Claim as many jobs as there is room for; not in the event loop."""
        sizes = list(self._in_flight.values())
        if not self._takes_jobs or len(sizes) >= _CONCURRENT:
            return []
        # Without a judge, or while it cannot be reached, jobs that wait for it stay in the file.
        free_bytes = self._max_bytes - sum(sizes)
        return file.claim(_CONCURRENT - len(sizes), waiting=self._evaluator.can_judge, max_bytes=free_bytes)

    def begin(self, stored: StoredJob) -> None:
        """Start to evaluate a job; not in the event loop, which runs: the queue has room for what was claimed."""
        self._in_flight[stored.id] = len(stored.text)
        self._worker.submit(self._queue, partial(self._evaluate, stored))

    async def _evaluate(self, stored: StoredJob) -> None:
        """Evaluate a job, and say what is to become of it in the file."""
        # The job runs as a task with its own context, so the suppression ends with it.
        suppress()
        attempt = _Attempt(stored)
        try:
            await self._evaluator.evaluate(attempt)
            if not attempt.has_exported:
                self._file.change(lambda file: file.release(stored, waiting=attempt.waits))
                return
            self._confirmations.add(attempt)
        except asyncio.CancelledError:
            self._file.change(lambda file: file.release(stored, waiting=False))
        except Exception as error:
            self._counts["unreadable"] += 1
            # Without the message: it may quote the turn.
            self._log.warn(
                "unreadable",
                "the job %d of the spool cannot be read, and is set aside: %s [RAGEVAL-406]",
                stored.id,
                type(error).__name__,
            )
            self._file.change(lambda file: file.set_aside(stored))
        finally:
            self._in_flight.pop(stored.id, None)
            self._file.wake()  # there is room for another job


def _answer(requests: list[_Request], results: Sequence[Any], error: Exception | None) -> None:
    for place, (_, outcome) in enumerate(requests):
        if outcome is None or outcome.done():  # nobody waits, or its task was cancelled
            continue
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(results[place])


def _wake(reference: weakref.ref[SharedFile]) -> None:
    file = reference()
    if file is not None:
        file.wake()
