"""Sampling applies to whole turns, never to parts of them, and each sampled-out turn is counted once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import Context, copy_context
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler, CallbackManager, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnablePassthrough
from langsmith.run_helpers import tracing_context
from langsmith.run_trees import RunTree
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever as LlamaIndexRetriever
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain.fakes import lcel, retriever
from tests.integrations.llama_index import fakes as llama_index

QUESTION = "When was the pier opened?"
OWN_ID = UUID("6f1c8a52-3d5b-4c0e-9b60-0d4a52e8a1f7")
"""As an application makes them, of version 4: LangChain's own are time-ordered."""
REQUEST_ID = UUID("0b7e4d19-58c2-4f6a-8d3e-92a1c4f07b65")
"""Never the id of a run: one that starts soon after a stream, under the stream's id, belongs to the stream."""


class Watched:
    """An instrumented process that evaluates a share of its turns."""

    def __init__(self, handle: rageval_hooks.Instrumentation, exporter: InMemoryExporter) -> None:
        self._handle = handle
        self._exporter = exporter

    @property
    def counted(self) -> tuple[int, int]:
        """The numbers of sampled and of sampled-out turns."""
        stats = self._handle.stats()
        return stats["turns"] - stats["sampled_out"] - stats["unsampled_traces"], stats["sampled_out"]

    @property
    def turns(self) -> list[Turn]:
        """The sampled turns."""
        assert self._handle.flush(10)
        return [evaluation.turn for evaluation in self._exporter.evaluations]

    @property
    def steps(self) -> list[list[str]]:
        """The kinds of the steps of each sampled turn."""
        return [[step.kind for step in turn.steps] for turn in self.turns]


@contextmanager
def watched(sample_rate: float, **settings: Any) -> Iterator[Watched]:
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(
        metrics=[], exporters=[exporter], sample_rate=sample_rate, spans="all", **settings
    ) as handle:
        yield Watched(handle, exporter)
        assert handle.flush(10)
        assert handle.stats()["internal_errors"] == 0
        assert len(shared_recorder()) == 0


async def _astream(chain: Any) -> None:
    async for _ in chain.astream(QUESTION):
        pass


CALLS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "invoke": (1, lambda chain: chain.invoke(QUESTION)),
    "ainvoke": (1, lambda chain: asyncio.run(chain.ainvoke(QUESTION))),
    "batch": (3, lambda chain: chain.batch([QUESTION] * 3)),
    "abatch": (3, lambda chain: asyncio.run(chain.abatch([QUESTION] * 3))),
    "stream": (1, lambda chain: list(chain.stream(QUESTION))),
    "astream": (1, lambda chain: asyncio.run(_astream(chain))),
}


@pytest.mark.parametrize("call", CALLS)
def test_each_turn_is_counted_once(call: str) -> None:
    """This holds for every way of calling a chain."""
    turns, run = CALLS[call]
    with watched(0.0) as process:
        run(lcel())

        assert process.counted == (0, turns)
        assert process.steps == []


BATCHES: dict[str, Callable[[Any, list[str]], Any]] = {
    "batch": lambda chain, questions: chain.batch(questions),
    "abatch": lambda chain, questions: asyncio.run(chain.abatch(questions)),
    "abatch, a few at a time": lambda chain, questions: asyncio.run(chain.abatch(questions, {"max_concurrency": 3})),
    "with_retry, abatch": lambda chain, questions: asyncio.run(chain.with_retry().abatch(questions)),
}


@pytest.mark.parametrize("way", BATCHES)
@pytest.mark.parametrize("sample_rate", [0.3, 1.0])
def test_each_turn_of_a_batch_is_decided_for_itself(way: str, sample_rate: float) -> None:
    """LangChain prepares all runs before the first one begins. Each has a separate span."""
    with watched(sample_rate) as process:
        BATCHES[way](lcel(), [f"{QUESTION} {number}" for number in range(100)])

        sampled, sampled_out = process.counted
        assert sampled + sampled_out == 100
        assert sampled == 100 if sample_rate == 1.0 else 5 < sampled < 60
        turns = process.turns
        assert len({(turn.span.trace_id, turn.span.span_id) for turn in turns if turn.span is not None}) == sampled
        assert len({turn.query for turn in turns}) == sampled


def test_a_nested_call_with_callbacks_of_its_own_is_part_of_the_turn() -> None:
    """LangChain separates such a call from its caller, but its answer belongs to the turn."""
    inner = lcel()
    chain = RunnableLambda(lambda question: inner.invoke(question, {"callbacks": [BaseCallbackHandler()]}))
    with watched(0.5) as process:
        for _ in range(100):
            chain.invoke(QUESTION)

        sampled, sampled_out = process.counted
        assert sampled + sampled_out == 100
        assert 20 < sampled < 80
        assert all({"retriever", "llm"} <= set(steps) for steps in process.steps)


