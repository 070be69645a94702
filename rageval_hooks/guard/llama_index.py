"""The guard around a query engine of LlamaIndex."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import RESPONSE_TYPE, AsyncStreamingResponse, Response, StreamingResponse
from llama_index.core.schema import NodeWithScore, QueryBundle

from rageval_hooks.guard.answers import DECISION_KEY
from rageval_hooks.guard.checking import Decider, GuardEvidence, GuardSteps, adrive, drive, read_passages
from rageval_hooks.guard.streams import GuardedStream


class GuardedQueryEngine(BaseQueryEngine):
    """A query engine whose answers are checked before the user gets them.

    The passages are those of the turn that is being captured, else the source nodes of the response. The decision is in
    the response's metadata, under ``rageval_guard``; not for a stream, which begins before the decision.

    Args:
        decider: checks the answers.
        engine: the query engine.

    Raises:
        ConfigurationError: the guard's ``on_fail`` is "regenerate".
    """

    def __init__(self, decider: Decider, engine: BaseQueryEngine) -> None:
        decider.options.without_regenerate("wrap_query_engine()")
        super().__init__(getattr(engine, "callback_manager", None))
        self._decider = decider
        self._engine = engine

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {"query_engine": self._engine}

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Retrieve nodes with the engine inside."""
        return self._engine.retrieve(query_bundle)

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        return drive(self._guarded(query_bundle, self._engine.query(query_bundle)))

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        return await adrive(self._guarded(query_bundle, await self._engine.aquery(query_bundle)))

    def _guarded(self, query: QueryBundle, response: RESPONSE_TYPE) -> GuardSteps[RESPONSE_TYPE]:
        nodes = getattr(response, "source_nodes", None)
        evidence = GuardEvidence(question=query.query_str, passages=tuple(read_passages(nodes)))
        # A stream is checked when it is read, in whatever context that is.
        stream = GuardedStream(self._decider, evidence)
        if isinstance(response, AsyncStreamingResponse):
            return replace(response, response_gen=stream.arun(response.response_gen), response_txt=None)
        if isinstance(response, StreamingResponse):
            return replace(response, response_gen=stream.run(response.response_gen), response_txt=None)
        # A structured response has no text.
        if not isinstance(response, Response) or response.response is None:
            return response
        decision = yield from self._decider.decide(response.response, evidence)
        metadata = {**(response.metadata or {}), DECISION_KEY: decision.summary()}
        return replace(response, response=decision.answer, metadata=metadata)
