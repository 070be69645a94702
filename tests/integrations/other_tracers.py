"""Other tracers with the real packages, each in a context manager: their spans go to a provider while it is open."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import BaseCallbackManager
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

__all__ = ["LANGCHAIN", "LLAMA_INDEX", "Finished", "Tracer", "in_order", "recording_provider"]

NOWHERE = "http://127.0.0.1:9"

Config = dict[str, Any]
"""The configuration for the calls of a chain."""

Tracer = Callable[[TracerProvider], AbstractContextManager[Config]]


class Finished:
    """The spans that have ended.

    Attributes:
        all: every span.
        by_id: by span id.
    """

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self.all = exporter.get_finished_spans()
        self.by_id = {span.context.span_id: span for span in self.all}

    @property
    def ours(self) -> list[ReadableSpan]:
        """The spans that we have made."""
        return [span for span in self.all if span.instrumentation_scope.name == "rageval_hooks"]

    @property
    def roots(self) -> list[ReadableSpan]:
        """The spans without a parent."""
        return [span for span in self.all if span.parent is None]

    @property
    def traces(self) -> set[int]:
        """The ids of the traces."""
        return {span.context.trace_id for span in self.all}

    def parent(self, span: ReadableSpan) -> ReadableSpan:
        """Return the parent of a span, which must be among the spans."""
        return self.by_id[span.parent.span_id]


def recording_provider(sampler: Sampler | None = None) -> tuple[TracerProvider, InMemorySpanExporter]:
    """Return a provider, and what keeps its spans."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


@contextmanager
def in_order(
    order: str, theirs: AbstractContextManager[Config], ours: AbstractContextManager[Any]
) -> Iterator[tuple[Config, Any]]:
    """Open both context managers; ``order`` says whose comes first."""
    if order == "theirs first":
        with theirs as config, ours as handle:
            yield config, handle
    else:
        with ours as handle, theirs as config:
            yield config, handle


@contextmanager
def _instrumented(instrumentor: Any, provider: TracerProvider) -> Iterator[Config]:
    instrumentor.instrument(tracer_provider=provider)
    try:
        yield {}
    finally:
        instrumentor.uninstrument()


# --------------------------------------------------------------------------- LangChain


def _openinference(provider: TracerProvider) -> AbstractContextManager[Config]:
    module = pytest.importorskip("openinference.instrumentation.langchain")
    return _instrumented(module.LangChainInstrumentor(), provider)


@contextmanager
def _openllmetry(provider: TracerProvider) -> Iterator[Config]:
    module = pytest.importorskip("opentelemetry.instrumentation.langchain")
    instrumentor = module.LangchainInstrumentor(disable_trace_context_propagation=True)
    # Its `uninstrument` restores neither what it wraps in LangGraph and langchain_openai nor the constructor.
    instrumentor._wrap_langgraph_components = lambda tracer: None
    constructor = vars(BaseCallbackManager)["__init__"]
    with _instrumented(instrumentor, provider):
        try:
            yield {}
        finally:
            BaseCallbackManager.__init__ = constructor


def _genai(provider: TracerProvider) -> AbstractContextManager[Config]:
    module = pytest.importorskip("opentelemetry.instrumentation.genai.langchain")
    return _instrumented(module.LangChainInstrumentor(), provider)


@contextmanager
def _langfuse(provider: TracerProvider) -> Iterator[Config]:
    Langfuse = pytest.importorskip("langfuse").Langfuse
    CallbackHandler = pytest.importorskip("langfuse.langchain").CallbackHandler

    key = f"pk-lf-{uuid4()}"  # Langfuse keeps one client for each key
    client = Langfuse(
        public_key=key,
        secret_key="sk-lf-harbour",
        base_url=NOWHERE,
        tracer_provider=provider,
        span_exporter=InMemorySpanExporter(),
    )
    try:
        yield {"callbacks": [CallbackHandler(public_key=key)]}
    finally:
        client.shutdown()


@contextmanager
def _langsmith(provider: TracerProvider) -> Iterator[Config]:
    from langsmith import Client, run_trees
    from langsmith.run_helpers import tracing_context

    client = Client(api_url=NOWHERE, api_key="harbour", tracing_mode="otel", otel_tracer_provider=provider)
    before, run_trees._CLIENT = run_trees._CLIENT, client
    try:
        with tracing_context(enabled=True):
            yield {}
        client.flush()
    finally:
        run_trees._CLIENT = before
        client.cleanup()


LANGCHAIN: dict[str, Tracer] = {
    "OpenInference": _openinference,
    "OpenLLMetry": _openllmetry,
    "GenAI": _genai,
    "Langfuse": _langfuse,
    "LangSmith": _langsmith,
}


# --------------------------------------------------------------------------- LlamaIndex


def _openinference_llama_index(provider: TracerProvider) -> AbstractContextManager[Config]:
    module = pytest.importorskip("openinference.instrumentation.llama_index")
    return _instrumented(module.LlamaIndexInstrumentor(), provider)


@contextmanager
def _openllmetry_llama_index(provider: TracerProvider) -> Iterator[Config]:
    # It imports the namespace of the packages for models, of which none is installed.
    sys.modules.setdefault("llama_index.llms", ModuleType("llama_index.llms"))
    module = pytest.importorskip("opentelemetry.instrumentation.llamaindex")
    from llama_index_instrumentation import get_dispatcher

    dispatcher = get_dispatcher()
    before = list(dispatcher.span_handlers), list(dispatcher.event_handlers)
    instrumentor = module.LlamaIndexInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    added = [handler for handler in dispatcher.span_handlers if handler not in before[0]]
    events = [handler for handler in dispatcher.event_handlers if handler not in before[1]]
    try:
        yield {}
    finally:
        instrumentor.uninstrument()  # leaves its handlers
        for handler in added:
            dispatcher.span_handlers.remove(handler)
        for handler in events:
            dispatcher.event_handlers.remove(handler)


def _genai_llama_index(provider: TracerProvider) -> AbstractContextManager[Config]:
    module = pytest.importorskip("opentelemetry.instrumentation.genai.llama_index")
    return _instrumented(module.LlamaIndexInstrumentor(), provider)


LLAMA_INDEX: dict[str, Tracer] = {
    "OpenInference": _openinference_llama_index,
    "OpenLLMetry": _openllmetry_llama_index,
    "GenAI": _genai_llama_index,
}
