"""Runs the metrics of a guard on separate threads, and stops at the timeout."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Final

from rageval_hooks.guard.evidence import Evidence
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.inline import Arrival
from rageval_hooks.online.job import Job
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.executors import DaemonExecutor, urgent
from rageval_hooks.runtime.fork import run_in_child
from rageval_hooks.runtime.worker import shared_worker
from rageval_hooks.score import Evaluation, Result
from rageval_hooks.turn import Turn

__all__ = ["Check", "Checker"]

_THREADS: Final = 4
_MOST_WAITING: Final = 1_000
"""Checks that may wait for a thread. More cannot be done within any usual timeout."""

_RESERVE: Final = 0.35
_MOST_RESERVED: Final = 0.025
"""Share of the timeout, and the most seconds of it, that are kept for the decision and its span: the whole must stay
within the timeout. A busy machine wakes the waiting thread some 15 ms late, whatever the timeout."""


class Check:
    """One check in progress. Callers wait for :attr:`arrival`, or await it.

    Args:
        evidence: what the answer was written from.
        answer: the text to check.
        timeout: seconds until callers stop waiting.

    Attributes:
        arrival: is done when the check is.
        turn: the turn that was checked; None until it is built.
        results: the results of the metrics.
        error: the exception that ended the check.
    """

    def __init__(self, evidence: Evidence, answer: str, timeout: float) -> None:
        self.evidence = evidence
        self.answer = answer
        self.deadline = time.perf_counter() + timeout - min(_RESERVE * timeout, _MOST_RESERVED)
        self.arrival = Arrival(self.deadline)
        self.turn: Turn | None = None
        self.results: Sequence[Result] = ()
        self.error: BaseException | None = None
        self.analysis: TurnAnalysis | None = None
        self.future: Future[None] | None = None
        self.judging: Future[Evaluation] | None = None
        self.given_up = False

    def give_up(self) -> None:
        """Stop the work as far as that is possible. Its results are not used."""
        self.given_up = True
        if self.future is not None:
            self.future.cancel()
        if self.judging is not None:
            self.judging.cancel()
        if self.analysis is not None:
            # The metrics look at the deadline between two steps.
            self.analysis.deadline = float("-inf")


class Checker:
    """Runs the metrics of one guard.

    Args:
        engine: runs the metrics.
        thresholds: the thresholds of the scores that count.
        timeout: seconds that a check may take.
        privacy_of: returns what a judge may see of a captured turn.
    """

    def __init__(
        self,
        engine: Engine,
        thresholds: Mapping[str, float | None],
        timeout: float,
        privacy_of: Callable[[Recording | None], PrivacyPolicy],
    ) -> None:
        self.thresholds = thresholds
        self.privacy_of = privacy_of
        self._engine = engine
        self._timeout = timeout

    def start(self, evidence: Evidence, answer: str) -> Check | str:
        """Start a check on another thread. Never blocks.

        Returns:
            The check, or the reason why none was started.
        """
        pool = _pool()
        reason = pool.refuses()
        if reason:
            return reason
        check = Check(evidence, answer, self._timeout)
        pool.submit(self, check)
        return check

    def run(self, check: Check) -> None:
        """Do a check on this thread; what happens is kept in it."""
        try:
            turn = check.turn = check.evidence.turn(check.answer)
            # The judge is asked first, since it takes longest; local metrics run meanwhile.
            local, judged = self._engine.split(self._engine.job(turn))
            if judged.metrics:
                # The judge sees the redacted turn, local metrics the original one.
                shown = self.privacy_of(check.evidence.recording).turn(turn, for_judge=True)
                job = judged.model_copy(update={"turn": shown})
                check.judging = shared_worker().call(lambda: self._engine.evaluate(job))
            check.results = self._compute(check, turn, local)
            if check.judging is not None:
                left = max(0.0, check.deadline - time.perf_counter())
                check.results = (*check.results, *check.judging.result(left).results)
        except BaseException as error:  # also what libraries raise to exit: it must not end the thread
            check.error = error

    def _compute(self, check: Check, turn: Turn, local: Job) -> Sequence[Result]:
        """Run the local metrics. They wait for models that are loading, but not longer than the caller waits."""
        analysis = check.analysis = self._engine.analyze(turn).patient()
        if check.given_up:
            return ()
        evaluation, _ = self._engine.evaluate_local(local, analysis)
        return evaluation.results


class _Pool:
    """The threads of all guards of the process, and what is on them.

    A model that hangs keeps its thread. Once all threads are kept, further checks fail at once instead of waiting for
    the timeout one by one.
    """

    def __init__(self) -> None:
        self._executor = DaemonExecutor(_THREADS, "rageval-guard")
        # Sets change by single, atomic operations.
        self._open: set[Check] = set()
        self._running: set[Check] = set()

    def refuses(self) -> str:
        """Return why no further check is started; empty if one can be."""
        stuck = sum(check.given_up for check in list(self._running))
        if stuck >= _THREADS:
            return f"{stuck} earlier checks are still running after their timeout"
        if len(self._open) >= _MOST_WAITING + _THREADS:
            return f"{len(self._open)} checks are waiting already"
        return ""

    def submit(self, checker: Checker, check: Check) -> None:
        """Run a check on one of the threads."""
        self._open.add(check)
        check.future = self._executor.submit(self._run, checker, check)
        check.future.add_done_callback(lambda _: self._done(check))

    def _run(self, checker: Checker, check: Check) -> None:
        self._running.add(check)
        try:
            with urgent():
                checker.run(check)
        finally:
            self._running.discard(check)

    def _done(self, check: Check) -> None:
        """Called when a check has run, and when it was cancelled in the queue."""
        self._open.discard(check)
        check.arrival.finish()


@cache
def _pool() -> _Pool:
    return _Pool()


run_in_child(_pool.cache_clear)
