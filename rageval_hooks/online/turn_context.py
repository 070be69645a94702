"""The trace context of a new turn, and whether the turn is captured."""

from __future__ import annotations

from dataclasses import dataclass, field

from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, DEFAULT_ON, Decision, Sampler
from opentelemetry.trace import TracerProvider

from rageval_hooks.online.counters import Counters
from rageval_hooks.online.prepare import Preparation
from rageval_hooks.online.sampling import TraceSampler
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.tracing import ids_like, sdk_provider
from rageval_hooks.settings import Settings
from rageval_hooks.turn import SpanReference


@dataclass(slots=True, eq=False)
class TurnContext:
    """The trace context of a new turn, and whether the turn is captured.

    Attributes:
        context: the OpenTelemetry context in which the turn began.
        trace_id: of the application's trace, or a new one.
        span_id: for the turn's own span.
        parent_span_id: of the application's current span; 0 without one.
        flags: the trace flags.
        selected: False if the turn was sampled out.
        probability: with which turns like this one are selected.
        preparations: background work on the turn's passages; a turn may have several retrievers.
        caller_waits: True if another tracer's span is to have the scores. It ends when the caller's call returns.
    """

    context: Context
    trace_id: int
    span_id: int
    parent_span_id: int
    flags: int
    selected: bool
    probability: float
    preparations: list[Preparation] = field(default_factory=list)
    caller_waits: bool = False

    def span_reference(self) -> SpanReference:
        """Return the turn's own span, to which its scores belong."""
        # An empty context has no span, and looking for one takes a while.
        parent = trace.get_current_span(self.context).get_span_context() if self.context else None
        # Baggage may hold any object, and a reference goes to other processes as JSON.
        texts = {name: value for name, value in baggage.get_all(self.context).items() if isinstance(value, str)}
        reference = SpanReference(
            trace_id=f"{self.trace_id:032x}",
            span_id=f"{self.span_id:016x}",
            flags=self.flags,
            parent_span_id=f"{self.parent_span_id:016x}" if self.parent_span_id else None,
            parent_is_remote=parent is not None and parent.is_remote,
            trace_state=(parent.trace_state.to_header() or None) if parent is not None else None,
            baggage=texts,
        )
        return reference.within(self.context)


class TurnSelector:
    """Decides for each new turn, before any work, whether it is captured.

    Args:
        settings: sampling rate and switches.
        tracer_provider: whose ids new traces get; None for the application's global one.
        counters: count the turns that are sampled out.
    """

    def __init__(self, settings: Settings, tracer_provider: TracerProvider | None, counters: Counters) -> None:
        self._settings = settings
        self._given_provider = tracer_provider
        self._counters = counters
        self._sampler = TraceSampler.of(settings.sample_rate, settings)
        self._provider: _ProviderView | None = None

    def begin(self, context: Context, *, enabled: bool, selected: bool | None = None) -> TurnContext:
        """Return the context of a turn that begins now.

        Args:
            context: the current OpenTelemetry context.
            enabled: False to select no turn.
            selected: the decision for the first half of a turn that is resumed; None to decide.
        """
        provider = self._current_provider()
        parent = trace.get_current_span(context).get_span_context() if context else None
        if parent is not None and parent.is_valid:
            trace_id, parent_span_id = parent.trace_id, parent.span_id
            flags, sampled = int(parent.trace_flags), parent.trace_flags.sampled
        else:
            # The turn begins a trace. The application's sampler decides, as for any other root span.
            trace_id, parent_span_id = provider.ids.generate_trace_id(), 0
            sampled = provider.records(context, trace_id)
            flags = int(sampled)
        # Decided before any work, so that a turn that is sampled out costs almost nothing.
        selected = enabled and (self._selects(trace_id, sampled) if selected is None else selected)
        span_id = 0
        if selected:
            EXIT_DRAIN.run_before(provider.provider)
            span_id = provider.ids.generate_span_id()
        return TurnContext(context, trace_id, span_id, parent_span_id, flags, selected, self._sampler.rate)

    def _selects(self, trace_id: int, sampled: bool) -> bool:
        if not sampled and not self._settings.evaluate_unsampled:
            self._counters.exclude_turn("unsampled_traces")
            return False
        if not self._sampler.keeps(trace_id):
            self._counters.exclude_turn("sampled_out")
            return False
        return True

    def _current_provider(self) -> _ProviderView:
        provider = self._given_provider or trace.get_tracer_provider()
        # The application may set its provider after the first turns.
        if self._provider is None or self._provider.provider is not provider:
            self._provider = _ProviderView(provider)
        return self._provider


class _ProviderView:
    """The parts of a tracer provider that a new turn needs, looked up once.

    Args:
        provider: the provider.
    """

    __slots__ = ("_sampler", "ids", "provider")

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        sdk = sdk_provider(provider)
        self.ids = ids_like(getattr(sdk, "id_generator", None))
        sampler = getattr(sdk, "sampler", None)
        # These two keep every trace without a parent, and asking them would cost a call per turn.
        always = sampler is None or sampler is ALWAYS_ON or sampler is DEFAULT_ON
        self._sampler = sampler if isinstance(sampler, Sampler) and not always else None

    def records(self, context: Context, trace_id: int) -> bool:
        """Return True if the application's sampler would record a trace that begins with a turn of ours."""
        if self._sampler is None:
            return True
        return self._sampler.should_sample(context, trace_id, "rag").decision is Decision.RECORD_AND_SAMPLE
