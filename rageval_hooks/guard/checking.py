"""Checks an answer on another thread, within the timeout, and decides what the user gets."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Final, get_args

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.guard.evidence import GuardEvidence
from rageval_hooks.guard.options import AnswerBlockedError, GuardAction, GuardDecision, GuardOptions, GuardVerdict
from rageval_hooks.guard.span import GuardSpans, SpanPlace
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.metrics.support.running import MISSING
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.pending import PendingTurn
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.fork import ForkSafeLock, run_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import DaemonPool, local_pool
from rageval_hooks.runtime.worker import shared_worker
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped, is_about_turn
from rageval_hooks.text.refusals import says_nothing
from rageval_hooks.text.words import weighed_words
from rageval_hooks.turn import Turn

__all__ = ["Decider"]

_limited_log = RateLimitedLogger(logging.getLogger(__name__))

_THREADS: Final = 4
_MOST_WAITING: Final = 1_000
"""Checks that may wait for a thread. More cannot be done within any usual timeout."""

_RESERVE: Final = 0.35
_MOST_RESERVED: Final = 0.025
"""Share of the timeout, and the most seconds of it, that are kept for the decision and its span: the whole must stay
within the timeout. A busy machine wakes the waiting thread some 15 ms late, whatever the timeout."""

_SHORT: Final = 200
"""Characters up to which an answer may have no content words, such as "Yes, it is."."""

_POLL_SECONDS: Final = 0.002
_NO_PASSAGES: Final = MISSING["passages"]

# A citation after a refusal: "[1]", "[^2]". Without the passages it is not certain, but it never is a claim.
_CITED: Final = re.compile(r" ?\[\^?\d{1,3}\]")


class _Check:
    """One check: what is known when it begins, and what it has found.

    Args:
        answer: the text to check.
        evidence: what the answer was written from.
        timeout: seconds until callers stop waiting.

    Attributes:
        arrival: is done when the check is. Callers wait for it, or await it, until the timeout.
        verdict: the verdict, if it needs no metrics.
        reason: why the check was not started.
        turn: the turn that was checked; None until it is built.
        results: the results of the metrics.
        error: the exception that ended the check.
    """

    def __init__(self, answer: str, evidence: GuardEvidence, timeout: float) -> None:
        self.answer = answer
        self.evidence = evidence
        self.place = SpanPlace(evidence.recording)
        self.started = time.perf_counter()
        self.deadline = self.started + timeout - min(_RESERVE * timeout, _MOST_RESERVED)
        self.arrival = PendingTurn(self.deadline)
        self.verdict: GuardVerdict | None = None
        self.reason = ""
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
        for future in (self.future, self.judging):
            if future is not None:
                future.cancel()
        if self.analysis is not None:
            # The metrics look at the deadline between two steps.
            self.analysis.deadline = float("-inf")


class _Pool:
    """The threads of all guards of the process, and what is on them.

    A model that hangs keeps its thread. Once all threads are kept, further checks fail at once instead of waiting for
    the timeout one by one.
    """

    def __init__(self) -> None:
        self._executor = DaemonPool(_THREADS, "rageval-guard")
        # Sets change by single, atomic operations.
        self._open: set[_Check] = set()
        self._running: set[_Check] = set()

    def start(self, check: _Check, run: Callable[[_Check], None]) -> None:
        """Run a check on one of the threads, or note on it why none is free. Never blocks."""
        stuck = sum(other.given_up for other in list(self._running))
        if stuck >= _THREADS:
            check.reason = f"{stuck} earlier checks are still running after their timeout"
        elif len(self._open) >= _MOST_WAITING + _THREADS:
            check.reason = f"{len(self._open)} checks are waiting already"
        if check.reason:
            check.arrival.finish()
            return
        self._open.add(check)
        check.future = self._executor.submit(self._run, check, run)
        check.future.add_done_callback(lambda _: self._done(check))

    def _run(self, check: _Check, run: Callable[[_Check], None]) -> None:
        self._running.add(check)
        try:
            run(check)
        finally:
            self._running.discard(check)

    def _done(self, check: _Check) -> None:
        """Called when a check has run, and when it was cancelled in the queue."""
        self._open.discard(check)
        check.arrival.finish()


@cache
def _pool() -> _Pool:
    return _Pool()


run_in_child(_pool.cache_clear)


class Decider:
    """Checks answers and decides about them. Safe to use from several threads and event loops.

    Args:
        options: what happens to an answer.
        engine: runs the metrics.
        thresholds: the thresholds of the scores that count.
        spans: writes the spans of decisions.
        privacy_of: returns what a judge may see of a captured turn.
    """

    def __init__(
        self,
        options: GuardOptions,
        engine: Engine,
        thresholds: Mapping[str, float | None],
        spans: GuardSpans,
        privacy_of: Callable[[Recording | None], PrivacyPolicy],
    ) -> None:
        self.options = options
        self._engine = engine
        self._thresholds = thresholds
        self._spans = spans
        self._privacy_of = privacy_of
        self._asks_judge = any(metric.asks_judge for metric in engine.metrics)
        self._counts: Counter[str] = Counter()
        self._counting = ForkSafeLock()

    def stats(self) -> dict[str, int]:
        """Return how many decisions there were, in all, by verdict and by action."""
        with self._counting:
            counts = dict(self._counts)
        names = ("decisions", *get_args(GuardVerdict), *get_args(GuardAction))
        return {name: counts.get(name, 0) for name in names}

    def decide(
        self,
        answer: str,
        evidence: GuardEvidence,
        *,
        attempt: int = 1,
        may_regenerate: bool = False,
        final: bool = True,
    ) -> GuardDecision:
        """Check an answer and decide.

        Args:
            answer: the text of the answer.
            evidence: what it was written from.
            attempt: which answer to the question it is, from 1.
            may_regenerate: True if the caller asks again after the decision ``regenerated``.
            final: False if the answer is the beginning of a stream. A beginning that passes is not reported: the whole
                answer will be.

        Raises:
            AnswerBlockedError: the answer is blocked and ``on_fail`` is "raise".
        """
        check = self._begin(answer, evidence)
        # Returns at the timeout too; the verdict then is "unchecked".
        check.arrival.wait()
        decision = self._decision(check, attempt, may_regenerate)
        if _is_reported(decision, final):
            self._spans.write(decision, check.turn, check.place)
            self._report(decision)
        return _unless_raised(decision)

    async def adecide(
        self,
        answer: str,
        evidence: GuardEvidence,
        *,
        attempt: int = 1,
        may_regenerate: bool = False,
        final: bool = True,
    ) -> GuardDecision:
        """Check an answer and decide, without blocking the event loop, asyncio's or trio's; see :meth:`decide`."""
        check = self._begin(answer, evidence)
        try:
            await _arrived(check.arrival)
        except BaseException:  # the caller was cancelled and does not wait any longer
            check.give_up()
            raise
        decision = self._decision(check, attempt, may_regenerate)
        if _is_reported(decision, final):
            written = PendingTurn(time.perf_counter() + self.options.timeout)

            def write() -> None:
                self._spans.write(decision, check.turn, check.place)
                written.finish()

            # Redacting texts may take a while.
            is_slow = self._privacy_of(check.evidence.recording).active
            if is_slow:
                local_pool().submit(write)
                await _arrived(written)
            else:
                write()
            self._report(decision)
        return _unless_raised(decision)

    # -- the steps of a decision

    def _begin(self, answer: str, evidence: GuardEvidence) -> _Check:
        check = _Check(answer, evidence, self.options.timeout)
        said = _CITED.sub("", answer).strip()
        # A refusal passes even where every model hangs.
        if said == self.options.fallback.strip() or says_nothing(said):
            check.verdict = "refusal"
        # A judge can tell whether "Yes." is right. Words cannot.
        elif not self._asks_judge and len(said) <= _SHORT and not any(w.is_content for w in weighed_words(said)):
            check.verdict = "no_claims"
        if check.verdict is not None:
            check.arrival.finish()
        else:
            _pool().start(check, self._run)
        return check

    def _run(self, check: _Check) -> None:
        """Do a check on this thread; what happens is kept in it."""
        engine = self._engine
        try:
            turn = check.turn = check.evidence.turn(check.answer)
            # The judge is asked first, since it takes longest; local metrics run meanwhile.
            local, judged = engine.split(engine.job(turn))
            if judged.metrics:
                # The judge sees the redacted turn, local metrics the original one.
                shown = self._privacy_of(check.evidence.recording).turn(turn, for_judge=True)
                job = judged.model_copy(update={"turn": shown})
                check.judging = shared_worker().call(lambda: engine.evaluate(job))
            # They wait for models that are loading, but not longer than the caller waits.
            check.analysis = engine.analyze(turn).patient()
            if not check.given_up:
                check.results = engine.evaluate_local(local, check.analysis)[0].results
            if check.judging is not None:
                left = max(0.0, check.deadline - time.perf_counter())
                check.results = (*check.results, *check.judging.result(left).results)
        except BaseException as error:  # also what libraries raise to exit: it must not end the thread
            check.error = error

    def _decision(self, check: _Check, attempt: int, may_regenerate: bool) -> GuardDecision:
        verdict, reason = self._verdict(check)
        action = self._action(verdict, may_regenerate)
        return GuardDecision(
            verdict=verdict,
            action=action,
            answer=check.answer if action in ("passed", "flagged") else self.options.fallback,
            checked=check.answer,
            reason=reason,
            results=tuple(check.results),
            seconds=time.perf_counter() - check.started,
            attempt=attempt,
        )

    def _verdict(self, check: _Check) -> tuple[GuardVerdict, str]:
        """Return the verdict of a check that has ended or used up its time, and the reason."""
        if check.verdict is not None:
            return check.verdict, ""
        if check.reason:
            return "unchecked", check.reason
        if not check.arrival.done:
            check.give_up()
            return "unchecked", f"no result within {self.options.timeout_ms:g} ms"
        if check.error is not None:
            # The message may quote a text, and reasons are shown where texts are hidden.
            return "unchecked", f"the check failed with {type(check.error).__name__}"
        # With the passages at hand, citations in a refusal are recognized: "… is not mentioned (pier.md)."
        if check.analysis is not None and check.analysis.response.declines:
            return "refusal", ""
        scores = {score.name: score for score in check.results if isinstance(score, Score) and is_about_turn(score)}
        failing: list[str] = []
        missing: dict[str, list[str]] = {}
        for name, threshold in self._thresholds.items():
            score = scores.get(name)
            # Not every grounding model says from which value on a sentence is supported: then there is no label.
            if score is None or score.label is None:
                missing.setdefault(_why_missing(name, check.results), []).append(name)
            elif score.label == "fail" and threshold is None:
                failing.append(f"{name} {score.value:.2f} fails by the threshold of {score.model}")
            elif score.label == "fail":
                side = "below" if score.direction == "higher" else "above"
                failing.append(f"{name} {score.value:.2f} is {side} {threshold:g}")
        # One score that fails is enough, whatever became of the others.
        if failing:
            return "unsupported", "; ".join(failing)
        if missing:
            # For example "faithfulness, unsupported_facts: the turn has no passages"
            return "unchecked", "; ".join(f"{', '.join(names)}: {reason}" for reason, names in missing.items())
        return "supported", ""

    def _action(self, verdict: GuardVerdict, may_regenerate: bool) -> GuardAction:
        # on_error="open" lets an answer through that could not be checked.
        is_closed = verdict == "unchecked" and self.options.on_error == "closed"
        if verdict != "unsupported" and not is_closed:
            return "passed"
        match self.options.on_fail:
            case "flag":
                return "flagged"
            case "raise":
                return "raised"
            case "regenerate" if may_regenerate and verdict == "unsupported":
                return "regenerated"
            case _:
                return "replaced"

    def _report(self, decision: GuardDecision) -> None:
        with self._counting:
            self._counts.update(("decisions", decision.verdict, decision.action))
        if decision.verdict == "unchecked":
            effect = "blocked" if decision.blocked else "passed"
            reason = decision.reason
            if _NO_PASSAGES in reason:
                reason += "; call instrument(), or give the guard the passages: docs/guides/guard.md says how"
            _limited_log.warn(
                decision.reason, "a guard could not check an answer, which is %s: %s [RAGEVAL-701]", effect, reason
            )
        if self.options.on_decision is None:
            return
        try:
            self.options.on_decision(decision)
        except Exception as error:
            kind = type(error).__name__
            _limited_log.warn("on_decision", "on_decision of a guard raised %s [RAGEVAL-702]", kind, error=error)


async def _arrived(arrival: PendingTurn) -> None:
    """Wait until the end or the deadline, in an event loop of asyncio or trio.

    Raises:
        ConfigurationError: the event loop is another one.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        if trio is None:
            raise ConfigurationError("a guard works in event loops of asyncio and trio: use check() here") from None
        while not arrival.done and time.perf_counter() < arrival.deadline:
            await trio.sleep(_POLL_SECONDS)
        return
    await arrival


def _why_missing(name: str, results: Sequence[Result]) -> str:
    for result in results:
        if isinstance(result, Score) and result.name == name:
            return f"no threshold is known for {result.model}: give threshold={{{name!r}: …}}"
        # A result with the name of a metric is about all its scores: "citation" about "citation.recall".
        is_about = f"{name}.".startswith(f"{result.name}.")
        if is_about and isinstance(result, Skipped):
            return result.reason
        if is_about and isinstance(result, Failed):
            return f"failed with {result.error_type}"
    return "no result"


def _is_reported(decision: GuardDecision, final: bool) -> bool:
    """Return True unless the decision is about the beginning of a stream that passes."""
    return final or decision.verdict in ("unsupported", "unchecked")


def _unless_raised(decision: GuardDecision) -> GuardDecision:
    if decision.action == "raised":
        raise AnswerBlockedError(f"the guard blocked the answer: {decision.reason}", decision)
    return decision
