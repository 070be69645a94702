"""What happens to a turn that has ended: it is built, local metrics run, it is exported; the rest becomes a job."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from rageval_hooks.exporters.base import ContentPolicy
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.counters import CountedTurn, Counters, MissingPassages
from rageval_hooks.online.delivery import Delivery
from rageval_hooks.online.dispatch import Dispatcher
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import Job
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.turn_context import MetricSampler, TurnContext
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.at_exit import EXIT_DRAIN, is_multiprocessing_child
from rageval_hooks.runtime.fork import run_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import Priority, Steps, local_pool, run_steps
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.runtime.worker import Worker
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings
from rageval_hooks.text.tokens import with_estimated_usage
from rageval_hooks.turn import Turn

_logger = logging.getLogger(__name__)

_MAX_AWAITED = 4
"""With more evaluations in progress, callers do not wait: behind the others they would not be reached in time."""

_WEIGHT = 1 / 16
"""Weight of the newest turn in the running mean of sizes."""


class EndedTurn:
    """A turn that has ended. It is built from what was recorded, by the thread that needs it first.

    Args:
        build: builds the turn.

    Attributes:
        turn: the turn; None until it is built.
    """

    def __init__(self, build: Callable[[], Turn]) -> None:
        self._build = build
        self.turn: Turn | None = None

    @classmethod
    def of(cls, turn: Turn) -> EndedTurn:
        """Return a turn that is built."""
        ended = cls(lambda: turn)
        ended.turn = turn
        return ended

    def build(self) -> Turn:
        """Return the turn."""
        if self.turn is None:
            self.turn = self._build()
        return self.turn


# --------------------------------------------------------------------------- the inline stage


class TurnPool:
    """The turns that this process has on its pool of threads: bounded, and waited for."""

    def __init__(self) -> None:
        # Changed by single, atomic operations: a finalizer may end a turn.
        self._sizes: dict[PendingTurn, int] = {}
        run_in_child(self._sizes.clear)

    def has_room(self, size: int, settings: Settings) -> bool:
        """Return True if the pool takes another turn. A metric that ignores the deadline may hold its threads."""
        sizes = list(self._sizes.values())
        # One turn is always taken, whatever its size.
        fits = len(sizes) < settings.queue_size and sum(sizes) + size <= settings.queue_max_mb * 2**20
        return not sizes or fits

    def pending(self, deadline: float | None) -> PendingTurn:
        """Return what a caller of a turn may wait for: until a deadline, or not at all for None."""
        is_awaited = deadline is not None and len(self._sizes) < _MAX_AWAITED
        return PendingTurn(deadline if deadline is not None and is_awaited else time.perf_counter())

    def start(self, steps: Steps[Any], pending: PendingTurn, size: int) -> None:
        """Start to evaluate a turn, whose steps end with :meth:`finish`.

        Args:
            steps: the work.
            pending: what a caller waits for.
            size: bytes of the turn.
        """
        EXIT_DRAIN.add(self.wait, "capture", lambda: bool(self._sizes))
        EXIT_DRAIN.register()
        try:
            self._sizes[pending] = size
            local_pool().run(steps, Priority.ENDED, copy_context())
        except BaseException:  # an interrupt, before or after the pool has taken the turn
            self.finish(pending)
            raise

    def finish(self, pending: PendingTurn) -> None:
        """Let a turn go, and wake who waits for it."""
        self._sizes.pop(pending, None)
        pending.finish()

    def wait(self, timeout: float) -> bool:
        """Wait for the turns that the pool has now. Returns False if ``timeout`` seconds pass first."""
        waiting = list(self._sizes)
        return wait_until(lambda: all(turn.done for turn in waiting), timeout)


TURN_POOL = TurnPool()

Export = Callable[[], Coroutine[None, None, None]]


@dataclass(kw_only=True)
class InlineStage:
    """Builds turns that have ended, runs the local metrics that fit into the budget, and has the turn exported.

    Attributes:
        engine: runs the metrics.
        sampler: chooses the metrics of a turn.
        worker: the background thread.
        delivery: takes exports.
        memory: evaluates jobs in this process.
        dispatcher: carries what is left of turns, as jobs.
        counters: count what became of turns.
        privacy: what may leave the process.
        content: the texts that exporters may get.
        settings: the budget, and which turns are evaluated.
        typical_size: about how many bytes a turn has that is not built yet.
    """

    engine: Engine
    sampler: MetricSampler
    worker: Worker
    delivery: Delivery
    memory: Dispatcher
    dispatcher: Dispatcher
    counters: Counters
    privacy: PrivacyPolicy
    content: ContentPolicy
    settings: Settings
    typical_size: int = 0

    def __post_init__(self) -> None:
        self.missing_passages = MissingPassages(self.counters)
        self._log = RateLimitedLogger(_logger)

    def start(
        self, ended: EndedTurn, selection: TurnContext | None, begun: CountedTurn, *, may_have_scores: bool
    ) -> PendingTurn:
        """Start the stage: on the pool of threads if metrics may run there, else on the background thread.

        Args:
            ended: the turn.
            selection: its sampling decision and its position in the trace; None for a turn that was not sampled.
            begun: its entry in the counters.
            may_have_scores: False if the turn certainly has no local scores.

        Returns:
            What the caller may wait for.
        """
        size = self.typical_size if ended.turn is None else ended.turn.size
        may_have_scores = may_have_scores and (ended.turn is None or self._has_scores(ended.turn))
        # Such a process may be terminated once the caller has its answer: it waits for the export too.
        in_child = is_multiprocessing_child()
        if not (in_child or may_have_scores) or not TURN_POOL.has_room(size, self.settings):
            if not self.delivery.submit(partial(self._late, ended, selection, begun), size):
                begun.drop("queue_full")
            return DONE
        deadline = time.perf_counter() + self.settings.inline_budget_ms / 1e3
        waits = in_child or self.delivery.has_callback or (selection is not None and selection.caller_waits)
        pending = TURN_POOL.pending(deadline if waits else None)
        TURN_POOL.start(self._evaluate(ended, selection, begun, deadline=deadline, pending=pending), pending, size)
        return pending

    def _late(
        self, ended: EndedTurn, selection: TurnContext | None, begun: CountedTurn
    ) -> Coroutine[None, None, None] | None:
        """Return the export of a turn whose metrics are all late, on the background thread."""
        export = run_steps(self._evaluate(ended, selection, begun, deadline=time.perf_counter()))
        return None if export is None else export()

    def _evaluate(
        self,
        ended: EndedTurn,
        selection: TurnContext | None,
        begun: CountedTurn,
        *,
        deadline: float,
        pending: PendingTurn | None = None,
    ) -> Steps[Export | None]:
        """Build a turn, run the local metrics that fit before the deadline, and queue its export.

        Returns:
            What hands over the results and the rest, if nobody waits: the caller is in the queue of exports itself.
            None otherwise, and if the evaluation failed, which is counted.
        """
        what, cause = "a turn could not be built from what was recorded", "not_built"
        try:
            turn = ended.build()
            what, cause = "a turn could not be evaluated", "failed"
            has_scores = self._has_scores(turn)
            # Here and not at capture: counting tokens is work, and the caller should not wait for it.
            turn = with_estimated_usage(turn)
            self._note(turn)
            trace_id = None if selection is None else selection.trace_id
            job = self.engine.job(turn, self.sampler.names(trace_id) if has_scores else ())
            analysis = self.engine.analyze(turn, deadline)
            # What was computed while the model wrote is not computed twice.
            for preparation in () if selection is None else selection.preparations:
                preparation.cancel()
                analysis.adopt(preparation.analysis)
            evaluation, rest = yield from self.engine.local_steps(job, analysis)
            rest = rest and self.sampler.choose(rest, trace_id, evaluation.results)
            if has_scores:
                self.delivery.call_back(evaluation)
            if self.privacy.active:
                # Here and not at capture: local scores are computed on the original texts.
                redacted = {"turn": self.privacy.turn(turn)}
                evaluation = evaluation.model_copy(update=redacted)
                rest = rest and rest.model_copy(update=redacted)
            if has_scores:
                self.delivery.annotate(evaluation)
            export = partial(self._dispatch_and_export, self.counters.counted(evaluation), rest, analysis)
            if pending is not None and not self.delivery.submit(export, turn.size):
                begun.drop("queue_full")
            else:
                begun.end("evaluated" if has_scores else "without_retrieval")
                return export if pending is None else None
        # Also CancelledError, SystemExit and KeyboardInterrupt of the application's metrics and functions.
        except BaseException as error:
            self.counters.add("internal_errors")
            self._log.warn(what, "%s: %s [RAGEVAL-215]", what, type(error).__name__, error=error)
            begun.drop(cause)
        finally:
            if pending is not None:
                # Such a process may end without notice once its function has returned.
                if is_multiprocessing_child():
                    self.worker.flush(deadline - time.perf_counter())
                TURN_POOL.finish(pending)
        return None

    def _note(self, turn: Turn) -> None:
        """Note the size of a turn, and why it has no passages."""
        size = turn.size
        self.typical_size = int(self.typical_size + _WEIGHT * (size - self.typical_size)) if self.typical_size else size
        if not self.settings.evaluate_without_retrieval:
            self.missing_passages.note(turn)

    def _has_scores(self, turn: Turn) -> bool:
        return turn.is_rag or self.settings.evaluate_without_retrieval

    async def _dispatch_and_export(self, evaluation: Evaluation, rest: Job | None, analysis: TurnAnalysis) -> None:
        """Dispatch the rest of a turn's metrics, and export the turn before any of their scores.

        Args:
            evaluation: the inline results.
            rest: the metrics that are left; None if there are none.
            analysis: what this process has already computed for the turn.
        """
        jobs: dict[Dispatcher, Job] = {}
        if rest is not None:
            self.counters.add("deferred_metrics", len(rest.metrics))
            rest = rest.model_copy(update={"content": self.content})
            jobs[self.dispatcher] = rest
            if self.privacy.active and self.dispatcher is not self.memory:
                # A spool or a broker gets redacted texts only, and local scores are computed on the original ones.
                local, judged = self.engine.split(rest)
                jobs = {self.dispatcher: judged, self.memory: local}
        refused = {
            dispatcher: job
            for dispatcher, job in jobs.items()
            if job.metrics and not await dispatcher.submit(job, analysis=analysis)
        }
        self.delivery.export(evaluation)
        for dispatcher, job in refused.items():
            waiting = dispatcher.stats()["pending"]
            self._log.warn("full", "%d turns wait for evaluation: newer ones are dropped [RAGEVAL-201]", waiting)
            self.delivery.skip(job, f"the queue is full: {waiting} turns wait for evaluation")
