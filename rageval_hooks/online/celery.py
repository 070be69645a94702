"""Celery: this process publishes jobs to the team's broker, and workers evaluate them.

The application that workers run is :mod:`rageval_hooks.workers`. Retries, acknowledgements, priorities and monitoring
are Celery's own: see docs/guides/scale.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import ValidationError

from rageval_hooks.errors import ConfigurationError, requires
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.dispatch import Dispatcher
from rageval_hooks.online.job import Job
from rageval_hooks.online.spool.store import SpoolFile, StoredJob
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import delay_forks, reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.suppression import suppressed
from rageval_hooks.runtime.worker import BoundedQueue, Worker
from rageval_hooks.settings import Settings

if TYPE_CHECKING:
    from celery import Celery


_logger = logging.getLogger(__name__)

TASK: Final = "rageval_hooks.evaluate"
QUEUE: Final = "rageval"
FAILED_QUEUE: Final = "rageval.failed"
"""Jobs that failed three times, with their reason. ``rageval-hooks jobs`` lists and resends them."""

FORMAT: Final = 1
"""Version of a message's content. A worker keeps a message of a later version in the queue of failed jobs."""

_MOST_BYTES: Final = 15 * 2**20
"""A larger job is refused. RabbitMQ 4 takes messages of up to 16 MiB."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
"""Seconds between two attempts to reach the broker."""

_COUNT_SECONDS: Final = 5.0
"""Seconds between two counts of what waits at the broker."""

_IDLE_SECONDS: Final = 1.0

_BATCH: Final = 50


def celery_app(settings: Settings) -> Celery:
    """Return a Celery application for the jobs of this package.

    Args:
        settings: they name the broker, and perhaps a module with Celery's own settings.

    Raises:
        ConfigurationError: no broker is named.
        MissingDependencyError: Celery is not installed.
    """
    if settings.broker is None:
        raise ConfigurationError("there is no broker: set RAGEVAL_BROKER, such as redis://host:6379/0 or amqp://host")
    with requires("celery", "celery", "dispatch='celery'"):
        from celery import Celery
    app = Celery("rageval_hooks", set_as_current=False)
    app.add_defaults(
        {
            # A broker that is down is found out in seconds; the dispatcher tries again.
            "broker_connection_timeout": 4.0,
            "broker_connection_retry_on_startup": True,
            # Redis gives a job to another worker after this time. A judge takes seconds.
            "broker_transport_options": {"visibility_timeout": 600, "socket_connect_timeout": 4, "socket_timeout": 30},
            "worker_prefetch_multiplier": 1,
            # The host's logging stays as it is in the worker, too.
            "worker_hijack_root_logger": False,
        }
    )
    if settings.celery_config is not None:
        app.config_from_object(settings.celery_config)
    broker = settings.broker.get_secret_value()
    app.conf.update(
        # Not `broker_url`: CELERY_BROKER_URL, which may be that of an application of the host, comes before it.
        broker_read_url=broker,
        broker_write_url=broker,
        task_default_queue=QUEUE,
        task_ignore_result=True,
        # Never pickle: a job is plain data.
        task_serializer="json",
        accept_content=["json"],
        # A worker that dies gives its jobs back. The scores of a repeated job have the same ids.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
    )
    return app


class CeleryDispatcher:
    """Publishes jobs on a thread of its own, so that no caller and no event loop waits for the broker.

    While the broker cannot be reached, jobs wait in memory, or in the spool if ``broker_fallback`` says so. The spool
    keeps them if this process ends; the next one publishes them.

    Args:
        settings: the broker, the capacity and the fallback.
        memory: evaluates the jobs that only this process can evaluate.
        worker: the background thread, on which evaluations are exported.
        drop: receives jobs that cannot be published, with the reason; called on the background thread.
    """

    def __init__(
        self, settings: Settings, memory: Dispatcher, worker: Worker, drop: Callable[[Job, str], None]
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._worker = worker
        self._drop = drop
        self._refused = BoundedQueue("refused", settings.queue_size, settings.queue_max_mb * 2**20)
        self._log = RateLimitedLogger(_logger)
        self.reset_after_fork()
        reset_in_child(self)
        EXIT_DRAIN.add(self.shutdown, "evaluate", lambda: bool(self._jobs))

    def reset_after_fork(self) -> None:
        """Start with nothing: the parent publishes its own jobs, on its own connections."""
        self._app = celery_app(self._settings)
        self._jobs: deque[Job] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pause, self._down_until = _FIRST_PAUSE, 0.0
        self._file: SpoolFile | None = None
        if self._settings.broker_fallback == "spool":
            size = int(self._settings.spool_max_mb * 2**20)
            self._file = SpoolFile(Path(self._settings.spool_path), size, self._settings.spool_lease)
        # An earlier process may have left jobs in the spool.
        self._stored = 1 if self._file is not None and self._file.path.exists() else 0
        self._counts = Counter[str]()
        self._at_broker: dict[str, int] = {}
        self._counted_at = 0.0

    def submit(self, job: Job, *, analysis: TurnAnalysis | None = None, in_memory: bool = False) -> bool:
        """Queue a job for the broker. Returns False, and counts, if too many wait for it."""
        if in_memory or job.bound_to_process:
            return self._memory.submit(job, analysis=analysis, in_memory=True)
        with self._changed:
            has_room = not self._jobs or self._bytes + job.turn.size <= self._settings.queue_max_mb * 2**20
            if self._closed or len(self._jobs) >= self._settings.queue_size or not has_room:
                self._counts["dropped"] += 1
                return False
            self._jobs.append(job)
            self._bytes += job.turn.size
            if self._thread is None:
                EXIT_DRAIN.register()
                self._thread = threading.Thread(target=self._run, name="rageval-publish", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return True

    def flush(self, timeout: float) -> bool:
        """Wait until every job is at the broker or in the spool. What workers do then is not waited for."""
        end = time.monotonic() + timeout
        # First the turns that are being exported: their jobs have not come here yet.
        is_done = self._memory.flush(timeout)
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs, max(0.0, end - time.monotonic())) and is_done

    def shutdown(self, timeout: float) -> bool:
        """Publish what waits, then stop. Returns False if jobs were dropped; their traces say why."""
        end = time.monotonic() + timeout
        is_done = self.flush(timeout)
        with self._changed:
            self._closed = True
            left = list(self._jobs)
            self._jobs.clear()
            self._changed.notify_all()
        EXIT_DRAIN.remove(self.shutdown)
        if left:
            _logger.warning("rageval-hooks: shut down with %d jobs that no broker took [RAGEVAL-416]", len(left))
        for job in left:
            self._refuse(job, "dropped", "the broker could not be reached before the shutdown")
        if self._thread is not None:
            self._thread.join(max(0.1, end - time.monotonic()))
        return self._memory.shutdown(max(0.0, end - time.monotonic())) and is_done

    def stats(self) -> dict[str, int]:
        """Return the counters: of this process, and of the broker as they were some seconds ago."""
        memory = self._memory.stats()
        return {
            "pending": len(self._jobs) + memory["pending"],
            "dropped": self._counts["dropped"] + memory["dropped"],
            "failed": memory["failed"],
            **{name: self._counts[name] for name in ("published", "stored", "too_large", "broker_errors")},
            **self._at_broker,
        }

    def _refuse(self, job: Job, count: str, reason: str) -> None:
        self._counts[count] += 1
        self._worker.submit(self._refused, partial(self._drop, job, reason), job.turn.size)

    # -- on the publishing thread

    def _run(self) -> None:
        with suppressed():
            while True:
                with self._changed:
                    # With jobs in the spool it looks from time to time whether the broker is back.
                    pause = _IDLE_SECONDS if self._stored else None
                    self._changed.wait_for(lambda: self._closed or bool(self._jobs), pause)
                    if self._closed:
                        break
                    job = self._jobs[0] if self._jobs else None
                try:
                    self._publish_or_store(job)
                except Exception as error:
                    self._counts["broker_errors"] += 1
                    self._log.warn(
                        "broker", "jobs cannot be published, and wait: %s [RAGEVAL-411]", type(error).__name__
                    )
                    self._down_until = time.monotonic() + self._pause
                    self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            self._app.close()

    def _publish_or_store(self, job: Job | None) -> None:
        wait = self._down_until - time.monotonic()
        if wait > 0:
            if job is not None and self._file is not None:
                self._store(job, self._file)
                return
            with self._changed:
                self._changed.wait_for(lambda: self._closed, min(wait, _IDLE_SECONDS))
            return
        if job is not None:
            if self._publish(job, job.key, job.model_dump_json()):
                self._counts["published"] += 1
            self._remove(job)
        if self._stored and self._file is not None:
            self._publish_stored(self._file)
        self._pause = _FIRST_PAUSE
        if self._counts["published"] and time.monotonic() - self._counted_at > _COUNT_SECONDS:
            self._counted_at = time.monotonic()
            self._at_broker = {
                "waiting_at_broker": message_count(self._app, QUEUE),
                "failed_at_broker": message_count(self._app, FAILED_QUEUE),
            }

    def _remove(self, job: Job) -> None:
        with self._changed:
            if self._jobs and self._jobs[0] is job:  # a shutdown may have taken it
                self._jobs.popleft()
                self._bytes -= job.turn.size
            self._changed.notify_all()

    def _publish(self, job: Job, key: str, content: str) -> bool:
        """Publish a job. Returns False if it is too large for a broker.

        Raises:
            Exception: the broker cannot be reached.
        """
        if len(content) > _MOST_BYTES:
            self._refuse(
                job,
                "too_large",
                f"the job has {len(content) / 2**20:.0f} MiB, and brokers take {_MOST_BYTES / 2**20:.0f}",
            )
            return False
        # With this context an instrumentor of Celery adds the task to the turn's trace, and begins none of its own.
        context = _context_of(job)
        headers: dict[str, Any] = {}
        TraceContextTextMapPropagator().inject(headers, context)
        token = attach(context)
        try:
            self._app.send_task(
                TASK, kwargs={"format": FORMAT, "job": content}, task_id=key, headers=headers, retry=False
            )
        finally:
            detach(token)
        return True

    def _store(self, job: Job, file: SpoolFile) -> None:
        """Store a job until the broker is back; drop it if the file is full or cannot be used."""
        try:
            with delay_forks(), file.session(), file.transaction():
                outcome = file.add(job.key, job.model_dump_json())
        except Exception as error:
            self._log.warn("spool", "jobs for the broker cannot be stored: %s [RAGEVAL-414]", type(error).__name__)
            outcome = "refused"
        if outcome == "refused":
            self._refuse(job, "dropped", "the broker cannot be reached, and the spool is full or cannot be used")
        else:
            self._counts["stored"] += 1
            self._stored += 1
        self._remove(job)

    def _publish_stored(self, file: SpoolFile) -> None:
        """Publish the jobs of the spool, in batches. A crash in between publishes some twice, under the same id.

        Raises:
            Exception: the broker or the file cannot be used.
        """
        while not self._closed:
            with delay_forks(), file.session(), file.transaction():
                claimed = file.claim(_BATCH, waiting=False)
            if not claimed:
                self._stored = 0
                return
            finished, unreadable = list[StoredJob](), list[StoredJob]()
            try:
                for stored in claimed:
                    try:
                        job = Job.model_validate_json(stored.text)
                    except ValidationError:
                        unreadable.append(stored)
                        continue
                    self._publish(job, stored.key, stored.text)
                    self._counts["published"] += 1
                    finished.append(stored)
            except Exception:
                with delay_forks(), file.session(), file.transaction():
                    file.release_all()
                raise
            with delay_forks(), file.session(), file.transaction():
                for stored in finished:
                    file.finish(stored)
                for stored in unreadable:
                    file.set_aside(stored)
            if unreadable:
                _logger.warning(
                    "rageval-hooks: %d jobs of the spool cannot be read, and stay [RAGEVAL-417]", len(unreadable)
                )


def _context_of(job: Job) -> Context:
    """Return a context in which the turn's span is the current one."""
    if job.span is None:
        return Context()
    ids = SpanContext(int(job.span.trace_id, 16), int(job.span.span_id, 16), is_remote=True, trace_flags=TraceFlags(1))
    return set_span_in_context(NonRecordingSpan(ids), Context())


