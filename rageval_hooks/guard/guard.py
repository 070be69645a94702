"""The guard without any framework: it checks an answer and decides what the user gets."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.guard.checking import Check, Checker
from rageval_hooks.guard.decision import Action, AnswerBlockedError, GuardDecision, Verdict
from rageval_hooks.guard.evidence import Evidence, privacy_of, read_passages
from rageval_hooks.guard.options import (
    ANSWER_KEYS,
    DEFAULT_FALLBACK,
    PASSAGE_KEYS,
    QUESTION_KEYS,
    GuardOptions,
    OnError,
    OnFail,
    resolve_guard_thresholds,
)
from rageval_hooks.guard.span import GuardSpans, SpanPlace
from rageval_hooks.guard.verdict import verdict_of
from rageval_hooks.integrations.capture.passages import PassageLike
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.judges.resolve import resolve_judge
from rageval_hooks.metrics.base import AnyMetric
from rageval_hooks.models import Models
from rageval_hooks.online.build import resolve_metrics, within_budget
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.thresholds import Thresholds
from rageval_hooks.privacy import PrivacyPolicy, Redact
from rageval_hooks.runtime.executors import deferred_executor
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger
from rageval_hooks.settings import ModelSettings, Settings
from rageval_hooks.text.declining import says_nothing
from rageval_hooks.text.words import weighed_words

if TYPE_CHECKING:
    from llama_index.core.base.base_query_engine import BaseQueryEngine
    from opentelemetry.trace import TracerProvider

    from rageval_hooks.guard.llama_index import GuardedQueryEngine

__all__ = ["Guard"]

_limited_log = RateLimitedLogger(logging.getLogger(__name__))

_METRICS: Final = ("groundedness", "unsupported_facts")
_SHORT: Final = 200
"""Characters up to which an answer may have no content words, such as "Yes, it is."."""

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


class Guard:
    """Checks answers against their passages before the user sees them; see :class:`rageval_hooks.GroundingGuard`."""

    def __init__(
        self,
        metrics: Iterable[AnyMetric] | str | None = None,
        threshold: float | Mapping[str, float] | None = None,
        *,
        on_fail: OnFail = "flag",
        fallback: str = DEFAULT_FALLBACK,
        on_error: OnError = "open",
        timeout_ms: float = 1000.0,
        max_regenerations: int = 1,
        passage_keys: Sequence[str] = PASSAGE_KEYS,
        answer_keys: Sequence[str] = ANSWER_KEYS,
        question_keys: Sequence[str] = QUESTION_KEYS,
        models: str | ModelSettings | Mapping[str, Any] | None = None,
        judge: object = None,
        judge_options: Mapping[str, Any] | None = None,
        tracer_provider: TracerProvider | None = None,
        capture_content: bool | None = None,
        redact: Redact | bool | None = None,
        on_decision: Callable[[GuardDecision], object] | None = None,
    ) -> None:
        self.options = GuardOptions(
            on_fail=on_fail,
            fallback=fallback,
            on_error=on_error,
            timeout_ms=timeout_ms,
            max_regenerations=max_regenerations,
            passage_keys=passage_keys,
            answer_keys=answer_keys,
            question_keys=question_keys,
            on_decision=on_decision,
        )
        names = [name.strip() for name in metrics.split(",")] if isinstance(metrics, str) else metrics
        settings = Settings.build(models=models)
        asked = None if judge is None else within_budget(resolve_judge(judge, **(judge_options or {})), settings)
        self.metrics = tuple(resolve_metrics(_METRICS if names is None else names, asked, settings))
        self.thresholds = resolve_guard_thresholds(threshold, self.metrics, settings.models)
        self._models = Models(settings.models)
        given = {name: value for name, value in self.thresholds.items() if value is not None}
        engine = Engine(self.metrics, self._models, asked, thresholds=Thresholds(given))
        self._own_privacy = None if redact is None else PrivacyPolicy.of(settings, redact)
        self._usual_privacy = PrivacyPolicy.of(settings)
        self._checker = Checker(engine, self.options.timeout, self._privacy_of)
        self._spans = GuardSpans(
            self.options, self.thresholds, tracer_provider, capture_content, settings.capture_content, self._privacy_of
        )
        # The passages of a turn that is sampled out are needed all the same.
        shared_recorder().guards.add(self)
        self._models.load(self._roles)

    @property
    def _roles(self) -> list[Any]:
        return sorted(self._models.needed(role for metric in self.metrics for role in metric.models))

    def _privacy_of(self, recording: Recording | None) -> PrivacyPolicy:
        """Return what may leave the process: the guard's own policy, the captured turn's, or the environment's."""
        return self._own_privacy or privacy_of(recording, self._usual_privacy)

    def warm_up(self) -> None:
        """Wait until the local models are loaded, so that the first check is not the one that waits for them.

        Raises:
            ModelUnavailableError: a model cannot be loaded.
        """
        for role in self._roles:
            getattr(self._models, role)(wait=True)

    # -- frameworks

    def wrap_query_engine(self, engine: BaseQueryEngine) -> GuardedQueryEngine:
        """Return a query engine of LlamaIndex whose answers are checked.

        Args:
            engine: the query engine, with or without streaming.

        Raises:
            ConfigurationError: ``on_fail`` is "regenerate".
            MissingDependencyError: LlamaIndex is not installed.
        """
        from rageval_hooks.guard.llama_index import GuardedQueryEngine

        return GuardedQueryEngine(self, engine)

    # -- plain functions

    def __call__(
        self, answer: str, passages: Iterable[PassageLike] | PassageLike | None = None, *, question: str = ""
    ) -> str:
        """Return what the user gets: the answer, or the fallback. See :meth:`check`."""
        return self.check(answer, passages, question=question).answer

    def check(
        self, answer: str, passages: Iterable[PassageLike] | PassageLike | None = None, *, question: str = ""
    ) -> GuardDecision:
        """Check an answer, and wait for the decision at most ``timeout_ms``.

        Args:
            answer: the text of the answer.
            passages: what it was written from: texts, mappings with ``text``, documents or nodes. None for the passages
                of the turn that is being captured.
            question: the user's question, which some metrics read.

        Returns:
            The decision; its ``answer`` is what the user gets.

        Raises:
            AnswerBlockedError: the answer is blocked and ``on_fail`` is "raise".
            ConfigurationError: ``on_fail`` is "regenerate".
            TypeError: the answer is not a text, or something is not a passage.
        """
        self.options.without_regenerate("check()")
        return self.decide(answer, _named_evidence(answer, passages, question))

    async def acheck(
        self, answer: str, passages: Iterable[PassageLike] | PassageLike | None = None, *, question: str = ""
    ) -> GuardDecision:
        """Check an answer without blocking the event loop; see :meth:`check`."""
        self.options.without_regenerate("acheck()")
        return await self.adecide(answer, _named_evidence(answer, passages, question))

    # -- for the adapters of frameworks

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
        asks_judge = any(metric.asks_judge for metric in self.metrics)
        # A judge can tell whether "Yes." is right. Words cannot.
        return "no_claims" if not asks_judge and not _has_content(said) else None

    def _decision(self, begun: _Begun, attempt: int, may_regenerate: bool) -> GuardDecision:
        check = begun.check
        verdict, reason = begun.verdict, begun.reason
        if check is not None:
            verdict, reason = verdict_of(check, self.thresholds, self.options)
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
        fails = verdict == "unsupported" or (verdict == "unchecked" and self.options.on_error == "closed")
        if not fails:
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
        if not self._privacy_of(begun.place.recording).active:
            self._write_span(decision, begun)
            return
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(deferred_executor(), self._write_span, decision, begun)
        await asyncio.wait([writing], timeout=self.options.timeout)

    def _report(self, decision: GuardDecision) -> None:
        if decision.verdict == "unchecked":
            effect = "passed" if decision.action == "passed" else "blocked"
            _limited_log.warn(
                decision.reason, "a guard could not check an answer, which is %s: %s", effect, decision.reason
            )
        if self.options.on_decision is None:
            return
        try:
            self.options.on_decision(decision)
        except Exception as error:
            _limited_log.warn("on_decision", "on_decision of a guard raised %s", type(error).__name__, error=error)


