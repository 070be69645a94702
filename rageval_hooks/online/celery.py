"""Celery: this process publishes jobs to the team's broker, and workers evaluate them.

The application that workers run is :mod:`rageval_hooks.workers`. Retries, acknowledgements, priorities and monitoring
are Celery's own: see docs/guides/scale.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress as suppress_errors
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import ValidationError

from rageval_hooks.errors import ConfigurationError, requires
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.delivery import Delivery
from rageval_hooks.online.dispatch import Dispatcher
from rageval_hooks.online.job import Job
from rageval_hooks.online.spool_file import SpoolFile, StoredJob
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.queues import BoundedQueue
from rageval_hooks.runtime.suppression import suppress
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.worker import Worker
from rageval_hooks.settings import Settings
from rageval_hooks.text.formatting import flat

if TYPE_CHECKING:
    from celery import Celery


_logger = logging.getLogger(__name__)

TASK: Final = "rageval_hooks.evaluate"
QUEUE: Final = "rageval"
FAILED_QUEUE: Final = "rageval.failed"
"""Jobs that failed three times, with their reason. ``rageval-hooks jobs`` lists and resends them."""

PROBE: Final = "rageval.probe."
"""Beginning of the names of the queues for answers to ``rageval-hooks doctor``."""

FORMAT: Final = 1
"""Version of a message's content. A worker keeps a message of a later version in the queue of failed jobs."""

_MAX_MIB: Final = 15
"""A larger job is refused. RabbitMQ 4 takes messages of up to 16 MiB."""

_PAUSE_SECONDS: Final = 5.0
"""Seconds between two attempts to reach the broker."""

_COUNT_SECONDS: Final = 5.0
"""Seconds between two counts of what waits at the broker."""

_IDLE_SECONDS: Final = 1.0
"""Seconds between two attempts to publish the jobs of the spool."""

