"""A streamed turn ends with the last piece of its answer, or when its reader stops. The query's span ends earlier."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
from llama_index.core import get_response_synthesizer
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.llama_index.streams import when_dropped
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import NestingLLM, OutOfOrderError, ScriptedRetriever, index, llm

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


def streaming(model: Any, **options: Any) -> Any:
    return index().as_query_engine(llm=model, similarity_top_k=2, streaming=True, **options)


def in_a_loop(engine: Any, read: Callable[[Any], Any]) -> None:
    async def main() -> None:
        await read(await engine.aquery(QUESTION))

    asyncio.run(main())


async def read_all(response: Any) -> None:
    assert "".join([text async for text in response.async_response_gen()]).strip() == ANSWER


WAYS: dict[str, Callable[[Any], Any]] = {
    "response_gen": lambda engine: list(engine.query(QUESTION).response_gen),
    "str": lambda engine: str(engine.query(QUESTION)),
    "get_response": lambda engine: engine.query(QUESTION).get_response(),
    "print_response_stream": lambda engine: engine.query(QUESTION).print_response_stream(),
    "async_response_gen": lambda engine: in_a_loop(engine, read_all),
    "async get_response": lambda engine: in_a_loop(engine, lambda response: response.get_response()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["compact", "refine", "tree_summarize"])
def test_a_stream_that_is_read_to_its_end(captured: Captured, mode: str, way: str) -> None:
    """The turn has the whole answer, the model's call, its tokens and its times, however it is read."""
    WAYS[way](streaming(llm(), response_mode=mode))

    turn = captured.turn
    assert turn.status == "ok"
    assert turn.query == QUESTION
    assert turn.response == ANSWER
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]
    assert all(passage.in_prompt for passage in turn.passages)
    assert turn.model == "scripted-1-2026"
    calls = [step for step in turn.steps if step.kind == "llm"]
    assert all(call.complete and call.time_to_first_token is not None for call in calls)
    assert len(calls) == (2 if mode == "refine" else 1)
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.source) == (40 * len(calls), "provider")
    assert turn.timing is not None
    assert turn.timing.time_to_first_token is not None
    assert turn.timing.retrieval is not None
    assert turn.timing.retrieval < turn.timing.time_to_first_token <= turn.timing.total


def test_the_turn_is_not_over_before_the_last_word(captured: Captured) -> None:
    """Nothing is exported while the stream is read; everything is when it has ended."""
    words = streaming(llm()).query(QUESTION).response_gen
    for _ in ANSWER.split(" "):
        next(words)
        assert captured.turns == []
    assert next(words, None) is None

    assert captured.turn.response == ANSWER


def test_a_stream_that_is_read_on_another_thread(captured: Captured) -> None:
    """Web frameworks read each piece on any thread of a pool."""
    words = streaming(llm()).query(QUESTION).response_gen
    read: list[str] = []
    while (count := len(read)) < 5:
        thread = threading.Thread(target=lambda: read.append(next(words)))
        thread.start()
        thread.join()
        assert len(read) == count + 1
    assert list(words) == []

    turn = captured.turn
    assert turn.response == "".join(read)
    assert [step.kind for step in turn.steps] == ["retriever", "llm"]


@pytest.mark.parametrize("way", ["close", "drop", "never begun"])
def test_a_reader_that_stops_early(captured: Captured, way: str) -> None:
    """The turn is cancelled, has the text that was read, and no error."""
    response = streaming(llm()).query(QUESTION)
    words = response.response_gen
    if way != "never begun":
        assert next(words) == "It "
    if way == "close":
        words.close()
    del response, words

    turn = captured.turn
    assert turn.status == "cancelled"
    assert turn.error is None
    assert turn.query == QUESTION
    assert turn.response == ("" if way == "never begun" else "It ")
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]
    assert [step.complete for step in turn.steps if step.kind == "llm"] == ([] if way == "never begun" else [False])
    assert turn.model == (None if way == "never begun" else "scripted-1-2026")


