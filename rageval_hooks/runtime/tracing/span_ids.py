"""Span ids that are known before the span is written.

A turn's span is written after the turn has ended. Its ids are needed earlier: sampling reads the trace id, and scores
name the span that they belong to. The SDK takes ids from a tracer's generator only, so the tracer gets a generator
that hands out the ids of the turn. Wrappers around the SDK's tracer (OpenInference, Logfire) stay in use: they add
attributes and apply their users' masks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, Tracer

from rageval_hooks.runtime.tracing.random_ids import ids_like
from rageval_hooks.runtime.tracing.tracers import sdk_tracer

__all__ = ["preset_ids", "start_span"]


class PresetIds(IdGenerator):
    """Hands out the ids that this thread has set, else those of the provider's own generator.

    Args:
        ids: the provider's own generator.
    """

    def __init__(self, ids: IdGenerator) -> None:
        self._ids = ids
        # Several threads may start spans with one tracer.
        self._preset = threading.local()

    def preset(self, trace_id: int, span_id: int) -> None:
        """Set the ids of the next spans of this thread."""
        self._preset.ids = (trace_id, span_id)

    def clear(self) -> None:
        """Go back to generated ids on this thread."""
        self._preset.ids = None

    def generate_trace_id(self) -> int:
        """Return the preset trace id or a new one."""
        ids: tuple[int, int] | None = getattr(self._preset, "ids", None)
        return ids[0] if ids else self._ids.generate_trace_id()

    def generate_span_id(self) -> int:
        """Return the preset span id or a new one."""
        ids: tuple[int, int] | None = getattr(self._preset, "ids", None)
        return ids[1] if ids else self._ids.generate_span_id()

    def is_trace_id_random(self) -> bool:
        """Return the answer of the provider's own generator."""
        return self._ids.is_trace_id_random()


def start_span(tracer: Tracer, ids: tuple[int, int] | None, name: str, **about: Any) -> Span:
    """Start a span, with given ids where the tracer allows it.

    Args:
        tracer: our own tracer of any provider. Without the SDK inside, the ids are the provider's.
        ids: trace id and span id; None for generated ones.
        name: the span's name.
        about: the other arguments of ``Tracer.start_span``.
    """
    if ids is None:
        return tracer.start_span(name, **about)
    with preset_ids(tracer, ids):
        return tracer.start_span(name, **about)


@contextmanager
def preset_ids(tracer: object, ids: tuple[int, int]) -> Iterator[None]:
    """Give the spans that this thread starts with a tracer in this block these ids.

    Args:
        tracer: a tracer of any provider. Without the SDK inside, the ids are the provider's.
        ids: trace id and span id. The trace id only counts for a span without a parent.
    """
    generator = _generator(tracer)
    if generator is None:
        yield
        return
    generator.preset(*ids)
    try:
        yield
    finally:
        generator.clear()


def _generator(tracer: object) -> PresetIds | None:
    """Return the tracer's generator of preset ids, installed on first use.

    Logfire replaces the tracer inside its wrapper when it is configured again, so this looks each time.
    """
    inner = sdk_tracer(tracer)
    if inner is None:
        return None
    generator = inner.id_generator
    if isinstance(generator, PresetIds):
        return generator
    inner.id_generator = preset = PresetIds(ids_like(generator))
    return preset