_CLOSE_SECONDS: Final = 0.1
"""How long a shutdown waits for what was cancelled, and for connections that are closed, at least."""

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
    """Publishes jobs, one at a time, so that no caller waits for the broker.

    While the broker cannot be reached, jobs wait in memory, or in the spool if ``broker_fallback`` says so. The spool
    keeps them if this process ends; the next one publishes them.

    Args:
        settings: the broker, the capacity and the fallback.
        memory: evaluates the jobs that only this process can evaluate.
        worker: the background thread.
        delivery: receives jobs that cannot be published.
    """

    def __init__(self, *, settings: Settings, memory: Dispatcher, worker: Worker, delivery: Delivery) -> None:
        self._settings = settings
        self._memory = memory
        self._worker = worker
        self._delivery = delivery
        self._queue = BoundedQueue("publish", settings.queue_size, settings.queue_max_mb * 2**20)
        self._log = RateLimitedLogger(_logger)
        self._closed = False
        self.reset_after_fork()
        reset_in_child(self)
        EXIT_DRAIN.add(self.shutdown, "evaluate", weak=True)

    def reset_after_fork(self) -> None:
        """Start with nothing: the parent publishes its own jobs, on its own connections."""
        self._app = celery_app(self._settings)
        self._in_order = asyncio.Lock()
        self._resender: asyncio.Task[None] | None = None
        self._down_until = 0.0
        self._file = SpoolFile(self._settings) if self._settings.broker_fallback == "spool" else None
        # An earlier process may have left jobs in the spool.
        self._has_stored = self._file is not None and self._file.path.exists()
        self._counts = Counter[str]()
        self._at_broker: dict[str, int] = {}
        self._counted_at = 0.0

    async def submit(self, job: Job, *, analysis: TurnAnalysis | None = None) -> bool:
        """Queue a job for the broker. Returns False, and counts, if too many wait for it."""
        if any(spec.reference is None for spec in job.metrics):  # only this process has such a metric
            return await self._memory.submit(job, analysis=analysis)
        return self._worker.submit(self._queue, partial(self._carry, job), job.turn.size)

    def flush(self, timeout: float) -> bool:
        """Wait until every job is at the broker or in the spool. What workers do then is not waited for."""
        return self._worker.flush(timeout)

    def shutdown(self, timeout: float) -> bool:
        """Publish what waits, then stop. Returns False if jobs were dropped; their traces say why."""
        end = time.monotonic() + timeout
        is_done = self.flush(timeout)
        self._closed = True
        EXIT_DRAIN.remove(self.shutdown, weak=True)
        if self._queue.pending:
            left = self._queue.pending
            _logger.warning("rageval-hooks: shut down with %d jobs that no broker took [RAGEVAL-416]", left)
        if self._resender is not None:
            self._queue.tasks.add(self._resender)
        self._worker.cancel(self._queue, remaining(end) / 2)
        # The jobs that had not begun see that this is closed.
        self._worker.flush(max(_CLOSE_SECONDS, remaining(end) / 2))
        # After what the thread is doing. A connection that is broken needs no closing.
        with suppress_errors(Exception):
            closed = self._worker.call(lambda: self._worker.in_order(self._app.close))
            closed.result(max(_CLOSE_SECONDS, remaining(end)))
        return self._memory.shutdown(remaining(end)) and is_done

    def stats(self) -> dict[str, int]:
        """Return the counters: of this process, and of the broker as they were some seconds ago."""
        memory = self._memory.stats()
        return {
            "pending": self._queue.pending + memory["pending"],
            "dropped": self._queue.dropped + self._counts["dropped"] + memory["dropped"],
            "failed": self._queue.failed + memory["failed"],
            **{name: self._counts[name] for name in ("published", "stored", "too_large", "broker_errors")},
            **self._at_broker,
        }

    # -- in the event loop of the background thread

    async def _carry(self, job: Job) -> None:
        """Bring a job to the broker, or to the spool while the broker cannot be reached."""
        suppress()
        content, reason = job.model_dump_json(), "the broker could not be reached before the shutdown"
        size = len(content) / 2**20
        if size > _MAX_MIB:
            self._counts["too_large"] += 1
            self._delivery.skip(job, f"the job has {size:.0f} MiB, and brokers take {_MAX_MIB}")
            return
        try:
            async with self._in_order:
                while not self._closed:
                    if await self._reaches_broker(partial(self._publish, job, job.key, content)):
                        return
                    if self._file is not None:
                        if await self._worker.in_order(partial(self._store, self._file, job.key, content)):
                            return
                        reason = "the broker cannot be reached, and the spool is full or cannot be used"
                        break
                    await asyncio.sleep(remaining(self._down_until))
        except asyncio.CancelledError:  # by the shutdown
            pass
        finally:
            if self._has_stored and self._resender is None and not self._closed:
                self._resender = asyncio.create_task(self._resend())
        self._counts["dropped"] += 1
        self._delivery.skip(job, reason)

    async def _resend(self) -> None:
        """Publish the jobs of the spool once the broker can be reached."""
        while self._file is not None and self._has_stored and not self._closed:
            async with self._in_order:
                await self._reaches_broker(partial(self._publish_stored, self._file))
            await asyncio.sleep(_IDLE_SECONDS)
        self._resender = None

    async def _reaches_broker(self, send: Callable[[], object]) -> bool:
        """Do something at the broker; not during the pause after a failure. Returns True if it was done."""
        if remaining(self._down_until):
            return False
        try:
            await self._worker.in_order(send)
        except Exception as error:
            self._counts["broker_errors"] += 1
            self._log.warn("broker", "jobs cannot be published, and wait: %s [RAGEVAL-411]", type(error).__name__)
            self._down_until = time.monotonic() + _PAUSE_SECONDS
            return False
        return True

    # -- not in the event loop

    def _publish(self, job: Job, key: str, content: str) -> None:
        """Publish a job.

        Raises:
            Exception: the broker cannot be reached.
        """
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
        self._counts["published"] += 1
        if time.monotonic() - self._counted_at > _COUNT_SECONDS:
            self._counted_at = time.monotonic()
            self._at_broker = {
                "waiting_at_broker": message_count(self._app, QUEUE),
                "failed_at_broker": message_count(self._app, FAILED_QUEUE),
            }

    def _store(self, file: SpoolFile, key: str, content: str) -> bool:
        """Store a job until the broker is back. Returns False if the file is full or cannot be used."""
        try:
            with file.transaction():
                outcome = file.add(key, content)
        except Exception as error:
            self._log.warn("spool", "jobs for the broker cannot be stored: %s [RAGEVAL-414]", type(error).__name__)
            return False
        if outcome == "refused":
            return False
        self._counts["stored"] += 1
        self._has_stored = True
        return True

    def _publish_stored(self, file: SpoolFile) -> None:
        """Publish the jobs of the spool, in batches. A crash in between publishes some twice, under the same id.

        Raises:
            Exception: the broker or the file cannot be used.
        """
        while not self._closed:
            with file.transaction():
                claimed = file.claim(_BATCH, waiting=False)
            if not claimed:
                self._has_stored = False
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
                    finished.append(stored)
            finally:
                with file.transaction():
                    for stored in finished:
                        file.finish(stored)
                    for stored in unreadable:
                        file.set_aside(stored)
                    file.release_all()
            if unreadable:
                _logger.warning(
                    "rageval-hooks: %d jobs of the spool cannot be read, and stay [RAGEVAL-417]", len(unreadable)
                )


def _context_of(job: Job) -> Context:
    """Return a context in which the turn's span is the current one."""
    span = job.turn.span
    if span is None:
        return Context()
    ids = SpanContext(int(span.trace_id, 16), int(span.span_id, 16), is_remote=True, trace_flags=TraceFlags(1))
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
            reasons[flat(str(message.payload.get("reason")))] += 1
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
    name = f"{PROBE}{uuid4().hex}"
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
