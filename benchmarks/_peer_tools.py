"""Attaching one tool to an application, in one tracing set-up. Runs in the tool's environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["ATTACH", "SETUPS", "Attached"]

os.environ.setdefault("DEEPEVAL_TELEMETRY_OPT_OUT", "1")
os.environ.setdefault("CONFIDENT_TRACE_VERBOSE", "0")
os.environ.setdefault("LLAMA_INDEX_CACHE_DIR", "/tmp/llama_index")
os.environ.setdefault("OTEL_SDK_DISABLED", "false")


class Attached:
    """A tool that is attached to an application. It begins switched off.

    Args:
        packages: whose versions count.
        callbacks: for tools whose handler is passed to a chain of LangChain: the list, created for each turn, as
            applications do.
        attach: for tools that watch the whole process: begins that.
        detach: ends it.
        flush: waits until the tool's background work is done.
        seen: how many traces or spans have come out, to see that the tool did its work.
    """

    def __init__(
        self,
        packages: tuple[str, ...] = (),
        *,
        callbacks: Callable[[], Any] | None = None,
        attach: Callable[[], object] = lambda: None,
        detach: Callable[[], object] = lambda: None,
        flush: Callable[[], object] = lambda: None,
        seen: Callable[[], int] = lambda: 0,
    ) -> None:
        self._packages = packages
        self._callbacks = callbacks
        self._attach = attach
        self._detach = detach
        self._on = False
        self.flush = flush
        self.seen = seen

    def switch(self, on: bool) -> None:
        """Switch it on or off between turns."""
        if on != self._on:
            (self._attach if on else self._detach)()
        self._on = on

    def config(self) -> dict[str, Any]:
        """Return the config with which a chain of LangChain is called."""
        return {"callbacks": self._callbacks()} if self._on and self._callbacks is not None else {}

    def versions(self) -> dict[str, str]:
        packages = ("langchain-core", "llama-index-core", "opentelemetry-sdk", "pydantic", *self._packages)
        found = {"python": sys.version.split()[0]}
        for name in packages:
            try:
                found[name] = version(name)
            except Exception:
                continue
        return found


def _null_exporter() -> Any:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Null(SpanExporter):
        count = 0

        def export(self, spans: Any) -> Any:
            self.count += len(spans)
            return SpanExportResult.SUCCESS

    return Null()


SETUPS = ("custom", "none", "console", "in-memory", "otlp-http", "otlp-grpc", "phoenix", "langfuse")
"""Where spans go. The servers are those of ``_span_sink.py``, at the ports of the variable ``SINK``."""


def _provider(setup: str = "custom") -> tuple[Any, Callable[[], int]]:
    """Return the provider of a set-up, and a function that says how many spans it got; None without a provider."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    http, grpc = (f"http://127.0.0.1:{port}" for port in os.environ.get("SINK", "9 9").split())
    exporter: Any = None
    if setup == "none":
        return None, lambda: 0
    if setup == "phoenix":
        from phoenix.otel import register

        provider = register(endpoint=f"{http}/v1/traces", batch=True, set_global_tracer_provider=False, verbose=False)
        return provider, lambda: 0
    provider = TracerProvider()
    if setup == "langfuse":
        from langfuse import Langfuse

        Langfuse(public_key="pk-lf-benchmark", secret_key="sk", base_url=http, tracer_provider=provider)
        return provider, lambda: 0
    if setup == "in-memory":
        exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        return provider, lambda: len(exporter.get_finished_spans())
    if setup == "otlp-http":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

        exporter = Http(f"{http}/v1/traces")
    elif setup == "otlp-grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        exporter = Grpc(grpc, insecure=True)
    elif setup == "console":
        exporter = ConsoleSpanExporter(out=open(os.devnull, "w"))  # noqa: SIM115 - open as long as the process
    else:
        exporter = _null_exporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider, lambda: getattr(exporter, "count", 0)


def _flush(provider: Any) -> None:
    if provider is not None:
        provider.force_flush()


def noop(_application: str, _setup: str) -> Attached:
    from langchain_core.callbacks import BaseCallbackHandler

    callbacks = [BaseCallbackHandler()]
    return Attached(callbacks=lambda: callbacks)


def _ours(setup: str, **settings: Any) -> Attached:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import rageval_hooks

    provider, seen = _provider(setup)
    handles: list[Any] = []

    def attach() -> None:
        handles.append(rageval_hooks.instrument(**{"metrics": [], "tracer_provider": provider, **settings}))

    def flush() -> None:
        for handle in handles:
            handle.flush()
        _flush(provider)

    return Attached(("rageval-hooks",), attach=attach, detach=lambda: handles.pop().shutdown(), flush=flush, seen=seen)


def ours(_application: str, setup: str) -> Attached:
    return _ours(setup)


def with_metrics(_application: str, setup: str) -> Attached:
    return _ours(setup, metrics=None, models="lexical")


def sampled_out(_application: str, setup: str) -> Attached:
    return _ours(setup, sample_rate=0.0)


def openinference(application: str, setup: str) -> Attached:
    if application == "langchain":
        from openinference.instrumentation.langchain import LangChainInstrumentor as Instrumentor
    else:
        from openinference.instrumentation.llama_index import LlamaIndexInstrumentor as Instrumentor

    provider, seen = _provider(setup)
    instrumentor = Instrumentor()
    return Attached(
        (f"openinference-instrumentation-{application.replace('_', '-')}",),
        attach=lambda: instrumentor.instrument(tracer_provider=provider),
        detach=instrumentor.uninstrument,
        flush=lambda: _flush(provider),
        seen=seen,
    )


def langfuse(_application: str, _setup: str) -> Attached:
    from langfuse import Langfuse
    from langfuse.langchain import CallbackHandler

    exporter = _null_exporter()
    client = Langfuse(
        public_key="pk-lf-benchmark",
        secret_key="sk-lf-benchmark",
        base_url="http://127.0.0.1:9",
        span_exporter=exporter,
    )
    callbacks = [CallbackHandler()]
    return Attached(
        ("langfuse",),
        callbacks=lambda: callbacks,
        flush=client.flush,
        seen=lambda: exporter.count,
    )


def deepeval(_application: str, _setup: str) -> Attached:
    from deepeval.integrations.langchain import CallbackHandler
    from deepeval.tracing import trace_manager, tracing

    sent = [0]

    class Nowhere:
        def __init__(self, api_key: Any = None, **more: Any) -> None:
            pass

        async def a_send_request(self, **request: Any) -> tuple[Any, Any]:
            sent[0] += 1
            return None, None

    tracing.Api = Nowhere
    trace_manager.confident_api_key = "benchmark"
    trace_manager._min_interval = 0.0  # it sends five a second at most; here the work is to be done at once
    # One for each turn, as its documentation has it: one for all makes one trace of what 32 threads do at a time.
    return Attached(
        ("deepeval",),
        callbacks=lambda: [CallbackHandler()],
        flush=lambda: trace_manager.flush(60),
        seen=lambda: sent[0],
    )


ATTACH: dict[str, Callable[[str, str], Attached]] = {
    "no-op handler": noop,
    "rageval-hooks": ours,
    "rageval-hooks, with metrics": with_metrics,
    "rageval-hooks, sampled out": sampled_out,
    "OpenInference": openinference,
    "Langfuse": langfuse,
    "DeepEval": deepeval,
}
