"""The way of a turn: select, evaluate inline, hand over to the background, export."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

from rageval_hooks.errors import ConfigurationError, ModelNotReadyError, OverBudgetError
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.judges.base import Judge
from rageval_hooks.judges.resolve import resolve_judge
from rageval_hooks.metrics.base import AnyMetric, Metric, compute, compute_judged
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.online.build import Thresholds, resolve_metrics, resolve_rates, resolve_thresholds
from rageval_hooks.online.exporter_pool import shared_exporters
from rageval_hooks.online.sampling import TraceSampler
from rageval_hooks.online.turn_context import Selection, Tracing
from rageval_hooks.runtime.executors import ForkSafeLock, InProgress
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger
from rageval_hooks.runtime.suppression import suppress, suppressed
from rageval_hooks.runtime.worker import Lane, Worker, shared_worker
from rageval_hooks.score import Evaluation, Result, Score, Stage
from rageval_hooks.settings import Settings
from rageval_hooks.text.tokens import with_estimated_usage
from rageval_hooks.turn import Turn

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

__all__ = ["Pipeline"]

_logger = logging.getLogger(__name__)

_CLOSING_SECONDS = 5.0
_FLUSH_SHARE = 0.8
"""Share of a shutdown's time that the flush may take; the rest is for cancelling and closing."""

_MOST_EXPORTS = 10_000

OnEvaluation = Callable[[Evaluation], None]


