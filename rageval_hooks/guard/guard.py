"""The guard without any framework: it checks an answer and decides what the user gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.guard.checking import Decider
from rageval_hooks.guard.evidence import GuardEvidence, read_passages
from rageval_hooks.guard.options import (
    ANSWER_KEYS,
    DEFAULT_FALLBACK,
    PASSAGE_KEYS,
    QUESTION_KEYS,
    GuardDecision,
    GuardOptions,
    OnError,
    OnFail,
    guard_thresholds,
)
from rageval_hooks.guard.span import GuardSpans
from rageval_hooks.integrations.capture.passages import PassageLike
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.judges.base import resolve_judge
from rageval_hooks.metrics.base import AnyMetric
from rageval_hooks.models import Models
from rageval_hooks.online.build import resolve_metrics, within_budget
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.thresholds import Thresholds
from rageval_hooks.privacy import PrivacyPolicy, Redact
from rageval_hooks.settings import FORMULA, ModelSettings, Settings

if TYPE_CHECKING:
    from llama_index.core.base.base_query_engine import BaseQueryEngine
    from opentelemetry.trace import TracerProvider

    from rageval_hooks.guard.llama_index import GuardedQueryEngine

__all__ = ["Guard"]

_METRICS: Final = ("faithfulness", "unsupported_facts")
_WITH_GROUNDING_MODEL: Final = ("groundedness", "unsupported_facts")
"""A grounding model gives `groundedness`, and was trained to decide."""


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
        if names is None:
            names = _METRICS if settings.models.grounding == FORMULA else _WITH_GROUNDING_MODEL
        self.metrics = tuple(resolve_metrics(names, asked, settings))
        self.thresholds = guard_thresholds(threshold, self.metrics, settings.models)
        self._models = Models(settings.models)
        given = {name: threshold for name, threshold in self.thresholds.items() if threshold is not None}
        engine = Engine(self.metrics, self._models, asked, thresholds=Thresholds(given))
        self._own_privacy = None if redact is None else PrivacyPolicy.of(settings, redact)
        self._usual_privacy = PrivacyPolicy.of(settings)
        spans = GuardSpans(
            self.options, self.thresholds, tracer_provider, capture_content, settings.capture_content, self._privacy_of
        )
        self.decider = Decider(self.options, engine, self.thresholds, spans, self._privacy_of)
        # The passages of a turn that is sampled out are needed all the same.
        shared_recorder().guards.add(self)
        self._models.load(self._roles)

    @property
    def _roles(self) -> list[Any]:
        return sorted(self._models.needed(role for metric in self.metrics for role in metric.models))

    def _privacy_of(self, recording: Recording | None) -> PrivacyPolicy:
        """Return what may leave the process: the guard's own policy, the captured turn's, or the environment's."""
        return self._own_privacy or (self._usual_privacy if recording is None else recording.owner.privacy)

    def warm_up(self) -> None:
        """Wait until the local models are loaded, so that the first check is not the one that waits for them.

        Raises:
            ModelUnavailableError: a model cannot be loaded.
        """
        for role in self._roles:
            getattr(self._models, role)(wait=True)

    def stats(self) -> dict[str, int]:
        """Return how many decisions there were, in all, by verdict and by action."""
        return self.decider.stats()

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
        return self.decider.decide(answer, _named_evidence(answer, passages, question))

    async def acheck(
        self, answer: str, passages: Iterable[PassageLike] | PassageLike | None = None, *, question: str = ""
    ) -> GuardDecision:
        """Check an answer without blocking the event loop, asyncio's or trio's; see :meth:`check`."""
        self.options.without_regenerate("acheck()")
        return await self.decider.adecide(answer, _named_evidence(answer, passages, question))


def _named_evidence(answer: object, passages: Any, question: str) -> GuardEvidence:
    """Return the evidence that a caller of the plain functions names."""
    if not isinstance(answer, str):
        raise TypeError(f"a guard checks the text of an answer, not a value of type {type(answer).__name__}")
    if passages is None:
        return GuardEvidence(question=question)
    found = read_passages(passages)
    # An empty list is a search without results, and anything else without passages is a mistake.
    if not found and (not isinstance(passages, (str, Iterable)) or isinstance(passages, (Mapping, bytes))):
        raise TypeError(f"a guard takes texts, documents or nodes as passages, not {type(passages).__name__}")
    return GuardEvidence(question=question, passages=tuple(found), named_only=True)
