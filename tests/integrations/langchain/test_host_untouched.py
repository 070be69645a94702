"""The hook does not change the application: its other tracers, its event loop and its interpreter behave as before."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.callbacks import (
    AsyncCallbackManager,
    BaseCallbackHandler,
    CallbackManager,
)
from langchain_core.callbacks.manager import atrace_as_chain_group, trace_as_chain_group
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnablePassthrough
from langchain_core.runnables.config import merge_configs
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.context import collect_runs
from langchain_core.tracers.schemas import Run as TracedRun

import rageval_hooks
from rageval_hooks import metric
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.integrations.langchain.handler import TurnHandler
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import PROMPT, join, lcel, model, retriever
from tests.warm import run_warm_script

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


def completion_chain() -> Runnable[Any, Any]:
    """A chain with a text-completion model."""
    context = {"context": retriever() | join, "question": RunnablePassthrough()}
    return context | PROMPT | FakeListLLM(responses=[ANSWER]) | StrOutputParser()


def chat_chain() -> Runnable[Any, Any]:
    """A chain with a chat model."""
    return lcel(ANSWER)


def straight_chain() -> Runnable[Any, Any]:
    """A chain without a parallel step, which LangChain runs on threads that it waits for."""
    prompt = RunnableLambda(lambda documents: PROMPT.invoke({"context": join(documents), "question": QUESTION}))
    return retriever() | prompt | model(ANSWER) | StrOutputParser()


CHAINS: dict[str, Callable[[], Runnable[Any, Any]]] = {"text model": completion_chain, "chat model": chat_chain}


# --------------------------------------------------------------------------- other tracers


class InlineTracer(BaseTracer):
    """A tracer that runs inline, as LangSmith's does."""

    run_inline = True

    def __init__(self) -> None:
        super().__init__()
        self.traced: list[TracedRun] = []

    def _persist_run(self, run: TracedRun) -> None:
        self.traced.append(run)


def tree(run: TracedRun) -> Any:
    """Return a run and the runs under it as a tracer sees them. Parallel runs start in any order."""
    return run.run_type, run.name, sorted(tree(child) for child in run.child_runs)


async def collected(chain: Runnable[Any, Any]) -> Any:
    with collect_runs() as collector:
        await chain.ainvoke(QUESTION)
    return [tree(run) for run in collector.traced_runs]


async def traced_inline(chain: Runnable[Any, Any]) -> Any:
    tracer = InlineTracer()
    await chain.ainvoke(QUESTION, {"callbacks": [tracer]})
    return [tree(run) for run in tracer.traced]


async def events(chain: Runnable[Any, Any]) -> Any:
    return [(event["event"], event["name"]) async for event in chain.astream_events(QUESTION, version="v2")]


async def log(chain: Runnable[Any, Any]) -> Any:
    return [operation["path"] async for patch in chain.astream_log(QUESTION) for operation in patch.ops]


async def sync_collected(chain: Runnable[Any, Any]) -> Any:
    with collect_runs() as collector:
        chain.invoke(QUESTION)
    return [tree(run) for run in collector.traced_runs]


VIEWS = {
    "collect_runs": collected,
    "an inline tracer": traced_inline,
    "astream_events": events,
    "astream_log": log,
    "collect_runs, sync": sync_collected,
}


@pytest.mark.filterwarnings("ignore:astream_log is deprecated")
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("view", VIEWS)
def test_other_tracers_see_the_same_with_the_hook(view: str, chain: str) -> None:
    """No run and no event is lost or added."""
    without = asyncio.run(VIEWS[view](CHAINS[chain]()))
    with rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()]):
        hooked = asyncio.run(VIEWS[view](CHAINS[chain]()))

    assert sorted(hooked) == sorted(without)
    assert hooked


def test_a_bare_text_model_is_traced(captured: Captured) -> None:
    """``collect_runs`` has the run of a text-completion model that is awaited directly."""

    async def main() -> int:
        with collect_runs() as collector:
            await FakeListLLM(responses=["foo"]).ainvoke("x")
        return len(collector.traced_runs)

    assert asyncio.run(main()) == 1


def test_a_text_model_next_to_an_inline_tracer_is_captured(captured: Captured) -> None:
    """LangChain reports only the end of its run, so the turn has no step of the model. Its passages are unmarked."""
    asyncio.run(traced_inline(completion_chain()))

    turn = captured.turn
    assert turn.response == ANSWER
    assert [passage.in_prompt for passage in turn.passages] == [None] * len(turn.passages)


# --------------------------------------------------------------------------- managers