class Pipeline:
    """Takes turns from the integrations, evaluates them and hands the results to the exporters.

    Nothing that happens in here reaches the caller as an exception: it is logged and counted.

    Args:
        settings: the plain settings.
        metrics: what is computed.
        exporters: where it goes.
        models: the local models.
        judge: who is asked; None if no metric asks.
        thresholds: give scores their labels; None for those of the settings.
        on_evaluation: called with every evaluation: on the thread where the turn ended for the inline stage, on a
            background thread for later ones.
        tracer_provider: whose ids new traces get; None for the global one.
        worker: the background thread.
        clock: a monotonic clock, in seconds.

    Attributes:
        computes_inline: whether anything is computed, or anybody called, before the application's call returns.
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
        worker: Worker | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.settings = settings
        self.metrics = tuple(metrics)
        self.exporters = tuple(exporters)
        self.models = models
        self.enabled = settings.enabled
        self.leaves_out = False
        self._on_evaluation = on_evaluation
        self._tracer_provider = tracer_provider
        self._worker = worker or shared_worker()
        if exporters:  # a pipeline without exporters has nothing to drain at exit
            self._worker.extend_drain(settings.drain_timeout)
        self.clock = clock
        self._sampler = TraceSampler(settings.sample_rate)
        self.judge = judge
        self._probabilities = resolve_rates(self.metrics, settings)
        self._samplers = {name: TraceSampler(rate) for name, rate in self._probabilities.items()}
        self._thresholds = resolve_thresholds(self.metrics, settings, own=False) if thresholds is None else thresholds
        self.computes_inline = on_evaluation is not None or any(not metric.asks_judge for metric in self.metrics)
        self._roles = frozenset(role for metric in self.metrics for role in metric.models)
        self._running: set[asyncio.Task[Any] | None] = set()
        self._closed = False
        self._exports = Lane("export", _MOST_EXPORTS)
        self._evaluations = Lane("evaluate", settings.queue_size)
        self._counts: Counter[str] = Counter()
        self._counts_lock = ForkSafeLock()
        self._limited_log = RateLimitedLogger(_logger)
        self._tracing: Tracing | None = None
        self._unbuilt: set[_Unbuilt] = set()
        self._build_lock = ForkSafeLock()
        self._arriving = InProgress()
        _pipelines.add(self)

    @classmethod
    def build(
        cls,
        *,
        metrics: Iterable[AnyMetric] | str | None = None,
        exporters: Iterable[Any] | str | None = None,
        judge: Any = None,
        tracer_provider: TracerProvider | None = None,
        on_evaluation: OnEvaluation | None = None,
        **plain: Any,
    ) -> Pipeline:
        """Put a pipeline together from keyword arguments, the environment and the defaults.

        Args:
            metrics: names, classes or instances; None for every local default.
            exporters: names, classes or instances; None for ``RAGEVAL_EXPORTERS``, else OpenTelemetry.
            judge: see :func:`rageval_hooks.judges.resolve.resolve_judge`; None for ``RAGEVAL_JUDGE``, else nobody.
            tracer_provider: for the OpenTelemetry exporter; None for the global one.
            on_evaluation: see :class:`Pipeline`.
            plain: the fields of :class:`rageval_hooks.settings.Settings`.

        Raises:
            ConfigurationError: something is wrong or contradictory; the message says what is valid.
        """
        if on_evaluation is not None and not callable(on_evaluation):
            raise ConfigurationError(f"on_evaluation is a function of an Evaluation, not {on_evaluation!r}")
        for name, value in (("metrics", metrics), ("exporters", exporters)):
            if value is not None and not isinstance(value, Iterable):
                raise ConfigurationError(f"{name} is a list of names, classes or instances, not {value!r}")
        settings = Settings.build(
            metrics=metrics if isinstance(metrics, str) else None,
            exporters=exporters if isinstance(exporters, str) else None,
            judge=judge if isinstance(judge, str) else None,
            **plain,
        )
        chosen: Iterable[Any] = settings.exporters if exporters is None or isinstance(exporters, str) else exporters
        built = [shared_exporters.get(exporter, settings, tracer_provider) for exporter in chosen]
        if tracer_provider is not None and not any(exporter.traces for exporter in built):
            raise ConfigurationError(
                "a tracer_provider is given, but no exporter uses it: add 'otel' to exporters, or leave it out"
            )
        models = Models(settings.models)
        wanted: Iterable[Any] | None = settings.metrics if metrics is None or isinstance(metrics, str) else metrics
        judge = settings.judge if judge is None else judge
        resolved = None if judge is None else resolve_judge(judge, **settings.judge_options)
        rate = plain.get("judge_sample_rate")  # by names of metrics, it may be for local ones
        if resolved is None and (plain.get("judge_options") or isinstance(rate, (int, float))):
            raise ConfigurationError(
                "judge_options and judge_sample_rate are for a judge, and there is none: pass judge=, such as "
                "'openai:gpt-5-mini', or leave them out"
            )
        running = resolve_metrics(wanted, resolved)
        pipeline = cls(
            settings,
            running,
            built,
            models,
            judge=resolved,
            thresholds=resolve_thresholds(running, settings, own=plain.get("thresholds") is not None),
            on_evaluation=on_evaluation,
            tracer_provider=tracer_provider,
        )
        shared_exporters.take(pipeline)
        return pipeline

    def load_models(self) -> None:
        """Begin to load, in the background, the models that the metrics use."""
        self.models.load(self._roles)

    # -- on the request's thread

    def begin(self, context: Context) -> Selection:
        """Decide, before any work, whether the turn that begins now is looked at.

        Args:
            context: the current OpenTelemetry context.
        """
        provider = self._tracer_provider or trace.get_tracer_provider()
        tracing = self._tracing
        if tracing is None or tracing.provider is not provider:
            tracing = self._tracing = Tracing(provider)
        parent = trace.get_current_span(context).get_span_context() if context else None
        if parent is not None and parent.is_valid:
            trace_id, parent_span_id, flags = parent.trace_id, parent.span_id, int(parent.trace_flags)
            sampled = parent.trace_flags.sampled
        else:
            trace_id, parent_span_id = tracing.ids.generate_trace_id(), 0
            sampled = tracing.records(context, trace_id)
            flags = int(sampled)
        selected = self.enabled
        if selected and not sampled and not self.settings.evaluate_unsampled:
            selected = False
            self._count("unsampled_traces")
        if selected and not self._sampler.keeps(trace_id):
            selected = False
            self._count("sampled_out")
        if selected:
            self._worker.drain_before(provider)
            span_id = tracing.ids.generate_span_id()
        else:
            self.leaves_out = True
            span_id = 0
        return Selection(context, trace_id, span_id, parent_span_id, flags, selected, self._sampler.rate)

    def submit(self, turn: Turn, selection: Selection | None = None, ended: float | None = None) -> None:
        """Take a turn that has just ended.

        Runs the local metrics that fit the budget, calls ``on_evaluation``, and leaves the rest to the background.

        Args:
            turn: the turn.
            selection: where it stands in its trace.
            ended: when it ended, by :attr:`clock`, if it has waited for a thread since: that is part of the budget.
        """
        number = self._arriving.begin()
        try:
            self._count("turns")
            self._hand_over(self._evaluate_inline(turn, selection, ended))
        except Exception as error:
            self.failed("a turn could not be evaluated", error)
        finally:
            self._arriving.end(number)

    def submit_later(self, build: Callable[[], Turn], selection: Selection) -> None:
        """Take a turn that has just ended and is yet to be built; only where :attr:`computes_inline` is False.

        Args:
            build: builds the turn; called on the background thread.
            selection: where the turn stands in its trace.
        """
        unbuilt = _Unbuilt(self, build, selection)
        self._unbuilt.add(unbuilt)
        if not self._hand_over(unbuilt):
            self._unbuilt.discard(unbuilt)
            self._count("turns")

    def failed(self, what: str, error: BaseException) -> None:
        """Count and log an exception of our own that must not reach the application."""
        self._count("internal_errors")
        self._limited_log.warn(what, "%s: %s", what, type(error).__name__, error=error)

    def evaluate(self, turn: Turn) -> Evaluation:
        """Compute every metric for a turn here and now, waiting for models and the judge; nothing is exported."""
        started = self.clock()
        results: list[Result] = []
        local = [metric for metric in self.metrics if not metric.asks_judge]
        durations = self._compute(TurnAnalysis(turn, self.models, wait=True), local, results)
        judge = self.judge
        if judge is not None:
            asking = [metric for metric in self.metrics if metric.asks_judge]
            case = JudgedTurn(turn, judge, asking)

            async def ask() -> list[tuple[Result, ...]]:
                return await asyncio.gather(*(compute_judged(metric, case) for metric in asking))

            for found in self._worker.call(ask).result():
                results.extend(found)
        return self._evaluation(turn, results, "inline", started, durations)

    def needs_thread(self, turn: Turn) -> bool:
        """Whether :meth:`submit` may compute for long enough that an event loop must not wait for it."""
        return bool(self.metrics or self._on_evaluation) and self._evaluable(turn)

    def _hand_over(self, job: Callable[[], None]) -> bool:
        if self._worker.submit(self._exports, job):
            return True
        self._limited_log.warn("exports", "%d turns wait for their export: newer ones are dropped", _MOST_EXPORTS)
        return False

    def _evaluate_inline(
        self, turn: Turn, selection: Selection | None, ended: float | None = None
    ) -> Callable[[], None]:
        """Compute what is computed before the call returns; returns what is left to the background."""
        evaluable = self._evaluable(turn)
        if not evaluable:
            self._count("without_retrieval")
        started = self.clock()
        if self.needs_thread(turn):
            turn = with_estimated_usage(turn)
        deadline = (started if ended is None else ended) + self.settings.inline_budget_ms / 1e3
        analysis = TurnAnalysis(turn, self.models, deadline=deadline)
        results: list[Result] = []
        durations: dict[str, float] = {}
        chosen = self._chosen(selection) if evaluable else []
        with suppressed():
            later = [metric for metric in chosen if not self._try(metric, analysis, results, durations)]
        evaluation = self._evaluation(turn, results, "inline", started, durations)
        if evaluable:
            self._count("evaluated")
            self._notify(evaluation)
        return partial(self._deliver, evaluation, analysis, later)

    def _evaluable(self, turn: Turn) -> bool:
        return turn.is_rag or self.settings.evaluate_without_retrieval

    def _chosen(self, selection: Selection | None) -> list[Metric]:
        """Return the metrics that run for a turn: those of a lower rate for some of the turns only."""
        if selection is None or not self._samplers:
            return list(self.metrics)
        return [
            metric
            for metric in self.metrics
            if metric.name not in self._samplers or self._samplers[metric.name].keeps(selection.trace_id)
        ]

    def _try(self, metric: Metric, analysis: TurnAnalysis, results: list[Result], durations: dict[str, float]) -> bool:
        """Compute a metric now; False if it has to wait."""
        if metric.asks_judge:
            return False
        started = self.clock()
        if analysis.deadline is not None and started >= analysis.deadline:
            return False
        if any(self.models.state(role) in ("idle", "loading") for role in metric.models):
            return False
        try:
            results.extend(compute(metric, analysis))
        except (ModelNotReadyError, OverBudgetError):
            return False
        durations[metric.name] = self.clock() - started
        return True

    # -- in the background

    def _build(self, unbuilt: _Unbuilt) -> Callable[[], None] | None:
        """Build a turn, unless that is done; returns what is left to be done about it, None if that went wrong."""
        with self._build_lock:
            build, unbuilt.build = unbuilt.build, None
            if build is not None:
                self._count("turns")
                try:
                    unbuilt.deliver = self._evaluate_inline(build(), unbuilt.selection)
                except Exception as error:
                    self.failed("a turn could not be built from what was recorded", error)
            self._unbuilt.discard(unbuilt)
            return unbuilt.deliver

    def _deliver(self, evaluation: Evaluation, analysis: TurnAnalysis, later: Sequence[Metric]) -> None:
        """Export a turn with its inline results, and have the rest computed: after it, so that its span is first."""
        turn = with_estimated_usage(evaluation.turn)
        if turn is not evaluation.turn:
            evaluation = evaluation.model_copy(update={"turn": turn})
        self._export(evaluation)
        if not later:
            return
        self._count("deferred_metrics", len(later))
        if not self._worker.submit(self._evaluations, partial(self._evaluate_later, analysis, later)):
            capacity = self._evaluations.capacity
            self._limited_log.warn("evaluations", "%d turns wait for evaluation: newer ones are dropped", capacity)
            reason = f"{capacity} turns waited for evaluation already"
            dropped = [metric.skip(reason) for metric in later]
            self._export(self._evaluation(turn, dropped, "background", self.clock(), {}))

    def _export(self, evaluation: Evaluation) -> None:
        for exporter in self.exporters:
            self._worker.close_at_exit(exporter.shutdown)
            try:
                exporter.export(evaluation)
            except (Exception, SystemExit) as error:
                self._count("export_errors")
                self._limited_log.warn(f"export {exporter.name}", "the exporter %s failed", exporter.name, error=error)

    async def _evaluate_later(self, analysis: TurnAnalysis, metrics: Sequence[Metric]) -> None:
        """Run metrics for a turn; not after the deadline of a shutdown, which cancels what has begun."""
        suppress()
        task = asyncio.current_task()
        self._running.add(task)
        try:
            if self._closed:
                raise asyncio.CancelledError
            await self._run_later(analysis, metrics)
        except asyncio.CancelledError:
            self._count("undone")
        finally:
            self._running.discard(task)

    async def _run_later(self, analysis: TurnAnalysis, metrics: Sequence[Metric]) -> None:
        local = [metric for metric in metrics if not metric.asks_judge]
        work = [self._compute_later(analysis, local)] if local else []
        if self.judge is not None:
            asking = [metric for metric in metrics if metric.asks_judge]
            case = JudgedTurn(analysis.turn, self.judge, asking)
            work += [self._judge(case, metric) for metric in asking]
        await asyncio.gather(*work)

    async def _compute_later(self, analysis: TurnAnalysis, metrics: Sequence[Metric]) -> None:
        started = self.clock()
        results: list[Result] = []
        durations = await self._worker.in_thread(lambda: self._compute(analysis.patient(), metrics, results))
        await self._arrive(self._evaluation(analysis.turn, results, "background", started, durations))

    async def _judge(self, case: JudgedTurn, metric: Metric) -> None:
        started = self.clock()
        results = await compute_judged(metric, case)
        durations = {metric.name: self.clock() - started}
        await self._arrive(self._evaluation(case.turn, results, "background", started, durations))

    async def _arrive(self, evaluation: Evaluation) -> None:
        if self._on_evaluation is not None:
            await self._worker.in_thread(lambda: self._notify(evaluation))
        self._export(evaluation)

    # -- on any thread

    def _compute(self, analysis: TurnAnalysis, metrics: Iterable[Metric], results: list[Result]) -> dict[str, float]:
        durations = {}
        with suppressed():
            for metric in metrics:
                started = self.clock()
                results.extend(compute(metric, analysis))
                durations[metric.name] = self.clock() - started
        return durations

    def _evaluation(
        self,
        turn: Turn,
        results: Iterable[Result],
        stage: Stage,
        started: float,
        durations: dict[str, float],
    ) -> Evaluation:
        finished = self.finish(results)
        for result in finished:
            self._count(result.status)
        return Evaluation(
            turn=turn, results=finished, stage=stage, duration=self.clock() - started, durations=durations
        )

    def finish(self, results: Iterable[Result]) -> tuple[Result, ...]:
        """Return results that were computed elsewhere with what the settings add: labels by thresholds."""
        return tuple(self._finish(result) for result in results)

    def _finish(self, result: Result) -> Result:
        if not isinstance(result, Score):
            return result
        probability = self._probabilities.get(result.metric or "", self.settings.sample_rate)
        if 0 < probability < result.probability:
            result = result.model_copy(update={"probability": probability})
        return self._thresholds.label(result)

    def _notify(self, evaluation: Evaluation) -> None:
        if self._on_evaluation is None:
            return
        try:
            with suppressed():
                self._on_evaluation(evaluation)
        except Exception as error:
            self._count("callback_errors")
            self._limited_log.warn("on_evaluation", "on_evaluation raised", error=error)

    def _count(self, name: str, amount: int = 1) -> None:
        with self._counts_lock.lock:
            self._counts[name] += amount

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything is evaluated and delivered; returns False if that took longer than ``timeout`` s."""
        end = time.monotonic() + timeout
        done = self._arriving.wait(timeout)
        done = self._worker.flush(max(0.0, end - time.monotonic())) and done
        for exporter in sorted(self.exporters, key=lambda exporter: not exporter.traces):  # others wait for spans
            try:
                done = exporter.flush(max(0.0, end - time.monotonic())) and done
            except Exception as error:
                self.failed(f"the exporter {exporter.name} could not be flushed", error)
                done = False
        return done

    def shutdown(self, timeout: float | None = None) -> bool:
        """Take no more turns, flush, and shut down the exporters that no other pipeline uses.

        Returns:
            False if something was left undone.
        """
        self.enabled = False
        timeout = self.settings.drain_timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        done = self.flush(timeout * _FLUSH_SHARE)
        self._closed = True
        if not done:
            self._cancel(_within(deadline))
        self.close_judge(_within(deadline))
        for exporter in self.exporters:
            if not shared_exporters.give_back(exporter, self):
                continue
            self._worker.close_at_exit(exporter.shutdown, wanted=False)
            try:
                done = exporter.shutdown(_within(deadline)) and done
            except Exception as error:
                self.failed(f"the exporter {exporter.name} could not be shut down", error)
                done = False
        return done

    def _cancel(self, timeout: float) -> None:
        """Give up what is under way, and say how much that was."""

        async def cancel() -> None:
            tasks = [task for task in self._running if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        try:
            self._worker.call(cancel).result(timeout)
        except Exception as error:
            self.failed("background work could not be cancelled", error)
        with self._counts_lock:
            undone = self._counts["undone"]
        if undone:
            _logger.warning("rageval-hooks: shut down with %d turns not fully evaluated", undone)

    def close_judge(self, timeout: float = _CLOSING_SECONDS) -> None:
        """Close the judge's connections; it opens new ones if it is asked again."""
        if self.judge is None:
            return
        try:
            self._worker.call(self.judge.aclose).result(timeout)
        except Exception as error:
            self.failed("the judge could not be closed", error)

    def stats(self) -> dict[str, Any]:
        """Return what was counted: turns, results by status, errors, the background queues, the exporters' own."""
        for unbuilt in list(self._unbuilt):
            self._build(unbuilt)  # so that it counts
        with self._counts_lock:
            counts = {name: self._counts[name] for name in _COUNTERS}
        return {
            **counts,
            "queues": {"export": self._exports.stats(), "evaluate": self._evaluations.stats()},
            "models": {role: self.models.state(role) for role in sorted(self._roles)},
            "exporters": {exporter.name: counted for exporter in self.exporters if (counted := exporter.stats())},
            "judge": None if self.judge is None else self.judge.stats(),
        }


def _within(deadline: float) -> float:
    """Return the seconds until a deadline, at most those that closing something may take."""
    return min(_CLOSING_SECONDS, max(0.0, deadline - time.monotonic()))


_pipelines: weakref.WeakSet[Pipeline] = weakref.WeakSet()


def _forget_the_parents_turns() -> None:
    """In a forked child: what the parent has not built yet is the parent's."""
    for pipeline in list(_pipelines):
        pipeline._unbuilt.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parents_turns)


class _Unbuilt:
    """A turn that is yet to be built, by whoever asks first; called, it is built and delivered.

    Args:
        pipeline: takes the turn.
        build: builds it; None once that is done.
        selection: where the turn stands in its trace.
    """

    __slots__ = ("build", "deliver", "pipeline", "selection")

    def __init__(self, pipeline: Pipeline, build: Callable[[], Turn], selection: Selection) -> None:
        self.pipeline = pipeline
        self.build: Callable[[], Turn] | None = build
        self.selection = selection
        self.deliver: Callable[[], None] | None = None

    def __call__(self) -> None:
        deliver = self.pipeline._build(self)
        if deliver is not None:
            deliver()


_COUNTERS = (
    "turns",
    "evaluated",
    "without_retrieval",
    "sampled_out",
    "unsampled_traces",
    "deferred_metrics",
    "undone",
    "scored",
    "skipped",
    "failed",
    "export_errors",
    "callback_errors",
    "internal_errors",
)
