"""Set up tracing in one of the usual ways, then run an application: ``otel_launcher.py SETUP APPLICATION``.

The application knows nothing of it. The URL of the server is in COMPAT_URL.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

URL = os.environ["COMPAT_URL"]
KEY = "compat"


def sdk() -> None:
    """OpenTelemetry's SDK."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{URL}/v1/traces")))
    trace.set_tracer_provider(provider)


def openinference() -> None:
    """OpenInference's instrumentor for LangChain."""
    sdk()
    from openinference.instrumentation.langchain import LangChainInstrumentor

    LangChainInstrumentor().instrument()


def phoenix() -> None:
    """Phoenix's own function, which instruments whatever OpenInference has an instrumentor for."""
    from phoenix.otel import register

    register(endpoint=f"{URL}/v1/traces", auto_instrument=True, batch=True, verbose=False)


def openllmetry() -> None:
    """Traceloop's SDK."""
    from traceloop.sdk import Traceloop

    Traceloop.init(app_name="compat", api_endpoint=URL, api_key=KEY, telemetry_enabled=False)


def langfuse() -> None:
    """Langfuse's client, and its handler for every chain of the process."""
    from contextvars import ContextVar

    from langchain_core.tracers.context import register_configure_hook
    from langfuse import Langfuse
    from langfuse.langchain import CallbackHandler

    Langfuse(public_key=KEY, secret_key=KEY, base_url=URL)
    everywhere = CallbackHandler()  # one handler serves all calls
    handler: ContextVar[Any] = ContextVar("langfuse", default=everywhere)
    register_configure_hook(handler, inheritable=True)


def langsmith() -> None:
    """LangSmith's tracer, which variables switch on: see otel.py. A script has to wait for it."""
    import atexit

    def wait() -> None:
        from langchain_core.tracers.langchain import get_client, wait_for_all_tracers
        from opentelemetry import trace

        wait_for_all_tracers()
        get_client().flush()
        trace.get_tracer_provider().force_flush()

    atexit.register(wait)


def logfire() -> None:
    """Logfire's SDK."""
    import logfire

    advanced = logfire.AdvancedOptions(base_url=URL)
    logfire.configure(token=KEY, send_to_logfire=True, console=False, advanced=advanced)


def nothing() -> None:
    """No tracing."""


SETUPS: dict[str, Callable[[], None]] = {
    "sdk": sdk,
    "openinference": openinference,
    "phoenix": phoenix,
    "openllmetry": openllmetry,
    "langfuse": langfuse,
    "langsmith": langsmith,
    "logfire": logfire,
    "nothing": nothing,
}

if __name__ == "__main__":
    setup, application = sys.argv[1:]
    SETUPS[setup]()
    sys.argv = [application]
    runpy.run_path(application, run_name="__main__")
