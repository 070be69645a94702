"""The pipeline: takes the turns of the integrations, and has them evaluated and exported.

A turn goes through three stages: local metrics within the budget, on a pool of threads; the export of the turn with
these scores; the rest of its metrics, as a job. A caller waits for the first stage only if another tracer's span is to
have the scores, since that span ends when the call returns, or if ``on_evaluation`` is to be called first.
"""

from __future__ import annotations

import logging
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from opentelemetry.context import Context

from rageval_hooks.budgets import SharedBudget
from rageval_hooks.exporters.base import ContentPolicy, Exporter
from rageval_hooks.online.build import Parts
from rageval_hooks.online.celery import CeleryDispatcher
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.delivery import Delivery
from rageval_hooks.online.dispatch import Dispatcher, ThreadDispatcher
from rageval_hooks.online.engine import PASSING_FAILURES, Engine
from rageval_hooks.online.job import Job
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.preparation import Preparer
from rageval_hooks.online.spool import SpoolDispatcher
from rageval_hooks.online.spool_file import SpoolFile
from rageval_hooks.online.stages import TURN_POOL, EndedTurn, InlineStage
from rageval_hooks.online.turn_context import MetricSampler, TurnContext, TurnSelector
from rageval_hooks.runtime.at_exit import EXIT_DRAIN, is_exiting
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.interrupts import raise_interrupt
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import local_pool, on_pool_thread
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.worker import judge_worker, shared_worker
from rageval_hooks.score import Evaluation, metric_of
from rageval_hooks.turn import Turn

_logger = logging.getLogger(__name__)

_CLOSE_JUDGE_SECONDS = 5.0
_FLUSH_SHARE = 0.8
"""Share of a shutdown's time that the flush may take; the rest is for closing the judge and the exporters."""

_at_work: weakref.WeakSet[Pipeline] = weakref.WeakSet()
"""The pipelines of this process that have begun a turn. The threads end with the last of them."""


class JobRun(NamedTuple):
    """What became of a job of another process in one attempt.

    Attributes:
        evaluations: the results.
        is_delivered: True if the exporters have delivered them.
        rest: the job with the metrics that the judge could not answer now; no metrics if it answered all.
        problem: why something is left; None if nothing is.
    """

    evaluations: list[Evaluation]
    is_delivered: bool
    rest: Job
    problem: str | None


