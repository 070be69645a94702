"""Checks an answer on another thread, within the timeout, and decides what the user gets.

The guard's work is a generator of steps, so that no function is written twice for event loops. A step is something to
wait for: :func:`drive` waits for it on this thread, and :func:`adrive` awaits it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar, get_args

from opentelemetry import context as otel_context

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.otel.metrics import instruments_of
from rageval_hooks.guard.answers import answer_in, question_in
from rageval_hooks.guard.options import AnswerBlockedError, GuardAction, GuardDecision, GuardOptions, GuardVerdict
from rageval_hooks.guard.span import GuardSpans
from rageval_hooks.integrations.capture.deferred import in_event_loop
from rageval_hooks.integrations.capture.passages import passage_of
from rageval_hooks.integrations.capture.recorder import Recording, shared_recorder
from rageval_hooks.integrations.capture.turns import turn_of
from rageval_hooks.metrics.running import MISSING
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.metrics.support.turn_texts import ResponseText
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.pending import PendingTurn
from rageval_hooks.runtime.copying import CopiedAsItself
from rageval_hooks.runtime.fork import ForkSafeLock, run_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.pool import DaemonPool, local_pool
from rageval_hooks.runtime.queues import PROCESS_TOTALS
from rageval_hooks.runtime.tracing import global_meter_provider
from rageval_hooks.runtime.worker import shared_worker
from rageval_hooks.score import (
    VERDICT,
    Result,
    Score,
    Skipped,
    is_about_turn,
    label_with_cause,
    missing_score,
    verdict_first,
    verdict_of,
)
from rageval_hooks.text.refusals import says_nothing
from rageval_hooks.text.words import weighted_words
from rageval_hooks.turn import GuardOutcome, Passage, Turn

_limited_log = RateLimitedLogger(logging.getLogger(__name__))

_THREADS: Final = 4

_RESERVE: Final = 0.35
_MAX_RESERVED: Final = 0.025
"""Share of the timeout, and the most seconds of it, that are kept for the decision and its span: the whole must stay
within the timeout. A busy machine wakes the waiting thread some 15 ms late, whatever the timeout."""

_SHORT: Final = 200
"""Characters up to which an answer may have no content words, such as "Yes, it is."."""

_MAX_REFUSAL: Final = 2_000
"""Characters of a refusal. Longer answers are not read on the caller's thread, which may be an event loop's."""


# --------------------------------------------------------------------------- steps


T = TypeVar("T")


GuardStep: TypeAlias = PendingTurn | Callable[[], Any]
"""Something to wait for: work on another thread, or a call, which returns an awaitable if the driver is ``adrive``."""

GuardSteps = Generator[GuardStep, Any, T]
"""Work that yields each step, gets its result, and returns a ``T``. A step that raises closes it."""


def drive(steps: GuardSteps[T]) -> T:
    """Do the work on this thread."""
    result = None
    with closing(steps):
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            result = step.wait() if isinstance(step, PendingTurn) else step()


async def adrive(steps: GuardSteps[T]) -> T:
    """Do the work in an event loop, asyncio's or trio's."""
    result = None
    with closing(steps):
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, PendingTurn):
                if not in_event_loop():
                    raise ConfigurationError("a guard works in event loops of asyncio and trio: use check() here")
                result = await step
            else:
                result = await step()


# --------------------------------------------------------------------------- what an answer is checked against


def _captured_recording() -> Recording | None:
    entry = shared_recorder().surrounding(None)  # the guard is no framework, so the run around it may be of any
    return None if entry is None else entry[0]


@dataclass(frozen=True, kw_only=True)
class GuardEvidence:
    """What is known about an answer when it is checked.

    Attributes:
        question: the user's question, if the caller knows it.
        passages: the passages that the caller names.
        recording: the turn that is being captured around the check; None outside of a captured turn.
        named_only: True if only the caller's passages count, and not those of the captured turn.
    """

    question: str = ""
    passages: Sequence[Passage] = ()
    recording: Recording | None = field(default_factory=_captured_recording)
    named_only: bool = False

    def turn(self, answer: str) -> Turn:
        """Return the turn so far, with an answer. Not for event loops: the captured turn is built here."""
        named = Turn(query=self.question, passages=tuple(self.passages), response=answer)
        if self.recording is None or self.named_only:
            return named
        try:
            captured = turn_of(self.recording)
        except Exception as error:
            self.recording.owner.failed("a guard could not read the turn that is being captured", error)
            return named
        # Passages may also come from code that nothing captures.
        passages = captured.passages if captured.prompt_passages else (named.passages or captured.passages)
        changes = {"query": self.question or captured.query, "passages": passages, "response": answer, "guard": None}
        # The turn has not ended, and the part of the answer that is there is what is checked.
        return captured.model_copy(update={**changes, "status": "ok", "complete": True, "error": None})


def read_passages(value: object) -> list[Passage]:
    """Return the passages in a value that an application keeps under a key.

    Args:
        value: a text, a mapping with ``text``, a document, a node, or several of these. Anything else has no passages.
    """
    single = passage_of(value)
    found: list[Passage | None] = [single]
    if single is None:
        # A generator is the application's to read.
        found = list(map(passage_of, value)) if isinstance(value, (list, tuple, set, frozenset)) else []
    # A blank passage supports nothing.
    return [passage for passage in found if passage is not None and passage.text.strip()]


def passages_under(values: Mapping[str, Any], keys: Iterable[str]) -> list[Passage]:
    """Return the passages under the first key that has some."""
    return next((passages for key in keys if (passages := read_passages(values.get(key)))), [])


# --------------------------------------------------------------------------- checks and decisions


@cache
def _pool() -> DaemonPool:
    """Return the threads of all guards of the process."""
    return DaemonPool(_THREADS, "rageval-guard")


class _Check:
    """One check: what is known when it begins, and what it has found.

    Args:
        answer: the text to check.
        evidence: what the answer was written from.
        timeout: seconds until callers stop waiting.

    Attributes:
        done: callers wait for it, or await it, until the timeout.
        known: the guard's verdict and its reason, if they need no metrics.
        turn: the turn that was checked; None until it is built.
        results: the results of the metrics.
        error: the exception that ended the check.
    """

    def __init__(self, answer: str, evidence: GuardEvidence, timeout: float) -> None:
        self.answer = answer
        self.evidence = evidence
        self.started_at = time.time_ns()
        self.context = otel_context.get_current()
        self.started = time.perf_counter()
        self.done = PendingTurn(self.started + timeout - min(_RESERVE * timeout, _MAX_RESERVED))
        self.known: tuple[GuardVerdict, str] | None = None
        self.turn: Turn | None = None
        self.results: Sequence[Result] = ()
        self.error: BaseException | None = None
        self.analysis: TurnAnalysis | None = None
        self.futures: list[Future[Any]] = []
        self.given_up = False

    def give_up(self) -> None:
        """Stop the work as far as that is possible. Its results are not used."""
        self.given_up = True
        for future in self.futures:
            future.cancel()
        if self.analysis is not None:
            self.analysis.cancel()


_running: set[_Check] = set()
"""The checks that are on a thread now. Sets change by single, atomic operations."""

run_in_child(_running.clear)


class Decider(CopiedAsItself):
    """Checks answers and decides about them. Safe to use from several threads and event loops.

    Args:
        options: what happens to an answer.
        engine: runs the metrics.
        thresholds: the thresholds of the scores that count.
        spans: writes the spans of decisions, and knows what may leave.
        guard: the guard, as whose decider another process unpickles this one, with a wrapped chain.
    """

    def __init__(
        self,
        options: GuardOptions,
        engine: Engine,
        thresholds: Mapping[str, float | None],
        spans: GuardSpans,
        guard: object,
    ) -> None:
        self._guard = guard
        self.options = options
        self.engine = engine
        self._thresholds = thresholds
        self._spans = spans
        self._asks_judge = any(metric.asks_judge for metric in engine.metrics)
        self._counts: Counter[str] = Counter()
        self._counting = ForkSafeLock()

    def _origin(self) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
        return attrgetter("decider"), (self._guard,), {}

    def answer_of(self, value: Any) -> str | None:
        """Return the answer in the output of a chain; None if there is nothing to check."""
        # An agent that calls a tool is not done yet.
        if getattr(value, "tool_calls", None):
            return None
        answer = answer_in(value, self.options.answer_keys)
        if answer is None:
            kind = f"a mapping with {sorted(map(str, value))}" if isinstance(value, Mapping) else type(value).__name__
            _limited_log.warn(
                "no answer",
                "a guard found no answer in %s, which passes unchecked: set answer_keys [RAGEVAL-703]",
                kind,
            )
        return answer

    def evidence_in(self, value: Any, question: str = "") -> GuardEvidence:
        """Return the evidence in the output of a chain, in addition to the turn that is being captured."""
        if not isinstance(value, Mapping):
            return GuardEvidence(question=question)
        return GuardEvidence(
            question=question or question_in(value, self.options.question_keys),
            passages=tuple(passages_under(value, self.options.passage_keys)),
        )

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
        may_regenerate: bool = True,
        final: bool = True,
        shown: str = "",
    ) -> GuardSteps[GuardDecision]:
        """Check an answer and decide.

        Args:
            answer: the text of the answer.
            evidence: what it was written from.
            attempt: which answer to the question it is, from 1.
            may_regenerate: False if a part of the answer has been shown, so that no other one can take its place.
            final: False if the answer is the beginning of a stream. A beginning that passes is not reported: the whole
                answer will be.
            shown: the beginning of the answer, in a stream of which the user has seen a part.

        Raises:
            AnswerBlockedError: the answer is blocked and ``on_fail`` is "raise".
        """
        check = self._begin(answer, evidence)
        try:
            # Ends at the timeout too; the verdict then is "unchecked".
            yield check.done
        except GeneratorExit:  # the caller was cancelled
            check.give_up()
            raise
        verdict, reason = self._verdict(check)
        action = self._action(verdict, may_regenerate and attempt < self.options.attempts)
        decision = GuardDecision(
            verdict=verdict,
            action=action,
            answer=answer if action in ("passed", "flagged") else self.options.fallback,
            checked=answer,
            cause=_cause(verdict, check.results),
            reason=reason,
            results=tuple(check.results),
            seconds=time.perf_counter() - check.started,
            attempt=attempt,
        )
        if final or verdict in ("unsupported", "unchecked"):
            yield from self._write_span(decision, check)
            self._report(decision)
            if evidence.recording is not None:
                evidence.recording.guard = _outcome(decision, shown, evidence.recording.guard)
        if action == "raised":
            raise AnswerBlockedError(f"the guard blocked the answer: {reason}", decision)
        return decision

    def _begin(self, answer: str, evidence: GuardEvidence) -> _Check:
        check = _Check(answer, evidence, self.options.timeout)
        text = ResponseText(Turn(response=answer[:_MAX_REFUSAL], passages=tuple(evidence.passages)))
        is_short = len(answer) <= _MAX_REFUSAL
        said = text.said if is_short else answer.strip()
        # A model that hangs keeps its thread. Further checks then fail at once instead of waiting for their timeouts.
        stuck = sum(other.given_up for other in list(_running))
        # A refusal passes even where every model hangs.
        if said == self.options.fallback.strip() or (is_short and text.declines):
            check.known = "refusal", ""
        # "Hello!". A judge can tell whether "Yes." is right, and words cannot.
        elif says_nothing(said) or (not self._asks_judge and _has_no_content_words(said)):
            check.known = "no_claims", ""
        elif stuck >= _THREADS:
            check.known = "unchecked", f"{stuck} earlier checks are still running after their timeout"
        else:
            check.futures.append(_pool().submit(self._run, check))
            return check
        check.done.finish()
        return check

    def _run(self, check: _Check) -> None:
        """Do a check on this thread; what happens is kept in it."""
        _running.add(check)
        engine = self.engine
        try:
            turn = check.turn = check.evidence.turn(check.answer)
            # The judge is asked first, since it takes longest; local metrics run meanwhile.
            local, judged = engine.split(engine.job(turn))
            judging = None
            if judged.metrics:
                # The judge sees the redacted turn, local metrics the original one.
                shown = self._spans.privacy_of(check.evidence.recording).turn(turn)
                job = judged.model_copy(update={"turn": shown})
                judging = shared_worker().call(lambda: engine.evaluate(job))
                check.futures.append(judging)
            # They wait for models that are loading, but not longer than the caller waits.
            check.analysis = engine.analyze(turn)
            check.analysis.wait = True  # but not for the language detector: until it is loaded, the rules answer
            if not check.given_up:
                check.results = engine.evaluate_local(local, check.analysis)[0].results
            if judging is not None:
                left = max(0.0, check.done.deadline - time.perf_counter())
                check.results = verdict_first((*check.results, *judging.result(left).results))
        except BaseException as error:  # also what libraries raise to exit: it must not end the thread
            check.error = error
        finally:
            _running.discard(check)
            check.done.finish()

    def _verdict(self, check: _Check) -> tuple[GuardVerdict, str]:
        """Return the guard's verdict after a check that has ended or used up its time, and the reason."""
        if check.known is not None:
            return check.known
        if not check.done.done:
            check.give_up()
            return "unchecked", f"no result within {self.options.timeout_ms:g} ms"
        if check.error is not None:
            # The message may quote a text, and reasons are shown where texts are hidden.
            return "unchecked", f"the check failed with {type(check.error).__name__}"
        # With the passages at hand, citations in a refusal are recognized: "I don't know. [pier.md]"
        if check.analysis is not None and (check.analysis.response.declines or check.analysis.response.asks_back):
            return "refusal", ""
        scores = {score.name: score for score in check.results if isinstance(score, Score) and is_about_turn(score)}
        failing: list[str] = []
        missing: dict[str, list[str]] = {}
        of_turn = verdict_of(check.results)
        if isinstance(of_turn, Score) and of_turn.label == "bad":
            others = ", ".join(f"{name} {score.value:.2f}" for name, score in scores.items() if name != VERDICT)
            failing.append(f"the verdict is {label_with_cause(of_turn)}" + (f" ({others})" if others else ""))
        elif of_turn is not None and not isinstance(of_turn, Score):
            missing[_why_missing(VERDICT, check.results)] = [VERDICT]
        for name, threshold in self._thresholds.items():
            score = scores.get(name)
            if score is None or score.label is None:
                missing.setdefault(_why_missing(name, check.results), []).append(name)
            elif score.label == "fail" and threshold is None:
                failing.append(f"{name} {score.value:.2f} fails by the threshold of {score.model}")
            elif score.label == "fail":
                side = "below" if score.direction == "higher" else "above"
                failing.append(f"{name} {score.value:.2f} is {side} {threshold:g}")
        # One that fails is enough, whatever became of the others.
        if failing:
            return "unsupported", "; ".join(failing)
        if missing and check.analysis is not None and check.analysis.claims_nothing:
            return "no_claims", ""  # "Hello!" has no scores, and nothing in it could be wrong
        if missing:
            # For example "no_passages: faithfulness, unsupported_facts: the turn has no passages"
            lacks = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in missing.items())
            return "unchecked", ": ".join(filter(None, (_cause("unchecked", check.results), lacks)))
        return "supported", ""

    def _action(self, verdict: GuardVerdict, may_regenerate: bool) -> GuardAction:
        # on_error="open" lets an answer through that could not be checked.
        is_closed = verdict == "unchecked" and self.options.on_error == "closed"
        on_fail = self.options.on_fail
        if verdict != "unsupported" and not is_closed:
            return "passed"
        if on_fail == "regenerate" and may_regenerate and verdict == "unsupported":
            return "regenerated"
        return "flagged" if on_fail == "flag" else "raised" if on_fail == "raise" else "replaced"

    def _write_span(self, decision: GuardDecision, check: _Check) -> GuardSteps[None]:
        recording = check.evidence.recording

        def write() -> None:
            self._spans.write(decision, check.turn or Turn(), recording, check.context, check.started_at)

        if not self._spans.privacy_of(recording).active:
            write()
            return
        # Redacting long texts would block an event loop.
        written = PendingTurn(time.perf_counter() + self.options.timeout)
        local_pool().submit(write).add_done_callback(lambda _: written.finish())
        yield written

    def _report(self, decision: GuardDecision) -> None:
        PROCESS_TOTALS.add_guard_decision(decision.action, decision.verdict, decision.cause)
        if (provider := global_meter_provider()) is not None:
            instruments_of(provider)  # reports it, also where nothing is instrumented
        with self._counting:
            self._counts.update(("decisions", decision.verdict, decision.action))
        if decision.verdict == "unchecked":
            effect = "blocked" if decision.blocked else "passed"
            reason = decision.reason
            if MISSING["passages"] in reason:
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


