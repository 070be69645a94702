"""The durable dispatcher: jobs wait in a file, survive the process, and are evaluated once."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable
from functools import partial

from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.dispatch import ThreadDispatcher, cancel_tasks
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import Job
from rageval_hooks.online.spool.confirmation import Confirmation, Exported
from rageval_hooks.online.spool.evaluator import Deliver, SpoolEvaluator
from rageval_hooks.online.spool.intake import SpoolIntake
from rageval_hooks.online.spool.options import SpoolOptions
from rageval_hooks.online.spool.store import SpoolFile, StoredJob
from rageval_hooks.online.spool.tally import Tally
from rageval_hooks.online.spool.thread import Command, SpoolThread
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.runtime.suppression import suppress
from rageval_hooks.runtime.threads import Signal
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.worker import BoundedQueue, Worker
from rageval_hooks.score import Evaluation

__all__ = ["SpoolDispatcher"]

_logger = logging.getLogger(__name__)

_CONCURRENT = 32
"""Jobs of a process that are evaluated at the same time. The judge has its own limit."""

_POLL = 0.05
_COUNT_SECONDS = 1.0
"""Seconds between two counts of what is in the file."""

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
        confirmation: finds out when the exporters have delivered results.
        options: the file and its limits.
        counters: count the jobs that a shutdown has cancelled.
    """

    name = "spool"

    def __init__(
        self,
        engine: Engine,
        worker: Worker,
        deliver: Deliver,
        drop: Callable[[Job, str], None],
        confirmation: Confirmation,
        options: SpoolOptions,
        counters: Counters,
    ) -> None:
        self._worker = worker
        self._options = options
        self.capacity = options.memory_jobs
        self._lane = BoundedQueue("evaluate", _CONCURRENT * 2)
        self._log = RateLimitedLogger(_logger)
        self._memory = ThreadDispatcher(
            engine, worker, partial(_deliver_first, deliver), drop, options.memory_jobs, options.memory_bytes, counters
        )
        self._confirmation = confirmation
        self._tally = Tally()
        self._thread = SpoolThread(partial(_make_file, options), weakref.ref(self))
        self._intake = SpoolIntake(self._thread, self._memory, worker, drop, options, self._tally)
        self._evaluator = SpoolEvaluator(engine, self._thread, deliver, self._tally)
        self.reset_after_fork()
        reset_in_child(self)
        PROCESS_TOTALS.watch(self)
        _open_dispatchers.add(self)
        EXIT_DRAIN.add(_stop_claiming, "capture")
        EXIT_DRAIN.add(_drain, "evaluate", _has_jobs)
        weakref.finalize(self, self._thread.stop).atexit = False

    def reset_after_fork(self) -> None:
        """Forget what the parent has in memory: the parent finishes it."""
        self._in_flight: dict[int, int] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._evaluator.judge_pause.end()
        self._takes_jobs = not self._intake.closed
        self._in_file = (0, 0, 0)
        self._counted_at = 0.0
        self._counted_changes = -1

    @property
    def pending(self) -> int:
        """Jobs in memory: not stored yet, or being evaluated."""
        return self._tally["buffered"] + len(self._in_flight)

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
        return self._intake.add(job, analysis)

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
        with self._confirmation.hurried():
            while remaining(end):
                is_done = self._is_done(remaining(end))
                if is_done is not None:
                    return is_done and self._worker.flush(remaining(end))
                time.sleep(_POLL)
        return False

    def shutdown(self, timeout: float) -> bool:
        """Store what is in memory, finish what is being evaluated, and leave the rest to other processes.

        Returns:
            False if jobs were lost: neither stored nor evaluated.
        """
        end = time.monotonic() + timeout
        self._takes_jobs = False
        with self._confirmation.hurried():
            self._worker.flush(timeout * _EVALUATION_SHARE)
            self._intake.closed = True
            # Their jobs stay in the file.
            cancel_tasks(self._worker, self._running, remaining(end) / 2)
            while remaining(end) and self._is_busy:
                self._thread.wake()
                time.sleep(_POLL)
        is_stored = not self._tally["buffered"]
        self._ask(lambda file: file.release_all(), max(_POLL, remaining(end)))
        self._thread.stop()
        _open_dispatchers.discard(self)
        return self._memory.shutdown(remaining(end)) and is_stored

    def stats(self) -> dict[str, int]:
        """Return the counters of the queue in memory."""
        memory = self._memory.stats()
        return {
            "pending": self.pending + memory["pending"],
            "accepted": self._tally["accepted"],
            "dropped": self._tally["dropped"],
            "failed": self._lane.failed + memory["failed"],
        }

    def spool_stats(self) -> dict[str, int]:
        """Return the counters of the spool.

        ``accepted`` is the sum of ``buffered``, ``stored``, ``duplicates``, ``in_memory`` and ``refused``.
        """
        total, waiting, size = self._in_file
        return {
            **self._tally.get(_COUNTS),
            "evaluating": len(self._in_flight),
            "in_file": total,
            "waiting_for_judge": waiting,
            "file_bytes": size,
            "errors": self._thread.health.errors,
        }

    @property
    def _is_busy(self) -> bool:
        """True if something is not in the file yet that soon will be."""
        unconfirmed = self._confirmation.pending > 0 and not self._confirmation.is_paused
        return self.pending > 0 or unconfirmed

    def _is_done(self, timeout: float) -> bool | None:
        """Return whether the own jobs are done; None if it is too early to say."""
        # A file that cannot be used has none of them.
        total, waiting = self._ask(lambda file: file.count(own=True), timeout) or (0, 0)
        if self._is_busy:
            return None
        if total == 0:
            return True
        stays = self._confirmation.is_paused or (total == waiting and not self._evaluator.can_judge)
        return False if stays else None

    def _ask(self, apply: Callable[[SpoolFile], tuple[int, int] | None], timeout: float) -> tuple[int, int] | None:
        """Return an answer from the file; None without an answer in time."""
        answers: list[tuple[int, int] | None] = []
        answered = Signal()

        def answer(value: tuple[int, int] | None) -> None:
            answers.append(value)
            answered.set()

        self._thread.post(Command(apply, answer, lambda _: answer(None)))
        return answers[0] if answered.wait(timeout) else None

    # -- on the spool's thread

    def claim(self, file: SpoolFile) -> list[StoredJob]:
        """Claim as many jobs as there is room for."""
        self._count_file(file)
        free = _CONCURRENT - len(self._in_flight)
        # A copy, because jobs end on the background thread meanwhile.
        free_bytes = self._options.memory_bytes - sum(list(self._in_flight.values()))
        if not self._takes_jobs or free <= 0 or free_bytes <= 0:
            return []
        jobs = file.claim(free, waiting=False, max_bytes=free_bytes)
        if not self._evaluator.can_judge:
            self._note_unreadable(file)
            return jobs
        # After a pause, one job finds out whether the judge works again.
        free = 1 if self._evaluator.judge_pause.is_trial else free - len(jobs)
        free_bytes -= sum(len(job.text) for job in jobs)
        jobs += file.claim(max(0, free), waiting=True, max_bytes=free_bytes)
        self._note_unreadable(file)
        return jobs

    def _note_unreadable(self, file: SpoolFile) -> None:
        numbers, file.unreadable = file.unreadable, []
        for number in numbers:
            self._note_set_aside(number, "the file is damaged")

    def _note_set_aside(self, number: int, why: str) -> None:
        self._tally.add(unreadable=1)
        self._log.warn(
            "unreadable", "the job %d of the spool cannot be read, and is set aside: %s [RAGEVAL-406]", number, why
        )

    def take(self, jobs: list[StoredJob]) -> None:
        """Start to evaluate jobs."""
        for job in jobs:
            self._in_flight[job.id] = len(job.text)
            if not self._worker.submit(self._lane, partial(self._evaluate, job)):
                self._give_back(job, waiting=False)

    def pause(self) -> float:
        """Start to confirm deliveries that are due; return the seconds until the next look."""
        self._confirmation.start(self._confirmed)
        pauses = [self._options.lease / 3, self._confirmation.due_in]
        if self._evaluator.judge_pause.left:
            pauses.append(self._evaluator.judge_pause.left)
        if self._counted_changes != self._changes:
            pauses.append(_COUNT_SECONDS)
        return max(_POLL, min(pauses))

    @property
    def _changes(self) -> int:
        """Changes of the file by this process."""
        return self._tally["stored"] + self._tally["finished"]

    def _count_file(self, file: SpoolFile) -> None:
        now = time.monotonic()
        if now - self._counted_at >= _COUNT_SECONDS:
            self._counted_at = now
            self._counted_changes = self._changes
            self._in_file = (*file.count(), file.used_bytes())

    def _confirmed(self, jobs: list[Exported], is_delivered: bool) -> None:
        """Remove jobs whose results are delivered; keep the others for another delivery."""

        def change(file: SpoolFile) -> None:
            for job in jobs:
                if is_delivered:
                    _settle(file, job)
                else:
                    file.release(job.id, waiting=job.waits, undelivered=True)

        finished = sum(not job.waits for job in jobs) if is_delivered else 0
        command = Command(
            change,
            done=lambda _: self._tally.add(finished=finished),
            failed=lambda _: self._confirmation.put_back(jobs),
        )
        self._thread.post(command)

    def _give_back(self, stored: StoredJob, *, waiting: bool) -> None:
        self._in_flight.pop(stored.id, None)
        # Kept until it worked: a job that is not given back would stay ours, and would not be claimed again.
        self._thread.post(Command(lambda file: file.release(stored.id, waiting=waiting), is_kept=True))

    # -- on the background thread

    async def _evaluate(self, stored: StoredJob) -> None:
        """Evaluate a job, and say what is to become of it in the file."""
        # The job runs as a task with its own context, so the suppression ends with it.
        suppress()
        task = asyncio.current_task()
        if task is not None:
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        try:
            attempt = await self._evaluator.evaluate(stored, self._intake.live(stored.key))
        except asyncio.CancelledError:
            self._give_back(stored, waiting=False)
            return
        except Exception as error:
            # Without the message: it may quote the turn.
            self._note_set_aside(stored.id, type(error).__name__)
            self._in_flight.pop(stored.id, None)
            self._thread.post(Command(lambda file: file.set_aside(stored.id), is_kept=True))
            return
        if attempt.is_lost or not attempt.has_exported:
            self._give_back(stored, waiting=attempt.waits)
            return
        self._confirmation.add([Exported(stored.id, attempt.waits)])
        self._in_flight.pop(stored.id, None)
        self._thread.wake()


def _make_file(options: SpoolOptions) -> SpoolFile:
    return SpoolFile(options.path, options.max_bytes, options.lease)


def _settle(file: SpoolFile, job: Exported) -> None:
    """Remove a job, or leave it with the results that are delivered until the judge can be asked."""
    if not job.waits:
        file.finish([job.id])
        return
    file.note_delivery(job.id)
    file.release(job.id, waiting=True)


async def _deliver_first(deliver: Deliver, evaluation: Evaluation) -> None:
    await deliver(evaluation, False)


# -- at exit


_open_dispatchers: weakref.WeakSet[SpoolDispatcher] = weakref.WeakSet()


def _stop_claiming(_timeout: float) -> bool:
    for dispatcher in list(_open_dispatchers):
        dispatcher._takes_jobs = False
    return True


def _has_jobs() -> bool:
    return any(dispatcher.pending for dispatcher in list(_open_dispatchers))


def _drain(timeout: float) -> bool:
    end = time.monotonic() + timeout
    outcomes = [dispatcher.shutdown(remaining(end)) for dispatcher in list(_open_dispatchers)]
    return all(outcomes)
