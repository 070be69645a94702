"""OpenTelemetry's SDK: its tracers inside the wrappers of other libraries, and span ids that are known early.

This module holds every private name of OpenTelemetry's API and SDK that we touch, but for the names of its OTLP
exporters, which are in ``exporters/otlp_places``. Tested with opentelemetry-sdk 1.45. What happens without a name:

* ``_active_span_processor``, ``_span_processors``: it is not known where spans go, and scores reach only the backends
  that variables name.
* ``_span_processor``: the evaluation of a turn whose span has another provider goes to the global one.
* ``_span_limits``: the SDK cuts long spans itself.
* ``_set_tracer_provider``: turns are not built from the spans of a provider that is set after ``instrument()``.
* the proxies: log events and metrics are written to a provider that is not there.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry._logs import LoggerProvider, NoOpLoggerProvider, get_logger_provider
from opentelemetry._logs._internal import ProxyLoggerProvider
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider, get_meter_provider
from opentelemetry.metrics._internal import _ProxyMeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import Span
from opentelemetry.trace import Tracer as AnyTracer

from rageval_hooks.runtime.fork import run_in_child

T = TypeVar("T")

# Where wrappers keep what they wrap: OpenInference's OITracer is a wrapt proxy, Logfire's proxies have plain
# attributes, and the API's ProxyTracer finds its real tracer once a provider is set.
_TRACER_ATTRIBUTES = ("__wrapped__", "tracer", "_tracer")
_PROVIDER_ATTRIBUTES = ("__wrapped__", "provider", "_real_provider")
_DEEPEST = 5


def sdk_tracer(tracer: object) -> Tracer | None:
    """Return the SDK's tracer inside a tracer, or None without the SDK."""
    return _unwrap(tracer, Tracer, _TRACER_ATTRIBUTES)


def sdk_provider(provider: object) -> TracerProvider | None:
    """Return the SDK's provider inside a provider, or None without the SDK."""
    return _unwrap(provider, TracerProvider, _PROVIDER_ATTRIBUTES)


def global_tracer_provider() -> trace.TracerProvider | None:
    """Return the tracer provider that the application has set; None if it has set none."""
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider


_on_provider: list[Callable[[trace.TracerProvider], object]] = []


def when_provider_is_set(function: Callable[[trace.TracerProvider], object]) -> None:
    """Call a function with the global tracer provider: now if there is one, and else once the application sets one."""
    provider = global_tracer_provider()
    set_provider = getattr(trace, "_set_tracer_provider", None)
    if provider is not None:
        function(provider)
    elif not _on_provider and set_provider is not None:
        _on_provider.append(function)

        def setting(*args: Any, **kwargs: Any) -> None:
            set_provider(*args, **kwargs)
            if (provider := global_tracer_provider()) is not None:
                trace._set_tracer_provider = set_provider
                while _on_provider:
                    _on_provider.pop()(provider)

        trace._set_tracer_provider = setting


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


_MAX_BESIDE = 8
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
    del _beside[:-_MAX_BESIDE]
    return provider


def _unwrap(wrapper: object, kind: type[T], names: tuple[str, ...]) -> T | None:
    for _ in range(_DEEPEST):
        # `isinstance` alone would take a wrapt proxy, which claims to be an instance of what it wraps.
        if issubclass(type(wrapper), kind) and isinstance(wrapper, kind):
            return wrapper
        inner = next((found for name in names if (found := getattr(wrapper, name, None)) is not None), None)
        if inner is None:
            return None
        wrapper = inner
    return None


# -- ids

_RANDOM = random.Random()  # noqa: S311  ids are no secrets
"""Not Python's shared generator, which belongs to the application: the numbers of an experiment that uses
``random.seed(…)`` would change, and two processes with the same seed would give their traces the same ids. The system
gives the seed, but not each id: a thread that asks it gives up the lock of the interpreter, and the application would
wait for milliseconds to get it back while an evaluation runs."""

run_in_child(_RANDOM.seed)


class RandomIds(RandomIdGenerator):
    """OpenTelemetry's random ids, from a generator of our own."""

    def generate_trace_id(self) -> int:
        """Return 128 random bits, never all 0."""
        return _RANDOM.getrandbits(128) or self.generate_trace_id()

    def generate_span_id(self) -> int:
        """Return 64 random bits, never all 0."""
        return _RANDOM.getrandbits(64) or self.generate_span_id()


def ids_like(ids: object) -> IdGenerator:
    """Return a provider's own id generator; ours if the provider has OpenTelemetry's default."""
    # A custom generator may follow rules of a backend, for example AWS X-Ray's time-based ids.
    return ids if isinstance(ids, IdGenerator) and type(ids) is not RandomIdGenerator else RandomIds()


# A turn's span is written after the turn has ended. Its ids are needed earlier: sampling reads the trace id, and scores
# name the span that they belong to. The SDK takes ids from a tracer's generator only, so the tracer gets a generator
# that hands out the ids of the turn. Wrappers around the SDK's tracer (OpenInference, Logfire) stay in use: they add
# attributes and apply their users' masks.


class PresetIds(IdGenerator):
    """Hands out the ids that this thread has set, else those of the provider's own generator.

    Args:
        ids: the provider's own generator.

    Attributes:
        preset: its ``ids`` are the trace id and the span id of the next spans of this thread, or None.
    """

    def __init__(self, ids: IdGenerator) -> None:
        self._ids = ids
        # Several threads may start spans with one tracer.
        self.preset = threading.local()

    def generate_trace_id(self) -> int:
        """Return the preset trace id or a new one."""
        ids: tuple[int, int] | None = getattr(self.preset, "ids", None)
        return ids[0] if ids else self._ids.generate_trace_id()

    def generate_span_id(self) -> int:
        """Return the preset span id or a new one."""
        ids: tuple[int, int] | None = getattr(self.preset, "ids", None)
        return ids[1] if ids else self._ids.generate_span_id()

    def is_trace_id_random(self) -> bool:
        """Return the answer of the provider's own generator."""
        return self._ids.is_trace_id_random()


def start_span(tracer: AnyTracer, ids: tuple[int, int] | None, name: str, **about: Any) -> Span:
    """Start a span, with given ids where the tracer allows it.

    Args:
        tracer: our own tracer of any provider. Without the SDK inside, the ids are the provider's.
        ids: trace id and span id; None for generated ones.
        name: the span's name.
        about: the other arguments of ``Tracer.start_span``.
    """
    with preset_ids(tracer, ids):
        return tracer.start_span(name, **about)


@contextmanager
def preset_ids(tracer: object, ids: tuple[int, int] | None) -> Iterator[None]:
    """Give the spans that this thread starts with a tracer in this block these ids.

    Args:
        tracer: a tracer of any provider. Without the SDK inside, the ids are the provider's.
        ids: trace id and span id. The trace id only counts for a span without a parent. None for generated ones.
    """
    # Looked for each time: Logfire replaces the tracer inside its wrapper when it is configured again.
    inner = None if ids is None else sdk_tracer(tracer)
    if inner is None or ids is None:
        yield
        return
    generator = inner.id_generator
    if not isinstance(generator, PresetIds):
        inner.id_generator = generator = PresetIds(ids_like(generator))
    generator.preset.ids = ids
    try:
        yield
    finally:
        generator.preset.ids = None
