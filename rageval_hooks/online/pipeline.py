"""The pipeline: takes finished turns, has them evaluated, and delivers the evaluations.

A turn goes through three stages: local metrics within the budget, on a pool of threads; the export of the turn with
these scores; the rest of its metrics, as a job. A caller waits for the first stage only if another tracer's span is to
have the scores, since that span ends when the call returns, or if ``on_evaluation`` is to be called first.
"""

from __future__ import annotations

import logging
import sys
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from tempfile import gettempdir
from typing import Any, NamedTuple

from opentelemetry.context import Context
from opentelemetry.trace import TracerProvider

from rageval_hooks.budgets import SharedBudget
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.base import ContentPolicy, Exporter
from rageval_hooks.judges.base import Judge
from rageval_hooks.metrics.base import AnyMetric, Metric
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.online.build import (
    budgeted_judge,
    resolve_exporters,
    resolve_metrics,
    resolve_thresholds,
    unused_options,
)
from rageval_hooks.online.celery import CeleryDispatcher
from rageval_hooks.online.counters import CountedTurn, Counters, MissingPassages
from rageval_hooks.online.delivery import Delivery, OnEvaluation
from rageval_hooks.online.dispatch import Dispatcher, ThreadDispatcher
from rageval_hooks.online.engine import PASSING_FAILURES, Engine
from rageval_hooks.online.job import Job
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.preparation import Preparer
from rageval_hooks.online.results import Thresholds
from rageval_hooks.online.spool import SpoolDispatcher
from rageval_hooks.online.turn_context import MetricSampler, TurnContext, TurnSelector
from rageval_hooks.privacy import PrivacyPolicy, Redact
from rageval_hooks.runtime.at_exit import EXIT_DRAIN, is_exiting, is_multiprocessing_child
from rageval_hooks.runtime.fork import reset_in_child, run_in_child
from rageval_hooks.runtime.interrupts import raise_interrupt
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import Priority, Steps, local_pool, on_pool_thread, run_steps
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.worker import judge_worker, shared_worker
from rageval_hooks.score import Evaluation, metric_of
from rageval_hooks.settings import LEXICAL, Settings
from rageval_hooks.text.tokens import with_estimated_usage
from rageval_hooks.turn import Turn

_logger = logging.getLogger(__name__)

_CLOSE_JUDGE_SECONDS = 5.0
_FLUSH_SHARE = 0.8
"""Share of a shutdown's time that the flush may take; the rest is for closing the judge and the exporters."""

_ON_WORKER = 0.0
"""The deadline of a turn that is evaluated on the background thread: no caller waits for it."""

_MAX_AWAITED = 4
"""With more evaluations in progress, callers do not wait: behind the others they would not be reached in time."""

_WEIGHT = 1 / 16
"""Weight of the newest turn in the running mean of sizes."""

_at_work: weakref.WeakSet[Pipeline] = weakref.WeakSet()
"""The pipelines of this process that have begun a turn. The threads end with the last of them."""

_turns_on_pool: dict[PendingTurn, int] = {}
"""The turns of this process that the pool has, and their sizes. Changed by single, atomic operations: a finalizer may
end a turn."""

run_in_child(_turns_on_pool.clear)


