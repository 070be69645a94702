"""Where a new turn stands in its trace, and whether it is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.sampling import ALWAYS_ON, DEFAULT_ON, Decision, Sampler

from rageval_hooks.runtime.ids import ids_like

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

__all__ = ["Selection", "Tracing"]


class Selection:
    """Where a new turn stands in its trace, and whether it is looked at.

    Attributes:
        context: the OpenTelemetry context in which the turn began.
        trace_id: of the application's trace, or a new one.
        span_id: for the turn's own span.
        parent_span_id: of the application's current span; 0 if there is none.
        flags: the trace flags.
        selected: False when the turn is neither captured nor evaluated.
        probability: with which turns like this one are selected.
    """

    __slots__ = ("context", "flags", "parent_span_id", "probability", "selected", "span_id", "trace_id")

    def __init__(
        self,
        context: Context,
        trace_id: int,
        span_id: int,
        parent_span_id: int,
        flags: int,
        selected: bool,
        probability: float,
    ) -> None:
        self.context = context
        self.trace_id = trace_id
        self.span_id = span_id
        self.parent_span_id = parent_span_id
        self.flags = flags
        self.selected = selected
        self.probability = probability


class Tracing:
    """What a new turn asks of a tracer provider, looked up once.

    Args:
        provider: the provider.
    """

    __slots__ = ("_sampler", "ids", "provider")

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self.ids = ids_like(getattr(provider, "id_generator", None))
        sampler = getattr(provider, "sampler", None)
        always = sampler is None or sampler is ALWAYS_ON or sampler is DEFAULT_ON
        self._sampler = sampler if isinstance(sampler, Sampler) and not always else None

    def records(self, context: Context, trace_id: int) -> bool:
        """Whether the application's sampler would record a trace that begins with a turn of ours."""
        if self._sampler is None:
            return True
        return self._sampler.should_sample(context, trace_id, "rag").decision is Decision.RECORD_AND_SAMPLE