def _cause(verdict: GuardVerdict, results: Sequence[Result]) -> str | None:
    """Return the cause of a decision, which is that of the turn's verdict; None if the answer is supported."""
    of_turn = verdict_of(results)
    return None if of_turn is None or verdict in ("supported", "no_claims") else of_turn.cause


def _has_no_content_words(answer: str) -> bool:
    return len(answer) <= _SHORT and not any(word.is_content for word in weighted_words(answer))


def _outcome(decision: GuardDecision, shown: str, before: GuardOutcome | None) -> GuardOutcome:
    """Return what the guard has done with the answer of a turn.

    Args:
        decision: the last decision.
        shown: what the user has seen of the answer.
        before: the outcome of the decisions before it.
    """
    outcome = GuardOutcome(
        action=decision.action,
        verdict=decision.verdict,
        cause=decision.cause,
        reason=decision.reason,
        blocked_answer=shown + decision.checked if decision.blocked else None,
    )
    # A second answer that passes is the one that the user gets.
    if before is not None and before.action == "regenerated" and decision.action == "passed":
        return outcome.model_copy(update={"action": before.action, "cause": before.cause, "reason": before.reason})
    # An agent may say something more after an answer was blocked or flagged.
    has_acted = before is not None and before.action not in ("passed", "regenerated")
    return before if before is not None and has_acted and not decision.blocked else outcome


def _why_missing(name: str, results: Sequence[Result]) -> str:
    missing = missing_score(name, results)
    if missing is None:
        return "no result"
    # The message of an error may quote a text.
    return missing.reason if isinstance(missing, Skipped) else f"failed with {missing.error_type}"
