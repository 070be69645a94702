"""The Celery application that evaluates jobs: ``celery -A rageval_hooks.workers worker``.

Set the same ``RAGEVAL_*`` variables as in the application. Importing this module reads them. See docs/guides/scale.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kombu import Queue
from pydantic import ValidationError

from rageval_hooks.online.celery import FAILED_QUEUE, FORMAT, PROBE, TASK, celery_app
from rageval_hooks.online.job import Job
from rageval_hooks.online.pipeline import JobRun, Pipeline
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings
from rageval_hooks.text.formatting import shorten

if TYPE_CHECKING:
    from celery import Celery, Task


_logger = logging.getLogger(__name__)

_RETRIES = 2
"""Attempts after the first one. Then the job is kept in the queue of failed jobs."""

_DELIVERY_SECONDS = 60.0

app: Celery = celery_app(Settings.build())

# Here, so that a worker with wrong settings does not start. Its threads start with the first job, after the fork.
pipeline = Pipeline.build(dispatch="thread")


@app.task(name=TASK, bind=True, max_retries=_RETRIES, default_retry_delay=10)  # type: ignore[untyped-decorator]
def evaluate(task: Task, *_: object, **content: Any) -> None:
    """Evaluate a job, and deliver its results to the exporters of this process.

    Args:
        task: the Celery task.
        content: ``format``, the version of the message; ``job``, as JSON; ``results``, the evaluations of earlier
            attempts as JSON without their turn, which are not computed again; ``reply_to``, a queue that gets the
            results, too: ``rageval-hooks doctor`` waits for them.
    """
    # Anybody who reaches the broker can send anything. Reasons quote names from a message, without control characters.
    if (version := content.get("format")) != FORMAT:
        _keep_failed(content, f"a message of format {str(version)[:20]!r}: this worker reads {FORMAT}; update it")
        return
    try:
        todo = Job.model_validate_json(content["job"])
        texts = content.get("results") or []
        earlier = [Evaluation.model_validate({**json.loads(text), "turn": todo.turn}) for text in texts]
        if not (reply_to := content.pop("reply_to", None) or PROBE).startswith(PROBE):
            raise ValueError("reply_to")
    except Exception as error:
        # Without the values: they may be the turn's texts.
        problem = type(error).__name__
        if isinstance(error, ValidationError):
            problem = ", ".join(".".join(map(str, place["loc"])) for place in error.errors()[:3]) or problem
        _keep_failed(content, f"this version of rageval-hooks cannot read the job: {shorten(problem)}")
        return
    # A job must not choose which modules a worker imports.
    named = {spec.reference for spec in pipeline.engine.job(todo.turn).metrics}
    unknown = [name for name in (spec.reference or "" for spec in todo.metrics) if ":" in name and name not in named]
    if unknown:
        _keep_failed(content, f"the settings of this worker do not name the metric {shorten(unknown[0])}")
        return
    is_last = task.request.retries >= _RETRIES
    try:
        run = pipeline.run_job(todo, earlier, timeout=_DELIVERY_SECONDS, gives_up=is_last)
    except (Exception, SystemExit) as error:
        # Without the message: it may quote the turn.
        _logger.exception("rageval-hooks: a job failed [RAGEVAL-415]")
        run = JobRun(earlier, is_delivered=False, rest=todo, problem=f"an error of the worker: {type(error).__name__}")
    found = [part.model_dump_json(exclude={"turn"}) for part in run.evaluations]
    if reply_to != PROBE:
        _send({"results": found, "problem": run.problem}, reply_to)
        return
    if run.problem is None:
        return
    content["job"] = run.rest.model_dump_json()
    content["results"] = [] if run.is_delivered else found
    if is_last:
        _keep_failed(content, run.problem)
        return
    _logger.warning("rageval-hooks: a job is tried again: %s [RAGEVAL-412]", run.problem)
    raise task.retry(kwargs=content, countdown=task.default_retry_delay * 4**task.request.retries)


def _keep_failed(content: dict[str, Any], reason: str) -> None:
    """Put a job in the queue of failed jobs. Raises if the broker is gone; the job then comes back to a worker."""
    _logger.error("rageval-hooks: a job failed and is kept in %s: %s [RAGEVAL-413]", FAILED_QUEUE, reason)
    _send({**content, "reason": reason}, FAILED_QUEUE, [Queue(FAILED_QUEUE)])


def _send(content: dict[str, Any], queue: str, declare: Sequence[Queue] = ()) -> None:
    with app.producer_or_acquire() as producer:
        producer.publish(
            content, routing_key=queue, declare=declare, serializer="json", delivery_mode="persistent", retry=True
        )
