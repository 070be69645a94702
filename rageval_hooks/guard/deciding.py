"""How a guard decides about an answer: a check that is begun, waited for, and reported."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from dataclasses import dataclass
from time import perf_counter
from typing import Final, get_args

from rageval_hooks.guard.checking import Check, Checker
from rageval_hooks.guard.decision import Action, AnswerBlockedError, GuardDecision, Verdict
from rageval_hooks.guard.evidence import Evidence
from rageval_hooks.guard.options import GuardOptions
from rageval_hooks.guard.span import GuardSpans, SpanPlace
from rageval_hooks.guard.verdict import verdict_of
from rageval_hooks.metrics.support.running import MISSING
from rageval_hooks.runtime.executors import ForkSafeLock, deferred_executor
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.text.declining import says_nothing
from rageval_hooks.text.words import weighed_words

__all__ = ["Decider"]

_limited_log = RateLimitedLogger(logging.getLogger(__name__))

_SHORT: Final = 200
"""Characters up to which an answer may have no content words, such as "Yes, it is."."""

_NO_PASSAGES: Final = MISSING["passages"]

# A citation after a refusal: "[1]", "[^2]". Without the passages it is not certain, but it never is a claim.
_CITED: Final = re.compile(r" ?\[\^?\d{1,3}\]")


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """A check that was begun, on the caller's thread.

    Attributes:
        answer: the text to check.
        place: where the span belongs.
        started: value of ``perf_counter()``.
        check: the check; None if there is nothing to check, or if no check could be started.
        verdict: the verdict if it needs no check.
        reason: why there is no check.
    """

    answer: str
    place: SpanPlace
    started: float
    check: Check | None = None
    verdict: Verdict = "unchecked"
    reason: str = ""


class Decider:
    """Decides about answers. Safe to use from several threads and event loops.

    Args:
        options: what happens to an answer.
        checker: runs the metrics.
        spans: writes the spans of decisions.
        asks_judge: True if one of the metrics asks a judge.
    """

    def __init__(self, options: GuardOptions, checker: Checker, spans: GuardSpans, *, asks_judge: bool) -> None:
        self.options = options
        self._checker = checker
        self._spans = spans
        self._asks_judge = asks_judge
        self._counts: Counter[str] = Counter()
        self._counting = ForkSafeLock()

    def stats(self) -> dict[str, int]:
        """Return how many decisions there were, in all, by verdict and by action."""
        with self._counting.lock:
            counts = dict(self._counts)
        names = ("decisions", *get_args(Verdict), *get_args(Action))
        return {name: counts.get(name, 0) for name in names}

    def decide(
        self,
        answer: str,
        evidence: Evidence,
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
        begun = self._begin(answer, evidence)
        if begun.check is not None:
            # Returns at the timeout too; the verdict then is "unchecked".
            begun.check.arrival.wait()
        decision = self._decision(begun, attempt, may_regenerate)
        if _is_reported(decision, final):
            self._write_span(decision, begun)
            self._report(decision)
        return _unless_raised(decision)

    async def adecide(
        self,
        answer: str,
        evidence: Evidence,
        *,
        attempt: int = 1,
        may_regenerate: bool = False,
        final: bool = True,
    ) -> GuardDecision:
        """Check an answer and decide, without blocking the event loop; see :meth:`decide`."""
        begun = self._begin(answer, evidence)
        if begun.check is not None:
            try:
                await begun.check.arrival
            except BaseException:  # the caller was cancelled and does not wait any longer
                begun.check.give_up()
                raise
        decision = self._decision(begun, attempt, may_regenerate)
        if _is_reported(decision, final):
            await self._write_span_elsewhere(decision, begun)
            self._report(decision)
        return _unless_raised(decision)

    # -- the steps of a decision

    def _begin(self, answer: str, evidence: Evidence) -> _Begun:
        place = SpanPlace(evidence.recording)
        started = perf_counter()
        known = self._known_verdict(answer)
        if known is not None:
            return _Begun(answer=answer, place=place, started=started, verdict=known)
        check = self._checker.start(evidence, answer)
        if isinstance(check, str):
            return _Begun(answer=answer, place=place, started=started, reason=check)
        return _Begun(answer=answer, place=place, started=started, check=check)

    def _known_verdict(self, answer: str) -> Verdict | None:
        """Return the verdict that needs no model: a refusal passes even where every model hangs."""
        said = _CITED.sub("", answer).strip()
        if said == self.options.fallback.strip() or says_nothing(said):
            return "refusal"
        # A judge can tell whether "Yes." is right. Words cannot.
        return "no_claims" if not self._asks_judge and not _has_content(said) else None

    def _decision(self, begun: _Begun, attempt: int, may_regenerate: bool) -> GuardDecision:
        check = begun.check
        verdict, reason = begun.verdict, begun.reason
        if check is not None:
            verdict, reason = verdict_of(check, self._checker.thresholds, self.options)
        action = self._action(verdict, may_regenerate)
        return GuardDecision(
            verdict=verdict,
            action=action,
            answer=begun.answer if action in ("passed", "flagged") else self.options.fallback,
            checked=begun.answer,
            reason=reason,
            results=() if check is None else tuple(check.results),
            seconds=perf_counter() - begun.started,
            attempt=attempt,
        )

    def _action(self, verdict: Verdict, may_regenerate: bool) -> Action:
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

    def _write_span(self, decision: GuardDecision, begun: _Begun) -> None:
        self._spans.write(decision, None if begun.check is None else begun.check.turn, begun.place)

    async def _write_span_elsewhere(self, decision: GuardDecision, begun: _Begun) -> None:
        """Write the span; on another thread if texts are redacted, which may take a while."""
        if not self._checker.privacy_of(begun.place.recording).active:
            self._write_span(decision, begun)
            return
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(deferred_executor(), self._write_span, decision, begun)
        await asyncio.wait([writing], timeout=self.options.timeout)

    def _report(self, decision: GuardDecision) -> None:
        with self._counting.lock:
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


def _is_reported(decision: GuardDecision, final: bool) -> bool:
    """Return True unless the decision is about the beginning of a stream that passes."""
    return final or decision.verdict in ("unsupported", "unchecked")


def _unless_raised(decision: GuardDecision) -> GuardDecision:
    if decision.action == "raised":
        raise AnswerBlockedError(f"the guard blocked the answer: {decision.reason}", decision)
    return decision


def _has_content(text: str) -> bool:
    """Return True if a text has a word that a passage could have, and not only function words."""
    return len(text) > _SHORT or any(word.is_content for word in weighed_words(text))
