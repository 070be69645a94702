"""The judge's own calls are neither traced nor evaluated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers.context import collect_runs
from langsmith.run_helpers import get_tracing_context
from langsmith.utils import get_env_var, tracing_is_enabled
from opentelemetry import baggage, context, trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.instrumentation.utils import is_http_instrumentation_enabled, is_instrumentation_enabled
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rageval_hooks.judges.langchain import LangChainJudge
from rageval_hooks.runtime.suppression import is_suppressed, quietly
from tests.judges.helpers import FIXED_NONCE, PROMPT, Grade, ask

pytestmark = pytest.mark.usefixtures("fixed_nonce")

application = ContextVar("application", default="default")


def look() -> dict[str, Any]:
    """Return what a call can see of its surroundings."""
    return {
        "muted": is_suppressed(),
        "application": application.get(),
        "span": trace.get_current_span().get_span_context().is_valid,
        "baggage": dict(baggage.get_all()),
        "instrumented": is_instrumentation_enabled() or is_http_instrumentation_enabled(),
        "language models instrumented": not context.get_value("suppress_language_model_instrumentation"),
        "openinference": not context.get_value(_SUPPRESS_INSTRUMENTATION_KEY),
        "langsmith": bool(tracing_is_enabled()) or get_tracing_context()["parent"] is not None,
    }


NOTHING = {
    "muted": True,
    "application": "default",
    "span": False,
    "baggage": {},
    "instrumented": False,
    "language models instrumented": False,
    "openinference": False,
    "langsmith": False,
}


@pytest.fixture
def langsmith(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """LangSmith is switched on; it remembers what it has read of the environment."""
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    get_env_var.cache_clear()
    yield
    monkeypatch.undo()
    get_env_var.cache_clear()


@pytest.mark.usefixtures("langsmith")
def test_a_call_runs_in_a_separate_context() -> None:
    """Inside, the application's span and variables are not visible, and instrumentation is suppressed."""
    seen: list[dict[str, Any]] = []

    def reply(_: Any) -> AIMessage:
        seen.append(look())
        return AIMessage(f'{{"nonce": "{FIXED_NONCE}", "grade": 1}}')

    async def main() -> dict[str, Any]:
        application.set("ours")
        context.attach(baggage.set_baggage("user", "1"))
        provider = TracerProvider()
        with provider.get_tracer("app").start_as_current_span("request"):
            await LangChainJudge(RunnableLambda(reply)).complete(PROMPT, Grade)
            return look()

    after = asyncio.run(main())
    assert seen == [NOTHING]
    assert (after["muted"], after["application"], after["span"], after["instrumented"]) == (False, "ours", True, True)


def test_threads_started_by_a_call_are_suppressed_too() -> None:
    """Threads inherit the suppression."""

    async def call() -> bool:
        return await asyncio.to_thread(is_suppressed)

    assert asyncio.run(quietly(call(), 5)) is True


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = pytest.importorskip("openinference.instrumentation.langchain").LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    instrumentor.uninstrument()


def test_other_instrumentations_make_no_spans_of_it(spans: InMemorySpanExporter) -> None:
    """OpenInference traces the application's calls, and not the judge's, even inside a chain."""
    model = GenericFakeChatModel(
        messages=iter([AIMessage(f'{{"nonce": "{FIXED_NONCE}", "grade": 1}}'), AIMessage("hello")])
    )
    judge = LangChainJudge(model)
    ask(judge)
    assert spans.get_finished_spans() == ()

    async def step(_: str) -> str:
        return str(
            (
                await LangChainJudge(
                    GenericFakeChatModel(messages=iter([AIMessage(f'{{"nonce": "{FIXED_NONCE}", "grade": 2}}')]))
                ).complete(PROMPT, Grade)
            ).value.grade
        )

    assert asyncio.run(RunnableLambda(step).ainvoke("x")) == "2"
    assert [span.name for span in spans.get_finished_spans()] == ["step"]
    model.invoke("hi")
    assert [span.name for span in spans.get_finished_spans()] == ["step", "GenericFakeChatModel"]


def test_runs_that_an_application_collects_have_none_of_it() -> None:
    """LangChain's own collectors hang on the context, too."""
    judge = LangChainJudge(RunnableLambda(lambda _: AIMessage(f'{{"nonce": "{FIXED_NONCE}", "grade": 1}}')))

    async def main() -> int:
        with collect_runs() as runs:
            await judge.complete(PROMPT, Grade)
            await RunnableLambda(str).ainvoke("x")
            return len(runs.traced_runs)

    assert asyncio.run(main()) == 1
