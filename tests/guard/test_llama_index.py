"""A guard around a query engine of LlamaIndex."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.base.response.schema import AsyncStreamingResponse, PydanticResponse, StreamingResponse
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import QueryBundle
from pydantic import BaseModel

import rageval_hooks
from rageval_hooks import ConfigurationError
from rageval_hooks.testing import InMemoryExporter
from tests.guard.conftest import FALLBACK, UNSUPPORTED, Traced, make_guard
from tests.integrations.llama_index.fakes import index, llm

SUPPORTED = "The pier was opened in 2019."


def query(engine: Any) -> Any:
    return engine.query("When was the pier opened?")


def aquery(engine: Any) -> Any:
    return asyncio.run(engine.aquery("When was the pier opened?"))


def streamed(engine: Any) -> str:
    return "".join(query(engine).response_gen)


def astreamed(engine: Any) -> str:
    async def read() -> str:
        response = await engine.aquery("When was the pier opened?")
        return "".join([text async for text in response.response_gen])

    return asyncio.run(read())


@pytest.mark.parametrize("call", [query, aquery])
@pytest.mark.parametrize("rate", [1.0, 0.0, None])
def test_an_unsupported_answer_is_replaced(call: Callable[..., Any], rate: float | None, traced: Traced) -> None:
    """With a captured turn, with one that is sampled out, and without instrument()."""
    handle = None
    if rate is not None:
        handle = rageval_hooks.instrument(
            metrics=[], models="lexical", sample_rate=rate, tracer_provider=traced.provider
        )
    try:
        guard = make_guard(traced, on_error="closed")
        passed = call(guard.wrap_query_engine(index().as_query_engine(llm=llm(SUPPORTED))))
        assert (passed.response, passed.metadata["rageval_guard"]["verdict"]) == (SUPPORTED, "supported")
        blocked = call(guard.wrap_query_engine(index().as_query_engine(llm=llm(UNSUPPORTED))))
        assert (blocked.response, len(blocked.source_nodes)) == (FALLBACK, 2)
        assert handle is None or handle.flush(10)
        assert handle is None or handle.stats()["open_runs"] == 0
    finally:
        if handle is not None:
            handle.shutdown()
    assert [span.attributes["rageval.guard.verdict"] for span in traced.decisions] == ["supported", "unsupported"]


@pytest.mark.parametrize("read", [lambda engine: query(engine).response, streamed, astreamed])
@pytest.mark.parametrize(
    ("answer", "seen", "verdict", "action", "blocked"),
    [(SUPPORTED, SUPPORTED, "good", "passed", None), (UNSUPPORTED, FALLBACK, "bad", "replaced", UNSUPPORTED)],
)
def test_the_captured_turn_says_what_the_guard_did(
    read: Callable[..., str], answer: str, seen: str, verdict: str, action: str, blocked: str | None
) -> None:
    """Also of a stream, which is checked when it is read: the turn has what the user saw, and the blocked answer."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(exporters=[exporter], models="lexical") as handle:
        engine = index().as_query_engine(llm=llm(answer), streaming=read in (streamed, astreamed))
        assert read(make_guard().wrap_query_engine(engine)) == seen
        assert handle.flush(30)

    [evaluation] = exporter.evaluations
    guard = evaluation.turn.guard
    assert guard is not None
    assert (evaluation.turn.response, guard.action, guard.blocked_answer) == (seen, action, blocked)
    assert [result.label for result in evaluation.results if result.name == "verdict"] == [verdict]


@pytest.mark.parametrize("read", [streamed, astreamed])
@pytest.mark.parametrize("rate", [1.0, 0.0, None])
def test_a_stream_is_checked_sentence_by_sentence(read: Callable[..., str], rate: float | None) -> None:
    """What was shown before the unsupported sentence stays."""
    handle = None
    if rate is not None:
        handle = rageval_hooks.instrument(metrics=[], exporters=[], models="lexical", sample_rate=rate)
    try:
        guard = make_guard(on_error="closed")
        for answer, shown in ((SUPPORTED, SUPPORTED), (f"{SUPPORTED} {UNSUPPORTED}", f"{SUPPORTED} \n\n{FALLBACK}")):
            engine = index().as_query_engine(llm=llm(answer), streaming=True)
            assert read(guard.wrap_query_engine(engine)) == shown
        assert handle is None or handle.flush(10)
        assert handle is None or handle.stats()["open_runs"] == 0
    finally:
        if handle is not None:
            handle.shutdown()


class Text:
    """A stream of a blocked answer that never ends."""

    ended = False

    def __iter__(self) -> Text:
        return self

    def __next__(self) -> str:
        return f"{UNSUPPORTED} "

    def __aiter__(self) -> Text:
        return self

    async def __anext__(self) -> str:
        return next(self)


class ClosableText(Text):
    def close(self) -> None:
        self.ended = True

    async def aclose(self) -> None:
        self.ended = True


@pytest.mark.parametrize("kind", [Text, ClosableText])
@pytest.mark.parametrize("read", [streamed, astreamed])
def test_a_blocked_stream_is_closed_where_it_can_be(read: Callable[..., str], kind: type[Text]) -> None:
    """The model stops writing."""
    text = kind()

    class Engine(CustomQueryEngine):
        def custom_query(self, query_str: str) -> Any:
            return StreamingResponse(response_gen=text)

        async def acustom_query(self, query_str: str) -> Any:
            return AsyncStreamingResponse(response_gen=text)

    assert read(make_guard(on_error="closed").wrap_query_engine(Engine())) == FALLBACK
    assert text.ended == (kind is ClosableText)


def test_the_engine_inside_stays_within_reach() -> None:
    """Its retriever and its prompts."""
    engine = index().as_query_engine(llm=llm(SUPPORTED))
    guarded = make_guard().wrap_query_engine(engine)
    [expected, found] = [[node.text for node in one.retrieve(QueryBundle("pier"))] for one in (engine, guarded)]
    assert len(found) == 2
    assert found == expected
    assert "query_engine:response_synthesizer:text_qa_template" in guarded.get_prompts()


def test_a_structured_response_passes() -> None:
    """Its fields are no sentences."""

    class Opening(BaseModel):
        text: str

    class Engine(CustomQueryEngine):
        def custom_query(self, query_str: str) -> Any:
            return PydanticResponse(response=Opening(text=UNSUPPORTED))

    response = query(make_guard(on_error="closed").wrap_query_engine(Engine()))
    assert response.response == Opening(text=UNSUPPORTED)


def test_regenerate_is_an_error() -> None:
    """A query engine cannot be told why its answer was blocked."""
    with pytest.raises(ConfigurationError, match="wrap_query_engine"):
        make_guard(on_fail="regenerate").wrap_query_engine(index().as_query_engine(llm=llm()))
