"""The SDK's tracer and provider inside the wrappers that other libraries put around them, and beside a span.

This module and ``span_ids`` hold every private name of OpenTelemetry's API and SDK that we touch, but for the names of
its OTLP exporters, which are in ``exporters/otlp_places``. Tested with opentelemetry-sdk 1.45. What happens without
a name:

* ``_active_span_processor``, ``_span_processors``: it is not known where spans go, and scores reach only the backends
  that variables name.
* ``_span_processor``: the evaluation of a turn whose span has another provider goes to the global one.
* ``_span_limits``: the SDK cuts long spans itself.
* the proxies: log events and metrics are written to a provider that is not there.
"""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry._logs import LoggerProvider, NoOpLoggerProvider, get_logger_provider
from opentelemetry._logs._internal import ProxyLoggerProvider
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider, get_meter_provider
from opentelemetry.metrics._internal import _ProxyMeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, Tracer, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

__all__ = [
    "global_logger_provider",
    "global_meter_provider",
    "global_tracer_provider",
    "most_attributes",
    "processors_of",
    "provider_of_span",
    "sdk_provider",
    "sdk_tracer",
]

# Where wrappers keep what they wrap: OpenInference's OITracer is a wrapt proxy, Logfire's proxies have plain
# attributes, and the API's ProxyTracer finds its real tracer once a provider is set.
_TRACER_ATTRIBUTES = ("__wrapped__", "tracer", "_tracer")
_PROVIDER_ATTRIBUTES = ("__wrapped__", "provider", "_real_provider")
_DEEPEST = 5


def sdk_tracer(tracer: object) -> Tracer | None:
    """Return the SDK's tracer inside a tracer, or None without the SDK."""
    found = _unwrap(tracer, Tracer, _TRACER_ATTRIBUTES)
    return found if isinstance(found, Tracer) else None


def sdk_provider(provider: object) -> TracerProvider | None:
    """Return the SDK's provider inside a provider, or None without the SDK."""
    found = _unwrap(provider, TracerProvider, _PROVIDER_ATTRIBUTES)
    return found if isinstance(found, TracerProvider) else None


def global_tracer_provider() -> trace.TracerProvider | None:
    """Return the tracer provider that the application has set; None if it has set none."""
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider


def global_logger_provider() -> LoggerProvider | None:
    """Return the logger provider that the application has set; None if it has set none."""
    provider = get_logger_provider()
    return None if isinstance(provider, (ProxyLoggerProvider, NoOpLoggerProvider)) else provider


def global_meter_provider() -> MeterProvider | None:
    """Return the meter provider that the application has set; None if it has set none."""
    provider = get_meter_provider()
    return None if isinstance(provider, (_ProxyMeterProvider, NoOpMeterProvider)) else provider


def most_attributes(tracer: object) -> int | None:
    """Return how many attributes a tracer's spans keep; None if no limit is known."""
    limits = getattr(sdk_tracer(tracer), "_span_limits", None)
    return limits.max_span_attributes if isinstance(limits, SpanLimits) else None


def processors_of(provider: object) -> tuple[object, ...]:
    """Return the span processors of a provider: the same tuple until one is added; empty if they are not known."""
    found = getattr(_active_processor(provider), "_span_processors", ())
    return found if isinstance(found, tuple) else ()


def _active_processor(provider: object) -> object:
    return getattr(sdk_provider(provider), "_active_span_processor", None)


_MOST_BESIDE = 8
_beside: list[tuple[object, TracerProvider]] = []
"""Providers that were made by :func:`provider_of_span`, by the processor of the spans, the latest last."""


def provider_of_span(span: object, used: object) -> TracerProvider | None:
    """Return a provider whose spans go where a span of another tracer goes.

    Args:
        span: the span. It knows the processors of its provider, but not the provider.
        used: the provider that is used otherwise.

    Returns:
        None if that is the provider of the span, or if it is not known where the span goes.
    """
    processor, resource = getattr(span, "_span_processor", None), getattr(span, "resource", None)
    if processor is None or processor is _active_processor(used) or not isinstance(resource, Resource):
        return None
    for known, provider in _beside:
        if known is processor:
            return provider
    # Not shut down by us: the processors belong to the application.
    provider = TracerProvider(
        sampler=ParentBased(ALWAYS_ON), resource=resource, active_span_processor=processor, shutdown_on_exit=False
    )
    _beside.append((processor, provider))
    del _beside[:-_MOST_BESIDE]
    return provider


def _unwrap(wrapper: object, kind: type[object], names: tuple[str, ...]) -> object:
    for _ in range(_DEEPEST):
        # `type` and not `isinstance`: a wrapt proxy claims to be an instance of what it wraps.
        if issubclass(type(wrapper), kind):
            return wrapper
        inner = next((found for name in names if (found := getattr(wrapper, name, None)) is not None), None)
        if inner is None:
            return None
        wrapper = inner
    return None