class JobRun(NamedTuple):
    """What became of a job in one attempt.

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
        settings: the plain settings.
        metrics: the metrics to compute.
        exporters: where evaluations go.
        models: the local models.
        judge: for judge metrics; None without judge metrics.
        thresholds: give scores their labels; None for those of the settings.
        on_evaluation: called with every evaluation, on a background thread.
        tracer_provider: whose ids new traces get; None for the application's global one.
        privacy: what may leave the process; None for everything.

    Attributes:
        tracer_provider: whose tracer writes the turns' spans; None for the application's global one.
        enabled: False to take no new turns.
        privacy: what may leave the process.
        content: the texts that exporters may get.
        holds_interrupted: False to submit a turn that waits for a person at once: it will not be resumed here.
        take_part: returns True if it takes a turn that is part of another one, instead of the pipeline.
        computes_inline: True if turns have an inline stage: there are local metrics, or ``on_evaluation``.
        typical_size: about how many bytes a turn has that is not built yet.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Sequence[Metric],
        exporters: Sequence[Exporter],
        models: Models,
        *,
        judge: Judge | None = None,
        thresholds: Thresholds | None = None,
        on_evaluation: OnEvaluation | None = None,
        tracer_provider: TracerProvider | None = None,
        privacy: PrivacyPolicy | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = tuple(metrics)
        self.exporters = tuple(exporters)
        self.models = models
        self.judge = judge
        self.tracer_provider = tracer_provider
        self.enabled = settings.enabled
        self.privacy = privacy or PrivacyPolicy.of(settings)
        self.holds_interrupted = True
        self.take_part: Callable[[Turn | Callable[[], Turn], TurnContext], bool] | None = None
        self.computes_inline = on_evaluation is not None or any(not metric.asks_judge for metric in self.metrics)
        self.typical_size = 0
        self._budget = settings.inline_budget_ms / 1e3
        self._max_bytes = settings.queue_max_mb * 2**20
        self._worker = shared_worker()
        self._counters = Counters()
        self._log = RateLimitedLogger(_logger)
        self._selector = TurnSelector(settings, tracer_provider, self._counters)
        self._metric_sampler = MetricSampler(self.metrics, settings)
        self.engine = Engine(
            self.metrics,
            models,
            judge,
            thresholds=thresholds or Thresholds(settings.thresholds),
            probabilities=self._metric_sampler.probabilities,
            privacy=self.privacy,
            judge_worker=judge_worker(),
        )
        self._preparer = Preparer(self.metrics, models)
        self._missing_passages = MissingPassages(self._counters)
        self.content = ContentPolicy.build(settings.capture_content)
        self._delivery = Delivery(
            self.exporters,
            self._worker,
            self._counters,
            self.privacy,
            self.content,
            on_evaluation,
            self._max_bytes,
        )
        self._memory = ThreadDispatcher(self.engine, self._worker, self._delivery, settings, self._counters)
        self._dispatcher = self._make_dispatcher()
        self._failed_seen = 0
        self.reset_after_fork()
        reset_in_child(self)
        if self.exporters:  # otherwise the exit has nothing to wait for
            # Jobs keep the delivery, also after the pipeline was dropped with its handler.
            EXIT_DRAIN.allow(self._delivery, settings.drain_timeout)

    def reset_after_fork(self) -> None:
        """Start the child's threads with its first turn."""
        self._has_begun = False

    @classmethod
    def build(
        cls,
        *,
        metrics: Iterable[AnyMetric] | str | None = None,
        exporters: Iterable[Exporter | type[Exporter] | str] | str | None = None,
        judge: object = None,
        tracer_provider: TracerProvider | None = None,
        on_evaluation: OnEvaluation | None = None,
        redact: Redact | bool | None = None,
        **plain: Any,
    ) -> Pipeline:
        """Create a pipeline from keyword arguments, the environment and the defaults.

        Args:
            metrics: names, classes or instances; None for every local default.
            exporters: names, classes or instances; None for ``RAGEVAL_EXPORTERS``, else OpenTelemetry.
            judge: see :func:`rageval_hooks.judges.base.resolve_judge`; None for ``RAGEVAL_JUDGE``, else no judge.
            tracer_provider: for the OpenTelemetry exporter; None for the global one.
            on_evaluation: see :class:`Pipeline`.
            redact: a function of a text, or True for the built-in one; None for ``RAGEVAL_REDACT``.
            plain: the fields of :class:`rageval_hooks.settings.Settings`.

        Raises:
            ConfigurationError: something is wrong or contradictory; the message says what is valid.
        """
        # Wrong arguments must fail at the line that gives them, not later on a background thread.
        if on_evaluation is not None and not callable(on_evaluation):
            raise ConfigurationError(f"on_evaluation must be a function of an Evaluation, not {on_evaluation!r}")
        lists: dict[str, Any] = {"metrics": metrics, "exporters": exporters}
        for name, value in lists.items():
            if not isinstance(value, Iterable | None):
                raise ConfigurationError(f"{name} must be a list of names, classes or instances, not {value!r}")
        # Settings parse the names in a text, and those of the environment; lists of classes and instances stay.
        texts = {name: value for name, value in {**lists, "judge": judge}.items() if isinstance(value, str)}
        settings = Settings.build(**{**dict.fromkeys(("metrics", "exporters", "judge")), **texts}, **plain)
        lists = {
            name: getattr(settings, name) if isinstance(value, str | None) else list(value)
            for name, value in lists.items()
        }
        # Exporters choose what comes first by the names of the metrics.
        named = lists["metrics"]
        names = None if named is None else tuple(str(getattr(found, "name", found)) for found in named)
        for_exporters = settings.model_copy(update={"metrics": names})
        made_exporters = resolve_exporters(lists["exporters"], for_exporters, tracer_provider)
        made_judge = budgeted_judge(judge, settings, plain)
        # The judge comes before the metrics: which defaults run depends on it.
        running = resolve_metrics(lists["metrics"], made_judge, settings, allow_unused_judge=judge is None)
        # A variable of the environment is for the whole process, where it may have its use.
        in_code = [name for name, value in plain.items() if value is not None]
        for name, owner in unused_options(in_code, [*made_exporters, *running]):
            raise ConfigurationError(f"{name} is an option of {owner!r}, which is not in use: add it, or omit {name}")
        # Models and the language detector load in the background, and import numpy. A child that is forked at that
        # moment could not import it again, not even for the application.
        models = settings.models
        is_rules_only = {models.embedder, models.cross_encoder, models.nlp} == {LEXICAL}
        if running and (not is_rules_only or find_spec("py3langid") is not None):
            with suppress(ImportError):
                import_module("numpy")
            gettempdir()  # found under a lock, for which such a child would wait
        pipeline = cls(
            settings,
            running,
            made_exporters,
            Models(models),
            judge=made_judge,
            thresholds=resolve_thresholds(running, settings, own=plain.get("thresholds") is not None),
            on_evaluation=on_evaluation,
            tracer_provider=tracer_provider,
            privacy=PrivacyPolicy.of(settings, redact),
        )
        if isinstance(pipeline._dispatcher, SpoolDispatcher) and settings.enabled:
            _at_work.add(pipeline)
            pipeline._dispatcher.start()
        return pipeline

    def _make_dispatcher(self) -> Dispatcher:
        settings, worker = self.settings, self._worker
        if settings.dispatch == "thread":
            return self._memory
        if settings.dispatch == "celery":
            return CeleryDispatcher(settings, self._memory, worker, self._delivery)
        return SpoolDispatcher(self.engine, worker, self._delivery, self._memory, settings)

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
        turn = self._selector.begin(context, enabled=self.enabled, selected=selected)
        if turn.selected:
            self._begin_work()
        return turn

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

    def prepare(self, context: TurnContext, query: str, texts: Iterable[str]) -> None:
        """Analyse passages in the background while the model writes; the turn's own evaluation uses the results.

        Args:
            context: the turn's trace context.
            query: the retriever's query.
            texts: the passages that the retriever returned.
        """
        try:
            if context.selected and (preparation := self._preparer.start(query, texts)):
                context.preparations.append(preparation)
        except Exception as error:
            raise_interrupt(error)
            self.failed("passages could not be prepared", error)

    def submit(
        self, turn: Turn | Callable[[], Turn], context: TurnContext | None = None, *, computes_inline: bool = True
    ) -> PendingTurn:
        """Take a turn that has just ended, and start its evaluation. Returns at once.

        Args:
            turn: the turn, or a function that builds it on another thread.
            context: the turn's trace context; None for a turn that was not sampled.
            computes_inline: False if the turn certainly has no local scores. It then takes no inline thread.

        Returns:
            What a caller may wait for, within the inline budget: see :meth:`PendingTurn.wait`.
        """
        if sys.is_finalizing():  # after the exit handlers: there are no threads any more, and no exporters
            return DONE
        if self.take_part is not None and context is not None and self.take_part(turn, context):
            return DONE
        begun, pending = self._counters.new_turn(), DONE
        try:
            begun.begin()
            size = turn.size if isinstance(turn, Turn) else self.typical_size
            # Such a process may be terminated once the caller has its answer: it waits for the export too.
            in_child, has_scores = is_multiprocessing_child(), not isinstance(turn, Turn) or self._has_scores(turn)
            if (in_child or (computes_inline and self.computes_inline and has_scores)) and self._has_room(size):
                waits = in_child or self._delivery.has_callback or (context is not None and context.caller_waits)
                pending = self._start_on_pool(turn, context, begun, size, caller_waits=waits)
            elif not self._delivery.submit(lambda: run_steps(self._process(turn, context, begun, _ON_WORKER)), size):
                begun.drop("queue_full")
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

    def failed(self, what: str, error: BaseException) -> None:
        """Count and log an exception of our own that must not reach the application."""
        self._counters.add("internal_errors")
        self._log.warn(what, "%s: %s [RAGEVAL-216]", what, type(error).__name__, error=error)

    def _has_scores(self, turn: Turn) -> bool:
        return turn.is_rag or self.settings.evaluate_without_retrieval

    def _has_room(self, size: int) -> bool:
        """Return True if the pool takes another turn. A metric that ignores the deadline may hold its threads."""
        sizes = list(_turns_on_pool.values())
        # One turn is always taken, whatever its size.
        return not sizes or (len(sizes) < self.settings.queue_size and sum(sizes) + size <= self._max_bytes)

    def _start_on_pool(
        self,
        turn: Turn | Callable[[], Turn],
        context: TurnContext | None,
        begun: CountedTurn,
        size: int,
        *,
        caller_waits: bool,
    ) -> PendingTurn:
        now = time.perf_counter()
        waits = caller_waits and len(_turns_on_pool) < _MAX_AWAITED
        pending = PendingTurn(now + self._budget if waits else now)

        def steps() -> Steps[None]:
            try:
                yield from self._process(turn, context, begun, now + self._budget)
            finally:
                finish()

        def finish() -> None:
            _turns_on_pool.pop(pending, None)
            pending.finish()

        EXIT_DRAIN.add(_wait_for_pool, "capture", lambda: bool(_turns_on_pool))
        EXIT_DRAIN.register()
        try:
            _turns_on_pool[pending] = size
            local_pool().run(steps(), Priority.ENDED, copy_context())
        except BaseException:  # an interrupt, before or after the pool has taken the turn
            finish()
            raise
        return pending

    # -- the first stage, on the pool

    def _process(
        self, turn: Turn | Callable[[], Turn], context: TurnContext | None, begun: CountedTurn, deadline: float
    ) -> Steps[Coroutine[None, None, None] | None]:
        """Build a turn, evaluate it, queue its export and count what became of it.

        Returns:
            On the background thread, the export: the turn is in the queue of exports already.
        """
        what, cause = "a turn could not be built from what was recorded", "not_built"
        try:
            turn = turn if isinstance(turn, Turn) else turn()
            what, cause = "a turn could not be evaluated", "failed"
            deliver = yield from self._evaluate_inline(turn, context, deadline)
        # Also CancelledError, SystemExit and KeyboardInterrupt of the application's metrics and functions.
        except BaseException as error:
            self._counters.add("internal_errors")
            self._log.warn(what, "%s: %s [RAGEVAL-215]", what, type(error).__name__, error=error)
            begun.drop(cause)
            return None
        is_queued = deadline == _ON_WORKER  # it runs from there
        if is_queued or self._delivery.submit(deliver, turn.size):
            begun.end("evaluated" if self._has_scores(turn) else "without_retrieval")
        else:
            begun.drop("queue_full")
        # Such a process may end without notice once its function has returned.
        if is_multiprocessing_child():
            self._worker.flush(deadline - time.perf_counter())
        return deliver() if is_queued else None

    def _evaluate_inline(
        self, turn: Turn, context: TurnContext | None, deadline: float
    ) -> Steps[Callable[[], Coroutine[None, None, None]]]:
        """Run the local metrics that fit before the deadline. Returns what hands over the results and the rest."""
        has_scores = self._has_scores(turn)
        # Here and not at capture: counting tokens is work, and the caller should not wait for it.
        turn = with_estimated_usage(turn)
        size = turn.size
        self.typical_size = int(self.typical_size + _WEIGHT * (size - self.typical_size)) if self.typical_size else size
        if not self.settings.evaluate_without_retrieval:
            self._missing_passages.note(turn)
        trace_id = None if context is None else context.trace_id
        job = self.engine.job(turn, self._metric_sampler.names(trace_id) if has_scores else ())
        analysis = self.engine.analyze(turn, deadline)
        # What was computed while the model wrote is not computed twice.
        for preparation in () if context is None else context.preparations:
            preparation.cancel()
            analysis.adopt(preparation.analysis)
        evaluation, rest = yield from self.engine.local_steps(job, analysis)
        if has_scores:
            self._delivery.call_back(evaluation)
        if self.privacy.active:
            # Here and not at capture: local scores are computed on the original texts.
            redacted = {"turn": self.privacy.turn(turn)}
            evaluation = evaluation.model_copy(update=redacted)
            rest = rest and rest.model_copy(update=redacted)
        if has_scores:
            self._delivery.annotate(evaluation)
        return partial(self._dispatch_and_export, self._counters.counted(evaluation), rest, analysis)

    # -- export and late scores, on the background thread

    async def _dispatch_and_export(self, evaluation: Evaluation, rest: Job | None, analysis: TurnAnalysis) -> None:
        """Dispatch the rest of a turn's metrics, and export the turn before any of their scores."""
        jobs: dict[Dispatcher, Job] = {}
        if rest is not None:
            self._counters.add("deferred_metrics", len(rest.metrics))
            rest = rest.model_copy(update={"content": self.content})
            jobs[self._dispatcher] = rest
            if self.privacy.active and self._dispatcher is not self._memory:
                # A spool or a broker gets redacted texts only, and local scores are computed on the original ones.
                local, judged = self.engine.split(rest)
                jobs = {self._dispatcher: judged, self._memory: local}
        refused = {
            dispatcher: job
            for dispatcher, job in jobs.items()
            if job.metrics and not await dispatcher.submit(job, analysis=analysis)
        }
        self._delivery.export(evaluation)
        for dispatcher, job in refused.items():
            waiting = dispatcher.stats()["pending"]
            self._log.warn("full", "%d turns wait for evaluation: newer ones are dropped [RAGEVAL-201]", waiting)
            self._delivery.skip(job, f"the queue is full: {waiting} turns wait for evaluation")

    def run_job(self, job: Job, undelivered: Sequence[Evaluation] = (), *, timeout: float, gives_up: bool) -> JobRun:
        """Evaluate a job of another process here, and wait until the exporters have delivered its results.

        Args:
            job: the turn and its metrics.
            undelivered: results of an earlier attempt, which are delivered first.
            timeout: seconds that the exporters may take.
            gives_up: True for the last attempt: failures of the judge that may pass are delivered, too.
        """
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

        self._begin_work()
        self._worker.call(evaluate).result()
        is_delivered = self._delivery.flush(timeout, reader="spool")
        problem = next(iter(waiting.values()), None)
        if not is_delivered:
            problem = "the exporters could not deliver the scores"
        return JobRun(parts, is_delivered, job.only(waiting), problem)

    # -- lifecycle

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything is evaluated and delivered. Returns False if it was not, or not in time."""
        return self._finish(timeout, self._dispatcher.flush)

    def _finish(self, timeout: float, finish_jobs: Callable[[float], bool]) -> bool:
        end = time.monotonic() + timeout
        # A callback that flushes must not wait for the turn it belongs to.
        done = on_pool_thread() or _wait_for_pool(timeout)
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
        budget = getattr(self.judge, "gate", None)
        return {
            **self._counters.snapshot(),
            "without_passages_by_reason": self._missing_passages.by_reason(),
            "tool_results_left_out": self._missing_passages.left_out(),
            "queues": {"export": self._delivery.stats(), "evaluate": self._dispatcher.stats()},
            "spool": self._dispatcher.details() if isinstance(self._dispatcher, SpoolDispatcher) else None,
            "models": {role: self.models.state(role) for role in sorted(roles)},
            "exporters": self._delivery.exporter_stats(),
            "judge": None if self.judge is None else self.judge.stats(),
            "judge_budget": budget.stats() if isinstance(budget, SharedBudget) else None,
        }


def _wait_for_pool(timeout: float) -> bool:
    """Wait for the turns that the pool has now. Returns False if ``timeout`` seconds pass first."""
    waiting = list(_turns_on_pool)
    return wait_until(lambda: all(turn.done for turn in waiting), timeout)
