"""The pipeline: takes finished turns, has them evaluated, and delivers the evaluations."""

from __future__ import annotations

import logging
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import TracerProvider

from rageval_hooks.budgets import SharedBudgetJudge
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.judges.base import Judge
from rageval_hooks.metrics.base import AnyMetric, Metric
from rageval_hooks.models import Models
from rageval_hooks.online.build import resolve_parts
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.exporter_pool import shared_exporters
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.prepare import Preparer
from rageval_hooks.online.sampling import MetricSampler
from rageval_hooks.online.thresholds import Thresholds
from rageval_hooks.online.turn_context import TurnContext, TurnSelector
from rageval_hooks.online.turn_stages import OnEvaluation, TurnStages
from rageval_hooks.privacy import PrivacyPolicy, Redact
from rageval_hooks.runtime.at_exit import EXIT_DRAIN, is_exiting
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import local_pool
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.worker import Worker, shared_worker
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import LEXICAL, Settings
from rageval_hooks.turn import Turn

__all__ = ["OnEvaluation", "Pipeline"]

_logger = logging.getLogger(__name__)

_CLOSE_JUDGE_SECONDS = 5.0
_FLUSH_SHARE = 0.8
"""Share of a shutdown's time that the flush may take; the rest is for closing the judge and the exporters."""


