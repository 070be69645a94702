"""The SDK's tracer and provider inside the wrappers that other libraries put around them."""

from __future__ import annotations

from opentelemetry.sdk.trace import Tracer, TracerProvider

__all__ = ["sdk_provider", "sdk_tracer"]

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
