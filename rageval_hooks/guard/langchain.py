"""The guard as a runnable of LangChain: ``chain | guard``, and around a chain: ``guard.wrap(chain)``."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    BaseCallbackHandler,
    CallbackManagerForChainRun,
)
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.guard.answers import answer_in, question_in, with_answer
from rageval_hooks.guard.evidence import GuardEvidence, passages_under, read_passages
from rageval_hooks.guard.guard import Guard
from rageval_hooks.guard.options import GuardDecision
from rageval_hooks.guard.streams import GuardedStream
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.turn import Passage

if TYPE_CHECKING:
    from rageval_hooks.guard.middleware import GuardMiddleware

__all__ = ["GuardedChain", "RunnableGuard"]

_limited_log = RateLimitedLogger(logging.getLogger(__name__))


class RunnableGuard(Guard, Runnable[Any, Any]):
    """A guard that LangChain can put behind a chain; see :class:`rageval_hooks.GroundingGuard`."""

    name: str | None = "GroundingGuard"

    def wrap(self, chain: Runnable[Any, Any], *, feedback_key: str | None = None) -> GuardedChain:
        """Return a chain whose answers are checked, and asked for again with ``on_fail="regenerate"``.

        Args:
            chain: the chain. It runs at most ``1 + max_regenerations`` times for one input.
            feedback_key: a key of the chain's input, a mapping, that gets the reason why an answer was blocked before
                the chain runs again; empty in the first run. None to run the chain with the same input.

        Raises:
            ConfigurationError: it is not a runnable.
        """
        given: object = chain
        if not isinstance(given, Runnable):
            hint = " For a query engine of LlamaIndex, use wrap_query_engine()." if hasattr(chain, "query") else ""
            raise ConfigurationError(f"wrap() takes a runnable of LangChain, not a {type(chain).__name__}.{hint}")
        return GuardedChain(self, chain, feedback_key)

    def middleware(self) -> GuardMiddleware:
        """Return the middleware for ``create_agent(…, middleware=[guard.middleware()])``."""
        from rageval_hooks.guard.middleware import GuardMiddleware

        return GuardMiddleware(self)

    # -- one output

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
        self.options.without_regenerate("chain | guard")
        return self._call_with_config(self._guarded, input, config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Check the output of a chain without blocking the event loop; see :meth:`invoke`."""
        self.options.without_regenerate("chain | guard")
        return await self._acall_with_config(self._aguarded, input, config)

    def _guarded(self, value: Any) -> Any:
        answer = self.answer_of(value)
        if answer is None:
            return value
        return self.with_decision(value, self.decider.decide(answer, self.evidence_in(value)))

    async def _aguarded(self, value: Any) -> Any:
        answer = self.answer_of(value)
        if answer is None:
            return value
        return self.with_decision(value, await self.decider.adecide(answer, self.evidence_in(value)))

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

    def with_decision(self, value: Any, decision: GuardDecision) -> Any:
        """Return the output of a chain with what the guard hands on."""
        return with_answer(value, self.options.answer_keys, decision)

    # -- streams

    def transform(self, input: Iterator[Any], config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Check a stream: each sentence is held back until it is checked."""
        self.options.without_regenerate("chain | guard")
        yield from self._transform_stream_with_config(input, self._guarded_stream, config)

    async def atransform(
        self, input: AsyncIterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Check a stream without blocking the event loop; see :meth:`transform`."""
        self.options.without_regenerate("chain | guard")
        async for chunk in self._atransform_stream_with_config(input, self._aguarded_stream, config):
            yield chunk

    def _guarded_stream(self, chunks: Iterator[Any]) -> Iterator[Any]:
        return GuardedStream(self.decider).run(chunks)

    def _aguarded_stream(self, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        return GuardedStream(self.decider).arun(chunks)


class _PassageCollector(BaseCallbackHandler):
    """Collects what the retrievers of one run of a chain return, where nothing else captures the turn."""

    def __init__(self) -> None:
        self.passages: list[Passage] = []

    def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
        """Collect the documents."""
        self.passages += read_passages(documents)


class GuardedChain(Runnable[Any, Any]):
    """A chain whose answers are checked. With ``on_fail="regenerate"`` it runs again, a limited number of times.

    Args:
        guard: checks the answers.
        chain: the chain.
        feedback_key: see :meth:`RunnableGuard.wrap`.
    """

    name: str | None = "GroundingGuard"

    def __init__(self, guard: RunnableGuard, chain: Runnable[Any, Any], feedback_key: str | None) -> None:
        self._guard = guard
        self._chain = chain
        self._feedback_key = feedback_key

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the chain, check its answer, and return what the user gets."""
        return self._call_with_config(self._guarded, input, config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the chain and check its answer without blocking the event loop."""
        return await self._acall_with_config(self._aguarded, input, config)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Run the chain and check its stream sentence by sentence."""
        yield from self.transform(iter([input]), config)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Run the chain and check its stream without blocking the event loop."""

        async def only() -> AsyncIterator[Any]:
            yield input

        async for chunk in self.atransform(only(), config):
            yield chunk

    def transform(self, input: Iterator[Any], config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Run the chain on a streamed input, and check its stream sentence by sentence."""
        yield from self._transform_stream_with_config(input, self._guarded_stream, config)

    async def atransform(
        self, input: AsyncIterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Run the chain on a streamed input without blocking the event loop."""
        async for chunk in self._atransform_stream_with_config(input, self._aguarded_stream, config):
            yield chunk

    def _guarded(self, value: Any, run_manager: CallbackManagerForChainRun, config: RunnableConfig) -> Any:
        attempt = _Attempt(self._guard, value, self._feedback_key)
        while True:
            output = self._chain.invoke(attempt.input, attempt.watched(config))
            answer = self._guard.answer_of(output)
            if answer is None:
                return output
            decision = self._guard.decider.decide(answer, attempt.evidence(output), **attempt.number)
            if decision.action != "regenerated":
                return self._guard.with_decision(output, decision)
            attempt = attempt.next(decision)

    async def _aguarded(self, value: Any, run_manager: AsyncCallbackManagerForChainRun, config: RunnableConfig) -> Any:
        attempt = _Attempt(self._guard, value, self._feedback_key)
        while True:
            output = await self._chain.ainvoke(attempt.input, attempt.watched(config))
            answer = self._guard.answer_of(output)
            if answer is None:
                return output
            decision = await self._guard.decider.adecide(answer, attempt.evidence(output), **attempt.number)
            if decision.action != "regenerated":
                return self._guard.with_decision(output, decision)
            attempt = attempt.next(decision)

    def _guarded_stream(
        self, inputs: Iterator[Any], run_manager: CallbackManagerForChainRun, config: RunnableConfig
    ) -> Iterator[Any]:
        attempt: _Attempt | None = _Attempt(self._guard, reduce(add, inputs), self._feedback_key)
        while attempt is not None:
            stream = attempt.stream()
            yield from stream.run(self._chain.stream(attempt.input, attempt.watched(config)))
            attempt = attempt.next(stream.regenerates) if stream.regenerates else None

    async def _aguarded_stream(
        self, inputs: AsyncIterator[Any], run_manager: AsyncCallbackManagerForChainRun, config: RunnableConfig
    ) -> AsyncIterator[Any]:
        value = reduce(add, [part async for part in inputs])
        attempt: _Attempt | None = _Attempt(self._guard, value, self._feedback_key)
        while attempt is not None:
            stream = attempt.stream()
            async for chunk in stream.arun(self._chain.astream(attempt.input, attempt.watched(config))):
                yield chunk
            attempt = attempt.next(stream.regenerates) if stream.regenerates else None


class _Attempt:
    """One run of a chain. An answer is checked against what its own run has retrieved.

    Args:
        guard: checks the answers.
        value: the input of the chain.
        feedback_key: the key of the input under which the chain gets the reason of the last decision; None for no key.
        attempt: which run it is, from 1. The last one that the options allow is never asked for again.
        feedback: the reason; empty in the first run.
    """

    def __init__(
        self, guard: RunnableGuard, value: Any, feedback_key: str | None, attempt: int = 1, feedback: str = ""
    ) -> None:
        self._guard = guard
        self._value = value
        self._feedback_key = feedback_key
        self._collector = _PassageCollector()
        self.input = value
        if feedback_key is not None and isinstance(value, Mapping):
            self.input = {**value, feedback_key: feedback}
        self.number: dict[str, Any] = {"attempt": attempt, "may_regenerate": attempt < guard.options.attempts}

    def next(self, decision: GuardDecision) -> _Attempt:
        """Return the attempt after a decision to ask again."""
        return _Attempt(self._guard, self._value, self._feedback_key, self.number["attempt"] + 1, decision.reason)

    def watched(self, config: RunnableConfig) -> RunnableConfig:
        """Return the configuration of the run, in which retrievers are watched."""
        return merge_configs(config, {"callbacks": [self._collector]})

    def stream(self) -> GuardedStream:
        """Return the guard of the run's stream."""
        return GuardedStream(self._guard.decider, self.evidence(self._value), **self.number)

    def evidence(self, output: Any) -> GuardEvidence:
        """Return what the answer was written from: in the output, in the input, or what retrievers returned."""
        question = question_in(self._value, self._guard.options.question_keys)
        evidence = self._guard.evidence_in(output, question)
        # Chains may hand the answer on alone: {"context": […], "question": "…"} goes in, and a string comes out.
        if not evidence.passages and isinstance(self._value, Mapping):
            evidence = self._guard.evidence_in(self._value, question)
        # The same list object: retrievers of a stream have not run yet.
        return evidence if evidence.passages else GuardEvidence(question=question, passages=self._collector.passages)