def test_an_async_reader_that_stops_early(captured: Captured) -> None:
    """The generator is closed when the response is garbage collected."""

    async def main() -> None:
        response = await streaming(llm()).aquery(QUESTION)
        words = response.async_response_gen()
        assert await anext(words) == "It "
        await words.aclose()

    asyncio.run(main())

    turn = captured.turn
    assert turn.status == "cancelled"
    assert turn.error is None
    assert turn.response == "It "


def test_an_async_reader_that_is_cancelled(captured: Captured) -> None:
    """A task that is cancelled while it reads ends its turn."""

    async def read(begun: asyncio.Event) -> None:
        response = await streaming(llm()).aquery(QUESTION)
        async for _ in response.async_response_gen():
            begun.set()
            await asyncio.Event().wait()

    async def main() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(read(begun))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())

    turn = captured.turn
    assert turn.status == "cancelled"
    assert turn.error is None
    assert turn.response == "It "


@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
def test_a_model_that_breaks_off(captured: Captured, asynchronous: bool) -> None:
    """The call and the turn have the error and the text until then. The reader gets the same exception."""
    engine = streaming(llm(fails_after=2))
    with pytest.raises(OutOfOrderError):
        in_a_loop(engine, read_all) if asynchronous else list(engine.query(QUESTION).response_gen)

    turn = captured.turn
    assert turn.status == "error"
    assert turn.error is not None
    assert (turn.error.type, turn.error.message) == ("OutOfOrderError", "the line went dead")
    assert turn.response == "It was "
    [call] = [step for step in turn.steps if step.kind == "llm"]
    assert call.error is not None
    assert call.error.type == "OutOfOrderError"


@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
def test_a_model_class_that_nests_its_streams_is_counted_once(captured: Captured, asynchronous: bool) -> None:
    """``astream_chat`` reads ``stream_chat`` when it is read itself, outside of its span."""
    engine = streaming(NestingLLM())
    in_a_loop(engine, read_all) if asynchronous else list(engine.query(QUESTION).response_gen)

    turn = captured.turn
    assert turn.response.strip() == ANSWER
    assert [step.kind for step in turn.steps] == ["retriever", "llm"]
    assert turn.usage is not None
    assert turn.usage.input_tokens == 40


def test_nothing_retrieved(captured: Captured) -> None:
    """The synthesizer streams a fixed text without calling a model."""
    engine = RetrieverQueryEngine.from_args(ScriptedRetriever(lambda query: []), llm=llm(), streaming=True)
    assert str(engine.query(QUESTION)) == "Empty Response"

    turn = captured.turn
    assert turn.response == "Empty Response"
    assert turn.passages == ()
    assert turn.has_retrieval


def test_a_synthesizer_by_hand(captured: Captured) -> None:
    """The root itself returns the stream."""
    nodes = index().as_retriever(similarity_top_k=1).retrieve(QUESTION)
    response = get_response_synthesizer(llm=llm(), streaming=True).synthesize(QUESTION, nodes=nodes)
    "".join(response.response_gen)

    _, turn = captured.turns
    assert turn.response == ANSWER
    assert [step.kind for step in turn.steps] == ["llm"]


@pytest.mark.parametrize("handed_on", ["response", "generator", "model"])
def test_a_function_of_the_applications_own_that_streams(captured: Captured, handed_on: str) -> None:
    """The function may return the response, its generator, or a model's stream."""
    engine, model, retriever = streaming(llm()), llm(), index().as_retriever(similarity_top_k=2)

    @get_dispatcher().span
    def answer(question: str) -> Any:
        if handed_on == "model":
            texts = [node.text for node in retriever.retrieve(question)]
            return model.stream_complete("\n".join(texts))
        response = engine.query(question)
        return response if handed_on == "response" else response.response_gen

    result = answer(QUESTION)
    list(result.response_gen if handed_on == "response" else result)
    del result

    turn = captured.turn
    assert turn.name == "answer"
    assert turn.query == QUESTION
    assert turn.response == ANSWER
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]
    assert all(passage.in_prompt for passage in turn.passages)
    assert [step.kind for step in turn.steps] == ["retriever", "llm"]