class Pipeline:
    """Takes turns from the integrations, evaluates them and hands the results to the exporters.

    Exceptions in here never reach the caller: they are logged and counted.

    Args:
        parts: what it is made of.

    Attributes:
        settings: the plain settings.
        metrics: the metrics to compute.
        exporters: where evaluations go.
        models: the local models.
        judge: for judge metrics; None without judge metrics.
        tracer_provider: whose tracer writes the turns' spans; None for the application's global one.
        engine: runs the metrics.
        enabled: False to take no new turns.
        privacy: what may leave the process.
        content: the texts that exporters may get.
        holds_interrupted: False to submit a turn that waits for a person at once: it will not be resumed here.
        computes_inline: True if turns have an inline stage: there are local metrics, or ``on_evaluation``.
    """

    def __init__(self, parts: Parts) -> None:
        settings = self.settings = parts.settings
        self.metrics = parts.metrics
        self.exporters = parts.exporters
        self.models = parts.models
        self.judge = parts.judge
        self.tracer_provider = parts.tracer_provider
        self.privacy = parts.privacy
        self.enabled = settings.enabled
        self.holds_interrupted = True
        self.computes_inline = parts.on_evaluation is not None or any(not metric.asks_judge for metric in self.metrics)
        self.content = ContentPolicy.of_settings(settings.capture_content)
        self._worker = worker = shared_worker()
        self._counters = counters = Counters()
        self._log = RateLimitedLogger(_logger)
        self._selector = TurnSelector(settings, parts.tracer_provider, counters)
        sampler = MetricSampler(self.metrics, settings)
        self.engine = Engine(
            self.metrics,
            self.models,
            self.judge,
            thresholds=parts.thresholds,
            probabilities=sampler.probabilities,
            privacy=self.privacy,
            judge_worker=judge_worker(),
        )
        self._preparer = Preparer(self.metrics, self.models)
        max_bytes = int(settings.queue_max_mb * 2**20)
        self._delivery = Delivery(
            exporters=self.exporters,
            worker=worker,
            counters=counters,
            privacy=self.privacy,
            content=self.content,
            max_bytes=max_bytes,
            on_evaluation=parts.on_evaluation,
        )
        memory = ThreadDispatcher(
            engine=self.engine, worker=worker, delivery=self._delivery, settings=settings, counters=counters
        )
        self._spool: SpoolDispatcher | None = None
        self._dispatcher: Dispatcher = memory
        if settings.dispatch == "celery":
            self._dispatcher = CeleryDispatcher(
                settings=settings, memory=memory, worker=worker, delivery=self._delivery
            )
        elif settings.dispatch == "spool":
            self._dispatcher = self._spool = SpoolDispatcher(
                engine=self.engine,
                worker=worker,
                delivery=self._delivery,
                memory=memory,
                open_file=partial(SpoolFile, settings),
                queue_size=settings.queue_size,
                max_bytes=max_bytes,
            )
        self._inline = InlineStage(
            engine=self.engine,
            sampler=sampler,
            worker=worker,
            delivery=self._delivery,
            memory=memory,
            dispatcher=self._dispatcher,
            counters=counters,
            privacy=self.privacy,
            content=self.content,
            settings=settings,
        )
        self._failed_seen = 0
        self.reset_after_fork()
        reset_in_child(self)
        if self.exporters:  # otherwise the exit has nothing to wait for
            # Jobs keep the delivery, also after the pipeline was dropped with its handler.
            EXIT_DRAIN.allow(self._delivery, settings.drain_timeout)
        if self._spool is not None and settings.enabled:
            _at_work.add(self)
            self._spool.start()

    def reset_after_fork(self) -> None:
        """Start the child's threads with its first turn."""
        self._has_begun = False

    @classmethod
    def build(cls, **arguments: Any) -> Pipeline:
        """Create a pipeline from the arguments of :meth:`rageval_hooks.online.build.Parts.of`."""
        return cls(Parts.of(**arguments))

    @property
    def typical_size(self) -> int:
        """About how many bytes a turn has that is not built yet."""
        return self._inline.typical_size

    def load_models(self) -> None:
        """Begin to load, in the background, the models that the metrics use."""
        self.models.load({role for metric in self.metrics for role in metric.models})

    # -- turns, on the threads of the application

    def begin(self, context: Context, *, selected: bool | None = None) -> TurnContext:
        """Decide, before any work, whether the turn that begins now is captured.

        Args:
            context: the current OpenTelemetry context.
            selected: the decision for the first half of a turn that is resumed; None to decide.
        """
        selection = self._selector.begin(context, enabled=self.enabled, selected=selected)
        if selection.selected:
            self._begin_work()
        return selection

    def _begin_work(self) -> None:
        """Start the threads, and the load of the models, once."""
        # Not in `instrument()`: a server that forks its workers then has nothing of ours that a fork could cut.
        if self._has_begun:
            return
        self._has_begun = True
        _at_work.add(self)
        EXIT_DRAIN.register()
        local_pool().start()
        with suppress(RuntimeError):  # the interpreter is exiting; the turn will be counted as dropped
            self._worker.start()
        self.load_models()

    def prepare(self, selection: TurnContext, query: str, texts: Iterable[str]) -> None:
        """Analyse passages in the background while the model writes; the turn's own evaluation uses the results.

        Args:
            selection: the turn's sampling decision and its position in the trace.
            query: the retriever's query.
            texts: the passages that the retriever returned.
        """
        try:
            if selection.selected and (preparation := self._preparer.start(query, texts)):
                selection.preparations.append(preparation)
        except Exception as error:
            raise_interrupt(error)
            self.failed("passages could not be prepared", error)

    def submit(
        self, ended: EndedTurn, selection: TurnContext | None = None, *, may_have_scores: bool = True
    ) -> PendingTurn:
        """Take a turn that has just ended, and start its evaluation. Returns at once.

        Args:
            ended: the turn.
            selection: its sampling decision and its position in the trace; None for a turn that was not sampled.
            may_have_scores: False if the turn certainly has no local scores. It then takes no inline thread.

        Returns:
            What a caller may wait for, within the inline budget: see :meth:`PendingTurn.wait`.
        """
        if sys.is_finalizing():  # after the exit handlers: there are no threads any more, and no exporters
            return DONE
        begun = self._counters.new_turn()
        try:
            begun.begin()
            may_have_scores = may_have_scores and self.computes_inline
            pending = self._inline.start(ended, selection, begun, may_have_scores=may_have_scores)
        except BaseException:  # an interrupt
            begun.drop("interrupted")
            raise
        if is_exiting():  # the drain may be over, or may never come
            self.flush(EXIT_DRAIN.timeout)
        return pending

    def count_dropped(self, cause: str) -> None:
        """Count a turn that is not submitted, by one of the causes in :data:`rageval_hooks.online.counters.DROPPED`.

        Safe in a finalizer: it takes no lock.
        """
        self._counters.drop_unbegun(cause)

    def evaluate(self, turn: Turn, names: Iterable[str] | None = None) -> Evaluation:
        """Compute metrics for a turn here and now, waiting for models and the judge; nothing is exported.

        Args:
            turn: the turn.
            names: some of the metrics; None for all.
        """
        job = self.engine.job(turn, names)
        evaluation = self._worker.call(lambda: self.engine.evaluate(job)).result()
        return self._counters.counted(evaluation)

    def deliver(self, evaluation: Evaluation, to: Exporter) -> None:
        """Hand an evaluation to one of the exporters, as all are handed over; for ``rageval-hooks doctor``."""
        self._delivery.export(evaluation, to=to)

    def feedback(self, evaluation: Evaluation) -> bool:
        """Export what a person says of an answer, in the background. Returns False if it is not taken.

        Args:
            evaluation: the feedback, of :func:`rageval_hooks.online.feedback.feedback_on`.
        """
        if not self.enabled or sys.is_finalizing():
            return False
        _at_work.add(self)
        EXIT_DRAIN.register()

        def export() -> None:
            results = tuple(map(self.privacy.feedback, evaluation.results))
            self._delivery.export(self._counters.counted(evaluation.model_copy(update={"results": results})))

        return self._delivery.submit(export, evaluation.turn.size)

    def failed(self, what: str, error: BaseException) -> None:
        """Count and log an exception of our own that must not reach the application."""
        self._counters.add("internal_errors")
        self._log.warn(what, "%s: %s [RAGEVAL-216]", what, type(error).__name__, error=error)

    def run_job(self, job: Job, undelivered: Sequence[Evaluation] = (), *, timeout: float, gives_up: bool) -> JobRun:
        """Evaluate a job of another process here, and wait until the exporters have delivered its results.

        Args:
            job: the turn and its metrics.
            undelivered: results of an earlier attempt, which are delivered first.
            timeout: seconds that the exporters may take.
            gives_up: True for the last attempt: failures of the judge that may pass are delivered, too.
        """
        self._begin_work()
        parts, waiting = list(undelivered), dict[str, str]()

        async def deliver(part: Evaluation) -> None:
            passing = [result for result in part.failed if result.error_type in PASSING_FAILURES]
            waiting.update((metric_of(result), result.reason) for result in passing)
            if passing and not gives_up:
                return
            parts.append(part)
            await self._delivery.deliver(part, job)

        async def evaluate() -> None:
            for part in undelivered:
                await self._delivery.deliver(part, job, is_repeated=True)
            await self.engine.evaluate(job, on_part=deliver, executor=local_pool(), stage="background")

        self._worker.call(evaluate).result()
        is_delivered = self._delivery.flush(timeout, reader="jobs")
        problem = next(iter(waiting.values()), None)
        if not is_delivered:
            problem = "the exporters could not deliver the scores"
        # A judge metric that is tried again must not forget the verdict by which it was sampled.
        known = job.decided(result for part in parts for result in part.results)
        return JobRun(parts, is_delivered=is_delivered, rest=known.only(waiting), problem=problem)

    # -- lifecycle

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything is evaluated and delivered. Returns False if it was not, or not in time."""
        return self._finish(timeout, self._dispatcher.flush)

    def _finish(self, timeout: float, finish_jobs: Callable[[float], bool]) -> bool:
        end = time.monotonic() + timeout
        # A callback that flushes must not wait for the turn it belongs to.
        done = on_pool_thread() or TURN_POOL.wait(timeout)
        done = finish_jobs(remaining(end)) and done
        done = self._delivery.flush(remaining(end)) and done
        # What has failed since the last flush: the turn, or the scores of a job, are missing.
        failed = self._dispatcher.stats()["failed"] + self._counters.failed_turns()
        seen, self._failed_seen = self._failed_seen, failed
        return failed <= seen and done

    def shutdown(self, timeout: float | None = None) -> bool:
        """Take no more turns, deliver what is pending, and shut down the exporters that no other pipeline uses.

        Returns:
            False if something was not evaluated or not delivered in time.
        """
        self.enabled = False
        timeout = self.settings.drain_timeout if timeout is None else timeout
        end = time.monotonic() + timeout
        done = self._finish(timeout * _FLUSH_SHARE, self._dispatcher.shutdown)
        # Half of what is left: a judge that hangs must not take the exporters' time.
        self.close_judge(remaining(end) / 2)
        done = self._delivery.shutdown(remaining(end)) and done
        EXIT_DRAIN.release(self._delivery)
        _at_work.discard(self)
        if not _at_work:
            local_pool().shutdown()
            self._worker.stop(lambda: not _at_work)
            judge_worker().stop(lambda: not _at_work)
        return done

    def close_judge(self, timeout: float = _CLOSE_JUDGE_SECONDS) -> None:
        """Close the judge's connections; it opens new ones when it is asked again."""
        if self.judge is None:
            return
        try:
            judge_worker().call(self.judge.aclose).result(timeout)
        except Exception as error:
            self.failed("the judge's connections could not be closed", error)

    def stats(self) -> dict[str, Any]:
        """Return the counters: turns, results by status, errors, the background queues, models, exporters, judge."""
        roles = self.models.needed(role for metric in self.metrics for role in metric.models)
        gates = getattr(self.judge, "gates", ())
        return {
            **self._counters.snapshot(),
            "without_passages_by_reason": self._inline.missing_passages.by_reason(),
            "tool_results_left_out": self._inline.missing_passages.left_out(),
            "queues": {"export": self._delivery.stats(), "evaluate": self._dispatcher.stats()},
            "spool": self._spool.details() if self._spool else None,
            "models": {role: self.models.state(role) for role in sorted(roles)},
            "exporters": self._delivery.exporter_stats(),
            "judge": None if self.judge is None else self.judge.stats(),
            "judge_budget": next((gate.stats() for gate in gates if isinstance(gate, SharedBudget)), None),
        }