CALLBACKS = [
    name for name, member in inspect.getmembers(BaseCallbackHandler, inspect.isfunction) if name.startswith("on_")
]


@pytest.mark.parametrize("name", sorted(set(CALLBACKS) - {"on_retry", "on_custom_event"}))
def test_async_managers_await_each_callback(name: str) -> None:
    """An async manager would run a plain function on a thread pool."""
    handler = TurnHandler()

    assert inspect.iscoroutinefunction(getattr(handler, name))
    assert not handler.run_inline


def test_an_awaited_chain_does_not_wait_for_the_threads_of_the_loop(captured: Captured) -> None:
    """The application's own blocking calls fill the thread pool of the event loop. Our callbacks do not need it."""
    release = threading.Event()

    async def ask() -> Any:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            loop.set_default_executor(pool)
            blocking = loop.run_in_executor(None, release.wait, 20)
            try:
                return await asyncio.wait_for((PROMPT | model()).ainvoke({"context": "", "question": "When?"}), 10)
            finally:
                release.set()
                await blocking

    assert asyncio.run(ask()).text == captured.turn.response


def test_sync_managers_get_no_coroutine() -> None:
    """A sync manager would run a coroutine on another thread and wait for it."""
    handler = TurnHandler()
    returned = handler.on_chain_end("answer", run_id="unknown")  # type: ignore[arg-type]

    assert not asyncio.iscoroutine(returned)


def ours(callbacks: Any) -> int:
    """Return how many of our handlers a manager or a list of handlers has."""
    handlers = callbacks if isinstance(callbacks, list) else callbacks.handlers
    return sum(isinstance(handler, TurnHandler) for handler in handlers)


def managers_inside(config: RunnableConfig) -> list[Any]:
    """Return the managers that a chain sees inside, with a handler attached to the whole chain or to its inner part."""
    seen: list[Any] = []

    def note(question: str, config: RunnableConfig) -> str:
        seen.append(config["callbacks"])
        return question

    inner = RunnableLambda(note)
    if not config["callbacks"]:
        inner = inner.with_config(callbacks=[CallbackHandler(metrics=[], exporters=[])])
    (RunnableLambda(note) | inner).invoke(QUESTION, config)
    return seen


@pytest.mark.parametrize("explicit", [False, True], ids=["handler on a part", "handler on the chain"])
def test_a_chain_sees_at_most_one_handler_of_ours(captured: Captured, explicit: bool) -> None:
    """This also holds if a handler is attached in addition to ``instrument()``."""
    own = [CallbackHandler(metrics=[], exporters=[])] if explicit else []
    seen = managers_inside({"callbacks": own})

    assert len(seen) == 2
    assert all(ours(manager) <= 1 for manager in seen)


def test_groups_and_merged_configurations_have_at_most_one_handler_of_ours(captured: Captured) -> None:
    """Sync and async managers are merged with handlers, with managers and with each other."""
    seen = []
    other = CallbackManager([BaseCallbackHandler()])
    with trace_as_chain_group("outer") as outer, trace_as_chain_group("inner", callback_manager=outer) as group:
        seen += [outer, group]
        for merged in (other, [BaseCallbackHandler()], group, CallbackManager.configure()):
            configs: list[RunnableConfig] = [{"callbacks": group}, {"callbacks": merged}]  # type: ignore[list-item]
            seen += [merge_configs(*configs)["callbacks"], merge_configs(*reversed(configs))["callbacks"]]

    async def main() -> None:
        async with atrace_as_chain_group("async") as group:
            seen.extend([group, group.merge(AsyncCallbackManager.configure())])

    asyncio.run(main())
    captured.handle.flush(10)

    assert len(seen) == 12
    assert [ours(manager) for manager in seen if ours(manager) > 1] == []


# --------------------------------------------------------------------------- event loops


returned = threading.Event()
"""Set unless a call is under way whose scores must not be waited for."""
returned.set()


@metric(requires=["response"], high=None)
def slow(turn: Turn) -> float:
    """Return 1 if the call returned first."""
    return float(returned.wait(20))


async def invoke_in_loop() -> None:
    """Call a chain synchronously in an event loop."""
    returned.clear()
    assert straight_chain().invoke(QUESTION) == ANSWER
    returned.set()


def slow_scores(exporter: InMemoryExporter) -> list[float]:
    return [score.value for evaluation in exporter.evaluations for score in evaluation.turn_scores()]