_at_work: weakref.WeakSet[Pipeline] = weakref.WeakSet()
"""The pipelines of this process that have begun a turn. The threads end with the last of them."""


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
        worker: the background thread.
        clock: a monotonic clock, in seconds.

    Attributes:
        tracer_provider: whose tracer writes the turns' spans; None for the application's global one.
        enabled: False to take no new turns.
        privacy: what may leave the process.
        holds_interrupted: False to submit a turn that waits for a person at once: it will not be resumed here.
        computes_inline: True if turns have an inline stage: there are local metrics, or ``on_evaluation``.
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
        worker: Worker | None = None,
        clock: Callable[[], float] = time.perf_counter,
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
        self.computes_inline = on_evaluation is not None or any(not metric.asks_judge for metric in self.metrics)
        self._worker = worker or shared_worker()
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
            clock=clock,
        )
        self._preparer = Preparer(self.metrics, models)
        self._stages = TurnStages(
            self.engine,
            self.exporters,
            self._worker,
            settings,
            self._counters,
            self._metric_sampler,
            on_evaluation,
            self.privacy,
        )
        self._has_begun = False
        reset_in_child(self)
        if self.exporters:  # otherwise the exit has nothing to wait for
            EXIT_DRAIN.allow(self, settings.drain_timeout)

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
            redact: a function of a text, or True for the ready one; None for ``RAGEVAL_REDACT``.
            plain: the fields of :class:`rageval_hooks.settings.Settings`.

        Raises:
            ConfigurationError: something is wrong or contradictory; the message says what is valid.
        """
        parts = resolve_parts(metrics, exporters, judge, tracer_provider, on_evaluation, plain, redact)
        # Models and the language detector load in the background, and import numpy. A child that is forked at that
        # moment could not import it again, not even for the application.
        models = parts.settings.models
        if {models.embedder, models.cross_encoder, models.nlp} != {LEXICAL} or find_spec("py3langid") is not None:
            with suppress(ImportError):
                import_module("numpy")
        pipeline = cls(
            parts.settings,
            parts.metrics,
            parts.exporters,
            Models(parts.settings.models),
            judge=parts.judge,
            thresholds=parts.thresholds,
            on_evaluation=on_evaluation,
            tracer_provider=tracer_provider,
            privacy=parts.privacy,
        )
        shared_exporters.take(pipeline)
        return pipeline

    def load_models(self) -> None:
        """Begin to load, in the background, the models that the metrics use."""
        self.models.load({role for metric in self.metrics for role in metric.models})

    # -- turns

    def begin(self, context: Context, *, selected: bool | None = None) -> TurnContext:
        """Decide, before any work, whether the turn that begins now is captured.

        Args:
            context: the current OpenTelemetry context.
            selected: the decision for the first half of a turn that is resumed; None to decide.
        """
        turn = self._selector.begin(context, enabled=self.enabled, selected=selected)
        if turn.selected and not self._has_begun:
            self._begin_work()
        return turn

    def _begin_work(self) -> None:
        """Start the threads, and the load of the models.

        Not in ``instrument()``: a server that forks its workers then has nothing of ours that a fork could cut.
        """
        self._has_begun = True
        _at_work.add(self)
        EXIT_DRAIN.register()
        local_pool().start()
        with suppress(RuntimeError):  # the interpreter is exiting; the turn will be counted as dropped
            self._worker.start()
        self.load_models()

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
        self._counters.begin_turn()
        pending = self._stages.start(turn, context, computes_inline)
        if is_exiting():  # the drain may be over, or may never come
            self.flush(EXIT_DRAIN.timeout)
        return pending

    @property
    def typical_size(self) -> int:
        """About how many bytes a turn has that is not built yet."""
        return self._stages.typical_size

    def drop(self, cause: str) -> None:
        """Count a turn that is not submitted, by one of the causes in :data:`rageval_hooks.online.counters.DROPPED`.

        Safe in a finalizer: it takes no lock.
        """
        self._counters.drop_unbegun(cause)

    def prepare(self, context: TurnContext, query: str, texts: Iterable[str]) -> None:
        """Analyse passages in the background while the model writes; the turn's own evaluation uses the results.

        Args:
            context: the turn's trace context.
            query: the retriever's query.
            texts: the passages that the retriever returned.
        """
        try:
            preparation = self._preparer.start(query, texts) if context.selected else None
        except Exception as error:
            self.failed("passages could not be prepared", error)
            return
        if preparation is not None:
            context.preparations.append(preparation)

    def evaluate(self, turn: Turn) -> Evaluation:
        """Compute every metric for a turn here and now, waiting for models and the judge; nothing is exported."""
        job = self.engine.job(turn)
        evaluation = self._worker.call(lambda: self.engine.evaluate(job)).result()
        return self._counters.counted(evaluation)

    def failed(self, what: str, error: BaseException) -> None:
        """Count and log an exception of our own that must not reach the application."""
        self._counters.add("internal_errors")
        self._log.warn(what, "%s: %s [RAGEVAL-216]", what, type(error).__name__, error=error)

    # -- lifecycle

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything is evaluated and delivered. Returns False if it was not, or not in time."""
        return self._stages.flush(timeout)

    def shutdown(self, timeout: float | None = None) -> bool:
        """Take no more turns, deliver what is pending, and shut down the exporters that no other pipeline uses.

        Returns:
            False if something was not evaluated or not delivered in time.
        """
        self.enabled = False
        timeout = self.settings.drain_timeout if timeout is None else timeout
        end = time.monotonic() + timeout
        done = self._stages.stop(timeout * _FLUSH_SHARE)
        # Half of what is left: a judge that hangs must not take the exporters' time.
        self.close_judge(remaining(end) / 2)
        done = self._stages.delivery.shutdown(remaining(end), self) and done
        EXIT_DRAIN.release(self)
        _at_work.discard(self)
        if not _at_work:
            local_pool().shutdown()
            self._worker.stop()
        return done

    def close_judge(self, timeout: float = _CLOSE_JUDGE_SECONDS) -> None:
        """Close the judge's connections; it opens new ones when it is asked again."""
        if self.judge is None:
            return
        try:
            self._worker.call(self.judge.aclose).result(timeout)
        except Exception as error:
            self.failed("the judge's connections could not be closed", error)

    def stats(self) -> dict[str, Any]:
        """Return the counters: turns, results by status, errors, the background queues, models, exporters, judge."""
        roles = self.models.needed(role for metric in self.metrics for role in metric.models)
        return {
            **self._counters.snapshot(),
            "without_passages_by_reason": self._stages.missing_passages.by_reason(),
            "queues": self._stages.queues(),
            "spool": self._stages.spool_stats(),
            "models": {role: self.models.state(role) for role in sorted(roles)},
            "exporters": self._stages.delivery.exporter_stats(),
            "judge": None if self.judge is None else self.judge.stats(),
            "judge_budget": self.judge.budget.stats() if isinstance(self.judge, SharedBudgetJudge) else None,
        }