@pytest.mark.parametrize("sample_rate", [0.0, 0.5, 1.0])
def test_a_nested_call_below_a_trace_of_langsmiths(sample_rate: float) -> None:
    """A call with separate callbacks has an unknown parent, but is part of the turn."""
    inner = lcel()

    def within(question: str) -> str:
        with tracing_context(parent=RunTree(name="outer", run_type="chain"), enabled=False):
            return str(inner.invoke(question, {"callbacks": []}))

    chain = RunnableLambda(within)
    with watched(sample_rate) as process:
        for _ in range(20):
            chain.invoke(QUESTION)

        assert sum(process.counted) == 20
        assert all({"retriever", "llm"} <= set(steps) for steps in process.steps)


@pytest.mark.parametrize("sample_rate", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("inside", ["langchain", "llama_index"])
def test_work_that_continues_after_its_turn_is_a_new_turn(inside: str, sample_rate: float) -> None:
    """A worker that a tool started asks new questions, whether its turn was sampled or not."""
    inner = lcel()
    engine = llama_index.index().as_query_engine(llm=llama_index.llm())
    contexts: list[Context] = []
    chain = RunnableLambda(lambda question: contexts.append(copy_context()) or question)
    with watched(sample_rate) as process:
        for _ in range(20):
            chain.invoke(QUESTION)
            if inside == "langchain":
                contexts[-1].run(inner.invoke, QUESTION, {"callbacks": []})
            else:
                contexts[-1].run(engine.query, QUESTION)

        assert sum(process.counted) == 40


def test_work_that_is_shared_by_turns_belongs_to_the_one_that_asked() -> None:
    """A worker has the context of the turn that started it, and gets the callbacks of other turns."""

    async def requests(process: Watched) -> None:
        inner = lcel()
        jobs: asyncio.Queue[Any] = asyncio.Queue()
        workers: list[asyncio.Task[None]] = []
        reached, done = asyncio.Event(), asyncio.Event()

        async def worker() -> None:
            while True:
                question, config, answer = await jobs.get()
                answer.set_result(await inner.ainvoke(question, config))

        async def node(question: str, config: RunnableConfig) -> Any:
            if not workers:
                workers.append(asyncio.create_task(worker()))
            answer = asyncio.get_running_loop().create_future()
            await jobs.put((question, {"callbacks": config["callbacks"]}, answer))
            return await answer

        async def first(question: str, config: RunnableConfig) -> Any:
            found = await node(question, config)
            reached.set()
            await done.wait()
            return found

        begun = asyncio.create_task(RunnableLambda(first).ainvoke(QUESTION))
        await reached.wait()
        for _ in range(30):
            await Context().run(asyncio.create_task, RunnableLambda(node).ainvoke(QUESTION))
        done.set()
        await begun
        workers[0].cancel()

    for _ in range(2):
        with watched(0.5) as process:
            asyncio.run(requests(process))

            assert sum(process.counted) == 31
            assert len(process.steps) == process.counted[0]
            assert all({"retriever", "llm"} <= set(steps) for steps in process.steps)


@pytest.mark.parametrize("sample_rate", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("parent", [REQUEST_ID, "a request's number"])
def test_a_manager_with_a_parent_of_the_applications_own(parent: Any, sample_rate: float) -> None:
    """An unknown parent does not make the call part of a sampled-out turn."""
    with watched(sample_rate) as process:
        for _ in range(20):
            lcel().invoke(QUESTION, {"callbacks": CallbackManager([], parent_run_id=parent)})

        assert sum(process.counted) == 20


@pytest.mark.parametrize("run_id", [OWN_ID, str(OWN_ID)])
def test_a_run_id_of_the_applications_own(run_id: Any) -> None:
    """UUIDs of any version work, and any other type that LangChain accepts."""
    outer = RunnableLambda(lambda question: lcel().invoke(question))
    for sample_rate in (0.0, 1.0):
        with watched(sample_rate) as process:
            outer.invoke(QUESTION, {"run_id": run_id})
            list(lcel().stream(QUESTION, {"run_id": run_id}))

            assert sum(process.counted) == 2


@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_instrumented_anew_in_the_middle_of_a_turn(before: float, after: float) -> None:
    """The rest of that turn is not captured."""
    stack = ExitStack()
    seen = []

    def anew(question: str) -> str:
        first.close()
        seen.append(stack.enter_context(watched(after)))
        return question

    chain = RunnablePassthrough() | RunnableLambda(anew) | RunnableLambda(lambda question: lcel().invoke(question))
    with ExitStack() as first:
        first.enter_context(rageval_hooks.instrument(metrics=[], exporters=["console"], sample_rate=before))
        chain.invoke(QUESTION)
    with stack:
        assert seen[0].counted == (0, 0)


@pytest.mark.parametrize("others", [0, 1])
def test_a_chain_in_a_context_that_was_born_in_an_unwatched_run(others: int) -> None:
    """The parent is unknown because it started before the instrumentation, not because it was sampled out."""
    seen = []

    def within(question: str) -> str:
        time.sleep(0.002)  # a run's id tells in which millisecond it began
        with watched(1.0 - others) as process:
            for _ in range(others):
                Context().run(lcel().invoke, question)
            lcel().invoke(question)
            seen.append(sum(process.counted))
        return question

    RunnableLambda(within).invoke(QUESTION)

    assert seen == [1 + others]


@pytest.mark.parametrize("sample_rate", [0.0, 0.5])
def test_a_chain_inside_of_a_llama_index_turn_that_is_sampled_out(sample_rate: float) -> None:
    """It is sampled out with the outer turn, and not counted separately."""

    class Asking(LlamaIndexRetriever):
        def _retrieve(self, query_bundle: Any) -> Any:
            lcel().invoke(query_bundle.query_str)
            return []

    engine = RetrieverQueryEngine.from_args(Asking(), llm=llama_index.llm())
    with watched(sample_rate) as process:
        for _ in range(40):
            engine.query(QUESTION)

        sampled, sampled_out = process.counted
        assert sampled + sampled_out == 40
        assert all("retriever" in steps and "llm" in steps for steps in process.steps)


def test_a_sampled_turn_is_whole_and_the_others_leave_no_piece() -> None:
    """About half of 200 turns are sampled. Each of them has all its steps."""
    with watched(0.5) as process:
        for _ in range(200):
            lcel().invoke(QUESTION)

        sampled, sampled_out = process.counted
        assert sampled + sampled_out == 200
        assert 60 < sampled < 140
        assert len(process.steps) == sampled
        # Sorted, because the branches of a chain start on threads in either order.
        assert len({tuple(sorted(steps)) for steps in process.steps}) == 1
        assert {"retriever", "llm"} <= set(process.steps[0])


class Nested(BaseRetriever):
    """A runnable that calls another one with its callbacks, as retrievers do, and not in LangChain's own context."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return retriever().invoke(query, config={"callbacks": run_manager.get_child()})


class Threaded(BaseRetriever):
    """A runnable that calls another one on a thread without this thread's context."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        config: RunnableConfig = {"callbacks": run_manager.get_child()}
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: retriever().invoke(query, config=config)).result()


@pytest.mark.parametrize("kind", [Nested, Threaded])
def test_what_is_called_with_its_callers_callbacks_belongs_to_it(kind: type[BaseRetriever]) -> None:
    """This holds even if LangChain's context variable does not contain the caller."""
    with watched(0.5) as process:
        for _ in range(100):
            kind().invoke(QUESTION)

        sampled, sampled_out = process.counted
        assert sampled + sampled_out == 100
        assert 20 < sampled < 80
        assert process.steps == [["retriever", "retriever"]] * sampled


def test_llama_index_inside_of_a_turn_that_is_sampled_out() -> None:
    """It is sampled out with the outer turn, and not counted separately."""
    engine = llama_index.index().as_query_engine(llm=llama_index.llm())
    chain = RunnableLambda(lambda question: str(engine.query(question)))
    with watched(0.0) as process:
        chain.invoke(QUESTION)
        assert process.counted == (0, 1)

        engine.query(QUESTION)
        assert process.counted == (0, 2)

    with watched(0.5) as process:
        for _ in range(50):
            chain.invoke(QUESTION)

        sampled, sampled_out = process.counted
        assert sampled + sampled_out == 50
        assert all(steps.count("llm") == 1 and "retriever" in steps for steps in process.steps)


def test_a_handler_beside_it_takes_the_turn_over() -> None:
    """The sampling decision of ``instrument()`` does not apply to a handler on the chain."""
    mine = InMemoryExporter()
    handler = CallbackHandler(metrics=[], exporters=[mine])
    for sample_rate in (0.0, 1.0):
        with watched(sample_rate) as process:
            lcel().invoke(QUESTION, {"callbacks": [handler]})

            assert process.counted == (0, 0)
    assert handler.flush(10)
    assert len(mine.evaluations) == 2


def test_an_unsampled_trace_is_sampled_out_too() -> None:
    """It has a separate counter."""
    provider = TracerProvider(sampler=ALWAYS_OFF)
    with rageval_hooks.instrument(metrics=[], tracer_provider=provider) as handle:
        lcel().invoke(QUESTION)
        assert handle.flush(10)

        stats = handle.stats()
    assert (stats["turns"], stats["unsampled_traces"], stats["sampled_out"]) == (1, 1, 0)


def test_a_turn_under_a_trace_of_langsmiths_is_a_turn() -> None:
    """LangChain reports LangSmith's run as the parent, which the recorder does not know."""
    with watched(1.0) as process, tracing_context(parent=RunTree(name="outer", run_type="chain"), enabled=False):
        lcel().invoke(QUESTION)

        assert process.counted == (1, 0)
        [steps] = process.steps
        assert {"retriever", "llm"} <= set(steps)


def test_chains_after_the_instrumentation_has_ended_see_nothing() -> None:
    """langchain-core keeps the hook, which then does nothing."""
    with watched(1.0) as process:
        lcel().invoke(QUESTION)
    lcel().invoke(QUESTION)

    assert process.counted == (1, 0)
