"""The guard around a chain of LangChain: ``guard.wrap(chain)``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.guard.answers import question_in, with_decision
from rageval_hooks.guard.checking import Decider, GuardEvidence, GuardSteps, adrive, drive, read_passages
from rageval_hooks.guard.options import GuardDecision
from rageval_hooks.guard.streams import GuardedStream
from rageval_hooks.turn import Passage


class GuardedChain(Runnable[Any, Any]):
    """A chain whose answers are checked. With ``on_fail="regenerate"`` it runs again, a limited number of times.

    Args:
        decider: checks the answers.
        chain: the chain.
        feedback_key: see :meth:`GroundingGuard.wrap`.

    Raises:
        ConfigurationError: it is not a runnable.
    """

    name: str | None = "GroundingGuard"

    def __init__(self, decider: Decider, chain: Runnable[Any, Any], feedback_key: str | None) -> None:
        given: object = chain
        if not isinstance(given, Runnable):
            hint = " For a query engine of LlamaIndex, use wrap_query_engine()." if hasattr(chain, "query") else ""
            raise ConfigurationError(f"wrap() takes a runnable of LangChain, not a {type(chain).__name__}.{hint}")
        self._decider = decider
        self._chain = chain
        self._feedback_key = feedback_key

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the chain, check its answer, and return what the user gets."""

        def run(value: Any, config: RunnableConfig) -> Any:
            return drive(self._guarded(value, config, self._chain.invoke))

        return self._call_with_config(run, input, config)  # type: ignore[arg-type]

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the chain and check its answer without blocking the event loop."""

        async def run(value: Any, config: RunnableConfig) -> Any:
            return await adrive(self._guarded(value, config, self._chain.ainvoke))

        return await self._acall_with_config(run, input, config)  # type: ignore[arg-type]

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Run the chain and check its stream sentence by sentence."""

        def run(_: Iterator[Any], config: RunnableConfig) -> Iterator[Any]:
            attempt: _Attempt | None = _Attempt(self._decider, input, self._feedback_key)
            while attempt is not None:
                yield from attempt.stream.run(self._chain.stream(attempt.input, attempt.watched(config)))
                attempt = attempt.after_stream()

        yield from self._transform_stream_with_config(iter([input]), run, config)  # type: ignore[arg-type]

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Run the chain and check its stream without blocking the event loop."""

        async def only() -> AsyncIterator[Any]:
            yield input

        async def run(_: AsyncIterator[Any], config: RunnableConfig) -> AsyncIterator[Any]:
            attempt: _Attempt | None = _Attempt(self._decider, input, self._feedback_key)
            while attempt is not None:
                async for chunk in attempt.stream.arun(self._chain.astream(attempt.input, attempt.watched(config))):
                    yield chunk
                attempt = attempt.after_stream()

        async for chunk in self._atransform_stream_with_config(only(), run, config):  # type: ignore[arg-type]
            yield chunk

    def _guarded(self, value: Any, config: RunnableConfig, call: Callable[..., Any]) -> GuardSteps[Any]:
        attempt = _Attempt(self._decider, value, self._feedback_key)
        while True:
            output = yield partial(call, attempt.input, attempt.watched(config))
            answer = self._decider.answer_of(output)
            if answer is None:
                return output
            decision = yield from self._decider.decide(answer, attempt.evidence(output), attempt=attempt.number)
            if decision.action != "regenerated":
                return with_decision(output, self._decider.options.answer_keys, decision)
            attempt = attempt.next(decision)


class _PassageCollector(BaseCallbackHandler):
    """Collects what the retrievers of one run of a chain return, where nothing else captures the turn."""

    def __init__(self) -> None:
        self.passages: list[Passage] = []

    def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
        """Collect the documents."""
        self.passages += read_passages(documents)


class _Attempt:
    """One run of a chain. An answer is checked against what its own run has retrieved.

    Args:
        decider: checks the answers.
        value: the input of the chain.
        feedback_key: the key of the input under which the chain gets the reason of the last decision; None for no key.
        number: which run it is, from 1.
        feedback: the reason; empty in the first run.
    """

    def __init__(
        self, decider: Decider, value: Any, feedback_key: str | None, number: int = 1, feedback: str = ""
    ) -> None:
        self._decider = decider
        self._value = value
        self._feedback_key = feedback_key
        self._collector = _PassageCollector()
        self.input = value
        if feedback_key is not None and isinstance(value, Mapping):
            self.input = {**value, feedback_key: feedback}
        self.number = number
        self.stream = GuardedStream(decider, self.evidence(value), attempt=number)

    def next(self, decision: GuardDecision) -> _Attempt:
        """Return the attempt after a decision to ask again."""
        return _Attempt(self._decider, self._value, self._feedback_key, self.number + 1, decision.explanation)

    def after_stream(self) -> _Attempt | None:
        """Return the attempt after the stream; None if the stream was the last one."""
        return self.next(self.stream.regenerates) if self.stream.regenerates else None

    def watched(self, config: RunnableConfig) -> RunnableConfig:
        """Return the configuration of the run, in which retrievers are watched."""
        return merge_configs(config, {"callbacks": [self._collector]})

    def evidence(self, output: Any) -> GuardEvidence:
        """Return what the answer was written from: in the output, in the input, or what retrievers returned."""
        question = question_in(self._value, self._decider.options.question_keys)
        # Chains may hand the answer on alone: {"context": […], "question": "…"} goes in, and a string comes out.
        for value in (output, self._value):
            evidence = self._decider.evidence_in(value, question)
            if evidence.passages:
                return evidence
        # The same list object: retrievers of a stream have not run yet.
        return GuardEvidence(question=question, passages=self._collector.passages)
