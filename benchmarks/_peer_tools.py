"""Attaching one tool to an application, each with an exporter that drops everything. Runs in the tool's environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["ATTACH", "Attached"]

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


def _provider() -> tuple[Any, Any]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = _null_exporter()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider, exporter


def noop(_application: str) -> Attached:
    from langchain_core.callbacks import BaseCallbackHandler

    callbacks = [BaseCallbackHandler()]
    return Attached(callbacks=lambda: callbacks)


def _ours(**settings: Any) -> Attached:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import rageval_hooks

    provider, exporter = _provider()
    handles: list[Any] = []

    def attach() -> None:
        handles.append(rageval_hooks.instrument(metrics=[], tracer_provider=provider, **settings))

    def flush() -> None:
        for handle in handles:
            handle.flush()
        provider.force_flush()

    return Attached(
        ("rageval-hooks",),
        attach=attach,
        detach=lambda: handles.pop().shutdown(),
        flush=flush,
        seen=lambda: exporter.count,
    )


def ours(_application: str) -> Attached:
    return _ours()


def sampled_out(_application: str) -> Attached:
    return _ours(sample_rate=0.0)


def openinference(application: str) -> Attached:
    if application == "langchain":
        from openinference.instrumentation.langchain import LangChainInstrumentor as Instrumentor
    else:
        from openinference.instrumentation.llama_index import LlamaIndexInstrumentor as Instrumentor

    provider, exporter = _provider()
    instrumentor = Instrumentor()
    return Attached(
        (f"openinference-instrumentation-{application.replace('_', '-')}",),
        attach=lambda: instrumentor.instrument(tracer_provider=provider),
        detach=instrumentor.uninstrument,
        flush=provider.force_flush,
        seen=lambda: exporter.count,
    )


def langfuse(_application: str) -> Attached:
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


def deepeval(_application: str) -> Attached:
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


ATTACH: dict[str, Callable[[str], Attached]] = {
    "no-op handler": noop,
    "rageval-hooks": ours,
    "rageval-hooks, sampled out": sampled_out,
    "OpenInference": openinference,
    "Langfuse": langfuse,
    "DeepEval": deepeval,
}
