"""Turns, their steps and their evaluations as spans."""

from __future__ import annotations

from typing import ClassVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Tracer, TracerProvider

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.attributes import goes_to_braintrust
from rageval_hooks.exporters.otel.own_providers import TRACES, OtlpSignal
from rageval_hooks.exporters.otel.signal import SCOPE, ProviderFactory, Signal
from rageval_hooks.exporters.otel.writer import SpanWriter, span_context
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import Turn
from rageval_hooks.version import __version__

__all__ = ["Spans"]


class Spans(Signal[TracerProvider]):
    """Writes spans.

    Args:
        given: the tracer provider; None for the application's global one.
        policy: what may be shown.
        selection: which steps become spans.
    """

    otlp: ClassVar[OtlpSignal] = TRACES
    what: ClassVar[str] = "spans"

    def __init__(self, given: TracerProvider | None, policy: ContentPolicy, selection: SpanSelection) -> None:
        super().__init__(given)
        self._policy = policy
        self._selection = selection
        self._writer: SpanWriter | None = None
        self._tracer: Tracer | None = None

    def export(self, evaluation: Evaluation) -> bool:
        """Write the turn's spans and the span of its results."""
        if not self.connected() or self._writer is None:
            return False
        turn = evaluation.turn
        external = turn.span is not None and turn.span.external
        if evaluation.stage == "inline" and not external:
            self._writer.write_turn(turn, evaluation)
        self._writer.write_evaluation(evaluation)
        return True

    def tracer(self) -> Tracer | None:
        """Return our tracer of the provider that turns are written to; None if there is no provider."""
        return self._tracer if self.connected() else None

    def context_of(self, turn: Turn) -> Context:
        """Return a context whose current span is the turn's; empty for a turn without a place in a trace.

        What is written in this context refers to that span: log events, and the exemplars of metrics.
        """
        span = self._writer.evaluated_span(turn) if self._writer is not None else span_context(turn.span)
        return Context() if span is None else trace.set_span_in_context(NonRecordingSpan(span), Context())

    def _global_provider(self) -> TracerProvider | None:
        provider = trace.get_tracer_provider()
        return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider

    @property
    def _make_own(self) -> ProviderFactory:
        from rageval_hooks.exporters.otel.own_providers.spans import own_tracer_provider

        return own_tracer_provider

    def _use(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer(SCOPE, __version__, semconv.SCHEMA_URL)
        self._writer = SpanWriter(
            self._tracer, self._policy, self._selection, for_braintrust=goes_to_braintrust(provider)
        )
