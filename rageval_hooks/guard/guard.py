"""The guard: what users make and call. It is a runnable wherever LangChain is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.errors import requires
from rageval_hooks.guard import checking, options
from rageval_hooks.guard.answers import with_decision
from rageval_hooks.guard.options import GuardDecision, GuardOptions
from rageval_hooks.guard.span import GuardSpans
from rageval_hooks.guard.streams import GuardedStream
from rageval_hooks.integrations.capture.passages import PassageLike
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.judges.resolve import resolve_judge
from rageval_hooks.metrics.base import AnyMetric
from rageval_hooks.models import Models
from rageval_hooks.online.build import resolve_metrics, within_budget
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.results import Thresholds
from rageval_hooks.privacy import Redact
from rageval_hooks.runtime.copying import CopiedAsItself
from rageval_hooks.score import VERDICT
from rageval_hooks.settings import FORMULA, ModelSettings, Settings
from rageval_hooks.turn import Passage, Turn

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from llama_index.core.base.base_query_engine import BaseQueryEngine
    from opentelemetry.trace import TracerProvider

    from rageval_hooks.guard.langchain import GuardedChain
    from rageval_hooks.guard.llama_index import GuardedQueryEngine
    from rageval_hooks.guard.middleware import GuardMiddleware

    _Base = Runnable[Any, Any]
else:
    try:
        # `chain | guard` accepts nothing but a runnable.
        from langchain_core.runnables import Runnable

        _Base = Runnable[Any, Any]
    except ImportError:
        _Base = object


_SCORES: Final = ("faithfulness", "unsupported_facts")
_SCORES_OF_MODEL: Final = ("groundedness", "unsupported_facts")
"""What the verdict follows from, without and with a grounding model."""

_BEHIND: Final = "chain | guard"


class GroundingGuard(CopiedAsItself, _Base):
    """Checks answers against their passages, and decides what the user gets.

    As a plain function: ``guard(answer, passages)`` or ``guard.check(…)``. With LangChain: ``chain | guard``,
    ``guard.wrap(chain)``, ``create_agent(…, middleware=[guard.middleware()])``. With LlamaIndex:
    ``guard.wrap_query_engine(engine)``. Works with and without :func:`rageval_hooks.instrument`.

    The passages are those of the turn that is being captured, else those that the caller or a key of the chain's output
    names. A refusal always passes. Each decision is a span of kind GUARDRAIL below the current span.

    Args:
        metrics: names, classes or instances; by default ``verdict``, which blocks an answer if it is bad. Other
            metrics block by a threshold.
        threshold: the answer is blocked if any score is worse: one number for all scores from 0 to 1, or numbers by
            score name. Without ``metrics``, these are thresholds of ``faithfulness`` and ``unsupported_facts``.
        on_fail: what happens to an unsupported answer. ``"flag"``: it passes, and the decision is recorded.
            ``"replace"``: the user gets ``fallback``. ``"raise"``: :class:`AnswerBlockedError`. ``"regenerate"``: the
            model answers again, at most ``max_regenerations`` times, then ``fallback``; in ``wrap()`` and
            ``middleware()`` only.
        fallback: the text that replaces a blocked answer.
        on_error: what happens if the check fails, takes too long or has no passages. ``"open"``: the answer passes.
            ``"closed"``: it is treated like an unsupported one.
        timeout_ms: the longest that a check may add.
        max_regenerations: how often an answer may be written again, 1 to 5.
        passage_keys: keys of a mapping that may hold passages, in order.
        answer_keys: keys of a mapping that may hold the answer, in order.
        question_keys: keys of a mapping that may hold the question, in order.
        models: see :func:`rageval_hooks.instrument`.
        judge: for metrics that ask a judge; see :func:`rageval_hooks.instrument`.
        judge_options: keyword arguments of the judge, if ``judge`` is a name.
        tracer_provider: where the spans go; None for where the captured turn goes, else the global one.
        capture_content: False keeps texts off the spans; None for the setting of the captured turn, else that of the
            environment.
        redact: what is removed from texts before they reach a span or a judge; see :func:`rageval_hooks.instrument`.
            None for the setting of the captured turn, else that of the environment.
        on_decision: called with every :class:`GuardDecision`.

    Raises:
        ConfigurationError: a value is wrong; the message says what is valid.

    Example:
        >>> guard = GroundingGuard(models="lexical", on_fail="replace", fallback="I do not know.")
        >>> guard("The pier was opened in 2019.", ["The new pier was opened in September 2019."])
        'The pier was opened in 2019.'
    """

    name: str | None = "GroundingGuard"

    def __init__(
        self,
        metrics: Iterable[AnyMetric] | str | None = None,
        threshold: float | Mapping[str, float] | None = None,
        *,
        on_fail: options.OnFail = "flag",
        fallback: str = options.DEFAULT_FALLBACK,
        on_error: options.OnError = "open",
        timeout_ms: float = 1000.0,
        max_regenerations: int = 1,
        passage_keys: Sequence[str] = options.PASSAGE_KEYS,
        answer_keys: Sequence[str] = options.ANSWER_KEYS,
        question_keys: Sequence[str] = options.QUESTION_KEYS,
        models: str | ModelSettings | Mapping[str, Any] | None = None,
        judge: object = None,
        judge_options: Mapping[str, Any] | None = None,
        tracer_provider: TracerProvider | None = None,
        capture_content: bool | None = None,
        redact: Redact | bool | None = None,
        on_decision: Callable[[GuardDecision], object] | None = None,
    ) -> None:
        self.options = GuardOptions.build(
            threshold=threshold,
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
        decides_by_verdict = names is None and threshold is None
        if names is None:
            names = _SCORES if settings.models.grounding == FORMULA else _SCORES_OF_MODEL
        if decides_by_verdict:
            names = (VERDICT, *names)
        self.metrics = tuple(resolve_metrics(names, asked, settings))
        self.thresholds: dict[str, float | None] = {}
        labels = Thresholds()
        if not decides_by_verdict:
            self.thresholds, labels = options.guard_thresholds(self.options.threshold, self.metrics, settings)
        self._models = Models(settings.models)
        engine = Engine(self.metrics, self._models, asked, thresholds=labels)
        spans = GuardSpans(self.options, self.thresholds, settings, tracer_provider, capture_content, redact)
        self.decider = checking.Decider(self.options, engine, self.thresholds, spans, self)
        # The passages of a turn that is sampled out are needed all the same.
        shared_recorder().guards.add(self)
        self._models.load(self._roles)

    @property
    def _roles(self) -> list[Any]:
        return sorted(self._models.needed(role for metric in self.metrics for role in metric.models))

    def warm_up(self) -> None:
        """Wait until what local checks need is loaded, so that the first check is not the one that waits for it.

        Raises:
            ModelUnavailableError: a model cannot be loaded.
        """
        for role in self._roles:
            getattr(self._models, role)(wait=True)
        # The first check imports modules and builds tables.
        answer = "The pier was not opened in May 2019: Anna Berg's ferry costs 9 euros."
        engine, turn = self.decider.engine, Turn(query="When?", passages=(Passage(text=answer),), response=answer)
        local, _ = engine.split(engine.job(turn))
        engine.evaluate_local(local, engine.analyze(turn).patient())

    def stats(self) -> dict[str, int]:
        """Return how many decisions there were, in all, by verdict and by action."""
        return self.decider.stats()

    # -- as a function

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
        return checking.drive(self.decider.decide(answer, _named_evidence(answer, passages, question)))

    async def acheck(
        self, answer: str, passages: Iterable[PassageLike] | PassageLike | None = None, *, question: str = ""
    ) -> GuardDecision:
        """Check an answer without blocking the event loop, asyncio's or trio's; see :meth:`check`."""
        self.options.without_regenerate("acheck()")
        return await checking.adrive(self.decider.decide(answer, _named_evidence(answer, passages, question)))

    # -- around an application

    def wrap(self, chain: Runnable[Any, Any], *, feedback_key: str | None = None) -> GuardedChain:
        """Return a chain whose answers are checked, and asked for again with ``on_fail="regenerate"``.

        Args:
            chain: the chain. It runs at most ``1 + max_regenerations`` times for one input.
            feedback_key: a key of the chain's input, a mapping, that gets the reason why an answer was blocked before
                the chain runs again; empty in the first run. None to run the chain with the same input.

        Raises:
            ConfigurationError: it is not a runnable.
            MissingDependencyError: LangChain is not installed.
        """
        with requires("langchain-core", "langchain", "a guard around a chain"):
            from rageval_hooks.guard.langchain import GuardedChain

        return GuardedChain(self.decider, chain, feedback_key)

    def middleware(self) -> GuardMiddleware:
        """Return the middleware for ``create_agent(…, middleware=[guard.middleware()])``.

        Raises:
            MissingDependencyError: LangChain is not installed.
        """
        with requires("langchain", "langchain", "the middleware of a guard"):
            from rageval_hooks.guard.middleware import GuardMiddleware

        return GuardMiddleware(self.decider)

    def wrap_query_engine(self, engine: BaseQueryEngine) -> GuardedQueryEngine:
        """Return a query engine of LlamaIndex whose answers are checked.

        Args:
            engine: the query engine, with or without streaming.

        Raises:
            ConfigurationError: ``on_fail`` is "regenerate".
            MissingDependencyError: LlamaIndex is not installed.
        """
        with requires("llama-index-core", "llama-index", "a guard around a query engine"):
            from rageval_hooks.guard.llama_index import GuardedQueryEngine

        return GuardedQueryEngine(self.decider, engine)

    # -- behind a chain of LangChain: chain | guard

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Check the output of a chain, and return what the user gets.

        Args:
            input: a string, a message, a mapping with an answer, or the state of an agent.
            config: the configuration of the run.
            kwargs: not used.

        Raises:
            AnswerBlockedError: the answer is blocked and ``on_fail`` is "raise".
            ConfigurationError: ``on_fail`` is "regenerate".
        """
        self.options.without_regenerate(_BEHIND)
        return self._call_with_config(lambda value: checking.drive(self._guarded(value)), input, config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Check the output of a chain without blocking the event loop; see :meth:`invoke`."""
        self.options.without_regenerate(_BEHIND)
        return await self._acall_with_config(lambda value: checking.adrive(self._guarded(value)), input, config)

    def transform(self, input: Iterator[Any], config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Check a stream: each sentence is held back until it is checked."""
        self.options.without_regenerate(_BEHIND)
        yield from self._transform_stream_with_config(input, GuardedStream(self.decider).run, config)

    async def atransform(
        self, input: AsyncIterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Check a stream without blocking the event loop; see :meth:`transform`."""
        self.options.without_regenerate(_BEHIND)
        async for chunk in self._atransform_stream_with_config(input, GuardedStream(self.decider).arun, config):
            yield chunk

    def _guarded(self, value: Any) -> checking.GuardSteps[Any]:
        answer = self.decider.answer_of(value)
        if answer is None:
            return value
        decision = yield from self.decider.decide(answer, self.decider.evidence_in(value))
        return with_decision(value, self.options.answer_keys, decision)


def _named_evidence(answer: object, passages: Any, question: str) -> checking.GuardEvidence:
    """Return the evidence that a caller of the plain functions names."""
    if not isinstance(answer, str):
        raise TypeError(f"a guard checks the text of an answer, not a value of type {type(answer).__name__}")
    if passages is None:
        return checking.GuardEvidence(question=question)
    found = checking.read_passages(passages)
    # An empty list is a search without results, and anything else without passages is a mistake.
    if not found and (not isinstance(passages, (str, Iterable)) or isinstance(passages, (Mapping, bytes))):
        raise TypeError(f"a guard takes texts, documents or nodes as passages, not {type(passages).__name__}")
    return checking.GuardEvidence(question=question, passages=tuple(found), named_only=True)
