"""Evaluates one job of a spool: results are stored first and delivered second, so that none is computed twice."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import Job
from rageval_hooks.online.spool.pauses import Pause
from rageval_hooks.online.spool.store import StoredJob
from rageval_hooks.online.spool.tally import Tally
from rageval_hooks.online.spool.thread import Command, SpoolThread
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import local_pool
from rageval_hooks.score import Evaluation, Failed, Result, Skipped, metric_of

__all__ = ["Attempt", "Deliver", "SpoolEvaluator"]

_logger = logging.getLogger(__name__)

_MOST_TAKEOVERS = 10
"""A job that so many processes did not survive is given up: it may be what ends them."""

_MOST_DELIVERIES = 40
"""Attempts to deliver results. From the sixth on they are five minutes apart: about three hours together."""

_WAITING_KINDS = frozenset({"unavailable", "rate_limited", "budget_unavailable"})
"""Kinds of a judge's failure that will pass: the job waits."""

Deliver = Callable[[Evaluation, bool], Awaitable[None]]
"""Receives evaluations as they arrive. The second argument is True for a repetition in this process."""


class Attempt:
    """The outcome of an attempt to evaluate a job.

    Attributes:
        is_lost: True if another process has taken the job over.
        waits: True if metrics remain that wait for the judge.
        has_exported: True if results were handed to the exporters.
    """

    def __init__(self) -> None:
        self.is_lost = False
        self.waits = False
        self.has_exported = False


class SpoolEvaluator:
    """Evaluates jobs of a spool, on the background thread.

    Args:
        engine: evaluates.
        thread: uses the file.
        deliver: receives evaluations.
        tally: counts.

    Attributes:
        judge_pause: runs while the judge cannot be reached.
    """

    def __init__(self, engine: Engine, thread: SpoolThread, deliver: Deliver, tally: Tally) -> None:
        self._engine = engine
        self._thread = thread
        self._deliver = deliver
        self._tally = tally
        self._log = RateLimitedLogger(_logger)
        self.judge_pause = Pause(5.0, 300.0)

    @property
    def can_judge(self) -> bool:
        """True if there is a judge, and it is not known to be unreachable."""
        return self._engine.judge is not None and not self.judge_pause.left

    async def evaluate(self, stored: StoredJob, known: tuple[Job, TurnAnalysis] | None) -> Attempt:
        """Deliver the results that a job has, and compute those that it has not.

        Args:
            stored: the job.
            known: the live job and its analysis, if this process has submitted it.

        Raises:
            pydantic.ValidationError: the job cannot be read: another version of this package wrote it.
        """
        attempt = Attempt()
        job, analysis = known or (Job.model_validate_json(stored.text), None)
        if stored.takeovers:
            self._tally.add(taken_over=1)
        done = await self._deliver_stored(job, stored, attempt)
        rest = job.only(set(job.names) - done)
        if not rest.metrics:
            return attempt
        if stored.takeovers >= _MOST_TAKEOVERS:
            self._tally.add(given_up=1)
            reason = f"given up: {stored.takeovers} processes ended while they evaluated this turn"
            await self._keep(stored, attempt, self._engine.skip(rest, reason).model_copy(update={"id": rest.key}))
            return attempt
        local, judged = self._engine.split(rest)
        if judged.metrics and not self.can_judge:
            attempt.waits = True
            rest = local
        if rest.metrics:
            keep = partial(self._keep, stored, attempt)
            pool = local_pool()
            await self._engine.evaluate(rest, analysis=analysis, executor=pool, on_part=keep, stage="background")
        return attempt

    async def _deliver_stored(self, job: Job, stored: StoredJob, attempt: Attempt) -> set[str]:
        """Deliver results of earlier attempts that are not delivered yet. Returns the names of their metrics."""
        names: set[str] = set()
        is_given_up = stored.deliveries >= _MOST_DELIVERIES
        if is_given_up:
            self._tally.add(undelivered=1)
            self._log.warn(
                "undelivered", "scores of the spool could not be delivered for hours and are given up [RAGEVAL-405]"
            )
            attempt.has_exported = True
        for result in stored.results:
            evaluation = Evaluation.model_validate({**json.loads(result.text), "turn": job.turn})
            names.update(map(metric_of, evaluation.results))
            if not result.is_delivered and not is_given_up:
                self._tally.add(redelivered=1)
                attempt.has_exported = True
                await self._deliver(evaluation, stored.deliveries > 0)
        return names

    async def _keep(self, stored: StoredJob, attempt: Attempt, part: Evaluation) -> None:
        """Store a part of the results, then deliver it."""
        if any(map(_is_waiting, part.results)):
            attempt.waits = True
            if self.judge_pause.begin():
                self._log.warn(
                    "judge", "the judge cannot be asked now: turns wait in %s [RAGEVAL-404]", self._thread.file.path
                )
            return
        if any(map(_is_of_judge, part.results)):
            self.judge_pause.end()
        text = part.model_dump_json(exclude={"turn"})
        if not await self._store(stored.id, part.id or "", text):
            self._tally.add(lost_leases=1)
            attempt.is_lost = True
            return
        attempt.has_exported = True
        await self._deliver(part, False)

    async def _store(self, job_id: int, part: str, text: str) -> bool:
        """Store results. Returns False if another process has the job now."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()

        def set_answer(is_kept: bool) -> None:
            if not answer.done():
                answer.set_result(is_kept)

        def reply(is_kept: bool) -> None:
            loop.call_soon_threadsafe(set_answer, is_kept)

        # Results that cannot be stored are delivered all the same: only after a crash are they computed again.
        self._thread.post(Command(lambda file: file.keep(job_id, part, text), reply, lambda _: reply(True)))
        return await answer


def _is_waiting(result: Result) -> bool:
    return isinstance(result, Failed) and result.error_type in _WAITING_KINDS


def _is_of_judge(result: Result) -> bool:
    return not isinstance(result, Skipped) and result.annotator == "LLM"