def nested() -> None:
    """Enter an event loop again while it runs, as a notebook does."""
    import nest_asyncio

    loop = asyncio.new_event_loop()
    nest_asyncio.apply(loop)

    async def outer() -> None:
        loop.run_until_complete(invoke_in_loop())

    try:
        loop.run_until_complete(outer())
    finally:
        loop.close()


def uvloop_run() -> None:
    import uvloop

    uvloop.run(invoke_in_loop())


LOOPS: dict[str, Callable[[], None]] = {
    "asyncio": lambda: asyncio.run(invoke_in_loop()),
    "uvloop": uvloop_run,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_sync_call_in_a_loop_does_not_wait_for_scores(loop: str) -> None:
    """The turn is evaluated in the background. Blockbuster would report a blocking call."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[slow], exporters=[exporter]) as handle:
        straight_chain().invoke(QUESTION)  # imports and the first start of threads are not measured
        assert handle.flush(10)
        with blockbuster_ctx():
            LOOPS[loop]()
        assert handle.flush(30)
        stats = handle.stats()

    assert slow_scores(exporter) == [1.0, 1.0]
    assert (stats["turns"], stats["scored"], stats["internal_errors"]) == (2, 2, 0)


NESTED_LOOP = """
from blockbuster import blockbuster_ctx

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.test_host_untouched import straight_chain, nested, slow, slow_scores

exporter = InMemoryExporter()
with rageval_hooks.instrument(metrics=[slow], exporters=[exporter]) as handle:
    straight_chain().invoke("warm up")
    assert handle.flush(10)
    with blockbuster_ctx():
        nested()
    assert handle.flush(30)
    stats = handle.stats()
assert slow_scores(exporter) == [1.0, 1.0]
assert (stats["turns"], stats["scored"], stats["internal_errors"]) == (2, 2, 0), stats
"""


def test_a_sync_call_in_a_nested_loop_does_not_wait_for_scores() -> None:
    """Runs with nest_asyncio, as in a notebook, and in a subprocess, because nest_asyncio patches asyncio."""
    run_warm_script(NESTED_LOOP)


def test_an_awaited_call_waits_for_its_scores_while_the_loop_goes_on() -> None:
    """``ainvoke`` returns when the inline scores are computed. Other tasks run meanwhile."""
    exporter = InMemoryExporter()
    ticks = threading.Semaphore(0)
    scored = threading.Event()

    @metric(requires=["response"], high=None)
    def slow(turn: Turn) -> float:
        """Take until other tasks of the loop have run ten times."""
        ran = all(ticks.acquire(timeout=60) for _ in range(10))
        scored.set()
        return float(ran)

    async def main() -> bool:
        async def tick() -> None:
            while True:
                await asyncio.sleep(0)
                ticks.release()

        ticking = asyncio.create_task(tick())
        await straight_chain().ainvoke(QUESTION)
        ticking.cancel()
        return scored.is_set()

    with rageval_hooks.instrument(
        metrics=[slow], exporters=[exporter], inline_budget_ms=60_000, on_evaluation=lambda evaluation: None
    ) as handle:
        with blockbuster_ctx():
            waited = asyncio.run(main())
        assert handle.flush(30)

    assert waited
    assert slow_scores(exporter) == [1.0]
    assert exporter.evaluations[0].turn.response == ANSWER


def test_a_sync_call_in_a_loop_starts_no_threads(captured: Captured) -> None:
    """The threads are started by the first call."""
    straight_chain().invoke(QUESTION)
    captured.handle.flush(10)

    async def main() -> set[str]:
        before = set(threading.enumerate())
        for _ in range(20):
            straight_chain().invoke(QUESTION)
        # LangChain runs the parts of a parallel step on further threads, which have ended by now.
        return {thread.name for thread in set(threading.enumerate()) - before}

    assert asyncio.run(main()) == set()


# --------------------------------------------------------------------------- the interpreter


def test_async_turns_add_no_exit_handlers() -> None:
    """``atexit`` keeps each function until the exit, so one per turn would fill the memory of a server."""
    chain = RunnableLambda(lambda question: retriever().invoke(question)) | RunnableLambda(lambda _: AIMessage(ANSWER))

    async def turns(number: int) -> None:
        for _ in range(number):
            await chain.ainvoke(QUESTION)

    with rageval_hooks.instrument(metrics=["latency"], exporters=[]) as handle:
        asyncio.run(turns(10))
        before = atexit._ncallbacks()  # type: ignore[attr-defined]
        asyncio.run(turns(200))
        after = atexit._ncallbacks()  # type: ignore[attr-defined]
        assert handle.flush(30)

    assert after == before