class StreamingFlow(Workflow):
    """A workflow whose result is a stream."""

    engine: Any = None

    @step
    async def answer(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await self.engine.aquery(ev.question))


@pytest.mark.parametrize("read", [True, False], ids=["read", "dropped"])
def test_a_workflow_that_streams(captured: Captured, read: bool) -> None:
    """The turn ends with the last piece of the result, after the workflow itself."""

    async def main() -> None:
        flow = StreamingFlow()
        flow.engine = streaming(llm())
        response = await flow.run(question=QUESTION)
        if read:
            await read_all(response)

    asyncio.run(main())

    turn = captured.turn
    assert turn.name == "StreamingFlow"
    assert turn.query == QUESTION
    assert (turn.status, turn.response) == (("ok", ANSWER) if read else ("cancelled", ""))


@pytest.mark.parametrize("end", ["read", "closed", "dropped"])
def test_a_bare_model_that_streams(captured: Captured, end: str) -> None:
    """A root without retrieval ends with its stream."""
    words: Any = llm().stream_complete("Hi")
    if end == "read":
        list(words)
    elif end == "closed":
        next(words)
        words.close()
    del words

    turn = captured.turn
    assert turn.status == ("ok" if end == "read" else "cancelled")
    assert turn.response == {"read": ANSWER, "closed": "It ", "dropped": ""}[end]


def test_what_was_switched_off_while_a_stream_was_read(captured: Captured) -> None:
    """The reader gets the rest of the stream, and the table is empty afterwards."""
    words = streaming(llm()).query(QUESTION).response_gen
    next(words)
    captured.handle.shutdown()
    assert "".join(words) == ANSWER.removeprefix("It ")

    assert captured.turns == []
    assert len(shared_recorder()) == 0


def test_streams_that_are_read_in_turns(captured: Captured) -> None:
    """The model calls that reading causes belong to the turn of their stream."""
    engines = [streaming(llm(lambda messages, n=n: f"answer {n} ends here")) for n in range(4)]
    streams = [engine.query(f"question {n}").response_gen for n, engine in enumerate(engines)]
    for _ in range(5):
        for words in streams:
            next(words, None)

    assert [(turn.query, turn.response) for turn in captured.turns] == [
        (f"question {n}", f"answer {n} ends here") for n in range(4)
    ]
    assert all(f"question {n}" in turn.prompt[-1].content for n, turn in enumerate(captured.turns))


def test_a_span_of_the_reader_stays_his_own(captured: Captured) -> None:
    """While a stream is read, the reader's own current span is unchanged."""
    from llama_index_instrumentation.span import active_span_id

    words = streaming(llm()).query(QUESTION).response_gen
    for _ in words:
        assert active_span_id.get() is None


WRITTEN: ContextVar[int] = ContextVar("written", default=0)
READ: ContextVar[int] = ContextVar("read", default=0)


@pytest.mark.parametrize("sample_rate", [None, 0.0, 1.0])
def test_a_generator_and_its_reader_share_a_context(sample_rate: float | None) -> None:
    """Each sees the context variables that the other sets."""
    seen = []

    class Counting(NestingLLM):
        def _generate(self) -> Iterator[CompletionResponse]:
            for piece in super()._generate():
                WRITTEN.set(WRITTEN.get() + 1)
                seen.append(READ.get())
                yield piece

    def read() -> int:
        pieces = streaming(Counting()).query(QUESTION).response_gen
        for number, _ in enumerate(pieces, start=1):
            READ.set(number)
        return WRITTEN.get()

    if sample_rate is None:
        counted = copy_context().run(read)
    else:
        with rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()], sample_rate=sample_rate):
            counted = copy_context().run(read)

    assert counted == len(ANSWER.split(" "))
    assert seen == list(range(counted))


def test_a_stream_that_cannot_be_watched() -> None:
    """An iterator of the application's own may have no weak references: only its end is noticed."""
    assert when_dropped(iter(["It ", "is."]), lambda: None) is None