def message_count(app: Celery, queue: str) -> int:
    """Return how many messages wait in a queue of the broker; 0 if there is no such queue.

    Raises:
        Exception: the broker cannot be reached.
    """
    with app.connection_for_read() as connection:
        try:
            return int(connection.default_channel.queue_declare(queue, passive=True).message_count)
        except connection.channel_errors:
            return 0


def failed_reasons(app: Celery) -> Counter[str]:
    """Return the reasons of the first 1,000 failed jobs at the broker, and how many have each. The jobs stay there."""
    reasons = Counter[str]()
    total = message_count(app, FAILED_QUEUE)
    with app.connection_for_read() as connection, connection.SimpleQueue(FAILED_QUEUE) as failed:
        messages = [failed.get(timeout=5) for _ in range(min(1000, total))]
        for message in messages:
            reasons[str(message.payload.get("reason"))] += 1
            message.requeue()
    return reasons


def resend_failed(app: Celery) -> int:
    """Give the failed jobs at the broker back to the workers. Returns how many.

    Args:
        app: from :func:`celery_app`.
    """
    total = message_count(app, FAILED_QUEUE)
    with app.connection_for_read() as connection, connection.SimpleQueue(FAILED_QUEUE) as failed:
        for _ in range(total):
            message = failed.get(timeout=5)
            content = {name: value for name, value in message.payload.items() if name != "reason"}
            app.send_task(TASK, kwargs=content)
            message.ack()
    return total


def probe(app: Celery, job: Job, seconds: float) -> dict[str, Any]:
    """Have a worker evaluate a job, and return its answer.

    Args:
        app: from :func:`celery_app`.
        job: the job.
        seconds: how long to wait.

    Returns:
        ``results``, evaluations as JSON without their turn, and ``problem``, None or why something is left.

    Raises:
        TimeoutError: no worker answered in time.
        Exception: the broker cannot be reached.
    """
    name = f"{QUEUE}.probe.{uuid4().hex}"
    with (
        app.connection_for_write() as connection,
        connection.SimpleQueue(name, queue_opts={"auto_delete": True, "durable": False}) as replies,
    ):
        replies.consumer.consume()
        # A probe that no worker takes in time is of no use to anybody.
        arguments = {"format": FORMAT, "job": job.model_dump_json(), "reply_to": name}
        app.send_task(TASK, kwargs=arguments, retry=False, expires=seconds)
        try:
            return dict(replies.get(timeout=seconds).payload)
        except replies.Empty:
            raise TimeoutError(f"no worker answered within {seconds:g} seconds") from None
