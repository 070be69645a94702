"""The stages of a turn: local metrics within the budget, export, then late metrics.

A caller waits for the local metrics only if another tracer's span is to have them, since that span ends when the call
returns, or if ``on_evaluation`` is to be called first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial

from rageval_hooks.exporters.base import Exporter
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.counters import Counters
from rageval_hooks.online.delivery import Delivery
from rageval_hooks.online.dispatch import Dispatcher, ThreadDispatcher
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import Job
from rageval_hooks.online.missing_passages import MissingPassages
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.sampling import MetricSampler
from rageval_hooks.online.spool import Confirmation, SpoolDispatcher, SpoolOptions
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.privacy import NO_PRIVACY, PrivacyPolicy
from rageval_hooks.runtime.at_exit import EXIT_DRAIN, is_multiprocessing_child
from rageval_hooks.runtime.fork import reset_in_child, run_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import Priority, Steps, local_pool, on_pool_thread, run_steps
from rageval_hooks.runtime.suppression import suppressed
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.worker import Worker
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings
from rageval_hooks.text.tokens import with_estimated_usage
from rageval_hooks.turn import Turn

__all__ = ["OnEvaluation", "TurnStages"]

_logger = logging.getLogger(__name__)

_ON_WORKER = 0.0
"""The deadline of a turn that is evaluated on the background thread: no caller waits for it."""

_MOST_AWAITED = 4
"""With more evaluations in progress, callers do not wait: behind the others they would wait in vain."""

_WEIGHT = 1 / 16
"""Weight of the newest turn in the running mean of sizes."""

OnEvaluation = Callable[[Evaluation], None]

_open: set[PendingTurn] = set()
"""The turns of this process that the pool has. Changed by single, atomic operations: a finalizer may end a turn."""

run_in_child(_open.clear)


class TurnStages:
    """Runs turns through their stages. Exceptions are logged and counted.

    Args:
        engine: evaluates.
        exporters: where evaluations go.
        worker: the background thread.
        settings: budget, queue size and switches.
        counters: count turns, results and errors.
        metric_sampler: chooses the metrics of a turn.
        on_evaluation: called with every evaluation; None for no callback.
        privacy: what may leave the process; None for everything.

    Attributes:
        delivery: hands evaluations to the exporters.
        missing_passages: counts answers without passages.
        typical_size: about how many bytes a turn has that is not built yet.
    """

    def __init__(
        self,
        engine: Engine,
        exporters: Sequence[Exporter],
        worker: Worker,
        settings: Settings,
        counters: Counters,
        metric_sampler: MetricSampler,
        on_evaluation: OnEvaluation | None,
        privacy: PrivacyPolicy = NO_PRIVACY,
    ) -> None:
        self._engine = engine
        self._privacy = privacy
        self._worker = worker
        self._settings = settings
        self._counters = counters
        self._metric_sampler = metric_sampler
        self._on_evaluation = on_evaluation
        self._has_inline_work = on_evaluation is not None or any(not metric.asks_judge for metric in engine.metrics)
        self._budget = settings.inline_budget_ms / 1e3
        self._log = RateLimitedLogger(_logger)
        self.missing_passages = MissingPassages(counters)
        self.typical_size = 0
        self._max_bytes = settings.queue_max_mb * 2**20
        self.delivery = Delivery(exporters, worker, counters, self._max_bytes)
        self._dispatcher = self._make_dispatcher()
        self._failed_jobs_seen = 0
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget the parent's turns: their threads do not exist in the child."""
        self._open: dict[PendingTurn, int] = {}

    def _make_dispatcher(self) -> Dispatcher:
        settings, engine, worker = self._settings, self._engine, self._worker
        if settings.dispatch == "thread":
            capacity, counters = settings.queue_size, self._counters
            return ThreadDispatcher(engine, worker, self._arrive, self._drop, capacity, self._max_bytes, counters)
        confirmation = Confirmation(partial(self.delivery.flush, reader="spool"), self.delivery.flush_interval)
        options = SpoolOptions.of(settings)
        spool = SpoolDispatcher(engine, worker, self._arrive, self._drop, confirmation, options, self._counters)
        if settings.enabled:
            spool.start()
        return spool

    def start(
        self, turn: Turn | Callable[[], Turn], context: TurnContext | None, computes_inline: bool = True
    ) -> PendingTurn:
        """Start the evaluation of a turn. Returns at once, with what a caller may wait for."""
        size = turn.size if isinstance(turn, Turn) else self.typical_size
        # Such a process may be terminated once the caller has its answer: it waits for the export too.
        in_child = is_multiprocessing_child()
        if in_child or (computes_inline and self._computes_inline(turn)):
            # One turn is always taken, whatever its size. A metric that ignores the deadline may hold the threads.
            sizes = list(self._open.values())
            if not sizes or (len(sizes) < self._settings.queue_size and sum(sizes) + size <= self._max_bytes):
                waits = in_child or self._on_evaluation is not None or (context is not None and context.caller_waits)
                return self._start_on_pool(turn, context, size, caller_waits=waits)
        if not self.delivery.submit(lambda: run_steps(self._evaluate(turn, context, _ON_WORKER)), size):
            self._counters.drop_turn("queue_full")
        return DONE

    def _start_on_pool(
        self, turn: Turn | Callable[[], Turn], context: TurnContext | None, size: int, *, caller_waits: bool
    ) -> PendingTurn:
        now = time.perf_counter()
        waits = caller_waits and len(_open) < _MOST_AWAITED
        pending = PendingTurn(now + self._budget if waits else now)
        self._open[pending] = size
        _open.add(pending)
        EXIT_DRAIN.add(_drain, "capture", _has_open)
        EXIT_DRAIN.register()
        evaluation = local_pool().run(self._evaluate(turn, context, now + self._budget), Priority.ENDED, copy_context())

        def finish(_: object) -> None:
            self._open.pop(pending, None)
            _open.discard(pending)
            pending.finish()

        evaluation.add_done_callback(finish)
        return pending

    def flush(self, timeout: float) -> bool:
        """Wait until everything is evaluated and delivered. Returns False if it was not, or not in time."""
        end = time.monotonic() + timeout
        done = self._settle(timeout)
        done = self._dispatcher.flush(remaining(end)) and done
        done = self.delivery.flush(remaining(end)) and done
        return not self._has_new_failures() and done

    def stop(self, timeout: float) -> bool:
        """Flush, then cancel what is not evaluated in time. Returns False if something was not done."""
        end = time.monotonic() + timeout
        done = self._settle(timeout)
        done = self._dispatcher.shutdown(remaining(end)) and done
        done = self.delivery.flush(remaining(end)) and done
        return not self._has_new_failures() and done

    def _settle(self, timeout: float) -> bool:
        """Wait for the turns that the pool has. A callback that flushes must not wait for the turn it belongs to."""
        waiting = list(self._open)
        return on_pool_thread() or wait_until(lambda: all(turn.done for turn in waiting), timeout)

    def _has_new_failures(self) -> bool:
        """Return True if since the last flush a job has failed with an error of ours: its scores are missing."""
        failed = self._dispatcher.stats()["failed"]
        seen, self._failed_jobs_seen = self._failed_jobs_seen, failed
        return failed > seen

    def spool_stats(self) -> dict[str, int] | None:
        """Return the counters of the spool; None without one."""
        return self._dispatcher.spool_stats() if isinstance(self._dispatcher, SpoolDispatcher) else None

    def queues(self) -> dict[str, dict[str, int]]:
        """Return the counters of the queues."""
        return {"export": self.delivery.stats(), "evaluate": self._dispatcher.stats()}

    def _computes_inline(self, turn: Turn | Callable[[], Turn]) -> bool:
        """Return True if a turn may have results that do not need the judge."""
        return self._has_inline_work and (not isinstance(turn, Turn) or self._is_evaluable(turn))

    def _is_evaluable(self, turn: Turn) -> bool:
        return turn.is_rag or self._settings.evaluate_without_retrieval

    def _evaluate(self, turn: Turn | Callable[[], Turn], context: TurnContext | None, deadline: float) -> Steps[None]:
        """Build a turn, evaluate it and count what became of it."""
        try:
            turn = turn if isinstance(turn, Turn) else turn()
        except Exception as error:
            self._failed("a turn could not be built from what was recorded", error)
            self._counters.drop_turn("not_built")
            return
        evaluable = self._is_evaluable(turn)
        try:
            is_taken = yield from self._evaluate_locally(turn, context, deadline, evaluable)
        except Exception as error:
            self._failed("a turn could not be evaluated", error)
            self._counters.drop_turn("failed")
            return
        if is_taken:
            self._counters.end_turn("evaluated" if evaluable else "without_retrieval")
        else:
            self._counters.drop_turn("queue_full")
        # Such a process may end without notice once its function has returned.
        if is_multiprocessing_child():
            self._worker.flush(deadline - time.perf_counter())

    def _evaluate_locally(
        self, turn: Turn, context: TurnContext | None, deadline: float, evaluable: bool
    ) -> Steps[bool]:
        """Run the local metrics that fit before the deadline; hand over the results and the rest.

        Returns:
            False if too many turns wait for their export.
        """
        # Here and not at capture: counting tokens is work, and the caller should not wait for it.
        turn = with_estimated_usage(turn)
        size = turn.size
        self.typical_size = int(self.typical_size + _WEIGHT * (size - self.typical_size)) if self.typical_size else size
        if not self._settings.evaluate_without_retrieval:
            self.missing_passages.note(turn)
        trace_id = None if context is None else context.trace_id
        job = self._engine.job(turn, self._metric_sampler.names(trace_id) if evaluable else ())
        analysis = self._engine.analyze(turn, deadline)
        # What was computed while the model wrote is not computed twice.
        for preparation in () if context is None else context.preparations:
            preparation.cancel()
            analysis.adopt(preparation.analysis)
        evaluation, rest = yield from self._engine.local_steps(job, analysis)
        if evaluable:
            self._notify(evaluation)
        if self._privacy.active:
            # Here and not at capture: local scores are computed on the original texts.
            evaluation = evaluation.model_copy(update={"turn": self._privacy.turn(turn)})
            rest = rest and rest.model_copy(update={"turn": self._privacy.turn(turn, for_judge=True)})
        if evaluable:
            self.delivery.annotate(evaluation)
        deliver = partial(self._deliver, self._counters.counted(evaluation), rest, analysis)
        if deadline == _ON_WORKER:
            # This work is in the queue of exports itself, so the turn is not counted there a second time.
            deliver()
            return True
        return self.delivery.submit(deliver, size)

    def _deliver(self, evaluation: Evaluation, rest: Job | None, analysis: TurnAnalysis) -> None:
        """Export the turn first, so that its span precedes late scores; then dispatch the rest of its metrics."""
        self.delivery.export(evaluation)
        if rest is None:
            return
        self._counters.add("deferred_metrics", len(rest.metrics))
        for job, in_memory in self._parts(rest):
            if not self._dispatcher.submit(job, analysis=analysis, in_memory=in_memory):
                waiting = self._dispatcher.stats()["pending"]
                self._log.warn("full", "%d turns wait for evaluation: newer ones are dropped [RAGEVAL-201]", waiting)
                self._drop(job, f"the queue is full: {waiting} turns wait for evaluation")

    def _parts(self, job: Job) -> list[tuple[Job, bool]]:
        """Return the jobs to dispatch for the rest of a turn's metrics, and whether each has to stay in memory."""
        if self._settings.dispatch == "thread" or not self._privacy.active:
            return [(job, False)]
        # A spool gets redacted texts only, and local scores are computed on the original ones.
        local, judged = self._engine.split(job)
        return [(part, part is local) for part in (local, judged) if part.metrics]

    def _drop(self, job: Job, reason: str) -> None:
        """Show on the trace why metrics are missing; on the background thread."""
        self._export_late(self._counters.counted(self._engine.skip(job, reason)))

    async def _arrive(self, evaluation: Evaluation, is_repeated: bool = False) -> None:
        """Deliver late results. A repetition, after a delivery that failed, is for the exporters only."""
        if is_repeated:
            self._export_late(evaluation)
            return
        self._counters.counted(evaluation)
        if self._on_evaluation is not None:
            # A callback of the user may block, and must not stop the event loop of all other turns.
            await self._worker.in_thread(lambda: self._notify(evaluation))
        self._export_late(evaluation)

    def _export_late(self, evaluation: Evaluation) -> None:
        """Export results of a job, whose turn was prepared for a judge."""
        # A job of another process may come from the spool as that process has stored it, with other settings.
        turn = self._privacy.without_citations(self._privacy.turn(evaluation.turn, for_judge=True))
        self.delivery.export(evaluation if turn is evaluation.turn else evaluation.model_copy(update={"turn": turn}))

    def _notify(self, evaluation: Evaluation) -> None:
        if self._on_evaluation is None:
            return
        try:
            with suppressed():
                self._on_evaluation(evaluation)
        except Exception as error:
            self._counters.add("callback_errors")
            self._log.warn("on_evaluation", "on_evaluation raised [RAGEVAL-205]", error=error)

    def _failed(self, what: str, error: BaseException) -> None:
        self._counters.add("internal_errors")
        self._log.warn(what, "%s: %s [RAGEVAL-215]", what, type(error).__name__, error=error)


def _has_open() -> bool:
    return bool(_open)


def _drain(timeout: float) -> bool:
    waiting = list(_open)
    return wait_until(lambda: all(turn.done for turn in waiting), timeout)