def _is_reported(decision: GuardDecision, final: bool) -> bool:
    """Return True unless the decision is about the beginning of a stream that passes."""
    return final or decision.verdict in ("unsupported", "unchecked")


def _unless_raised(decision: GuardDecision) -> GuardDecision:
    if decision.action == "raised":
        raise AnswerBlockedError(f"the guard blocked the answer: {decision.reason}", decision)
    return decision


def _named_evidence(answer: object, passages: Any, question: str) -> Evidence:
    """Return the evidence that a caller of the plain functions names."""
    if not isinstance(answer, str):
        raise TypeError(f"a guard checks the text of an answer, not a value of type {type(answer).__name__}")
    if passages is None:
        return Evidence(question=question)
    found = read_passages(passages)
    # An empty list is a search without results, and anything else without passages is a mistake.
    if not found and (not isinstance(passages, (str, Iterable)) or isinstance(passages, (Mapping, bytes))):
        raise TypeError(f"a guard takes texts, documents or nodes as passages, not {type(passages).__name__}")
    return Evidence(question=question, passages=tuple(found), named_only=True)


def _has_content(text: str) -> bool:
    """Return True if a text has a word that a passage could have, and not only function words."""
    return len(text) > _SHORT or any(word.is_content for word in weighed_words(text, (0, len(text))))
