"""Spans: the turn with its steps and its local scores, and one more for each score that comes later."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace import TracerProvider as AnyTracerProvider

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.attributes import (
    error_event,
    has_span,
    metric_attributes,
    result_event,
    results_by_metric,
    step_attributes,
    step_name,
    turn_attributes,
)
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.console import ConsoleExporter
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.own_provider import OwnProvider, own_provider
from rageval_hooks.exporters.semconv import EVALUATION_RESULT_EVENT, EXCEPTION_EVENT
from rageval_hooks.runtime.deadlines import DeadlineThread, remaining
from rageval_hooks.runtime.ids import ids_like
from rageval_hooks.score import Evaluation, is_about_turn
from rageval_hooks.settings import Settings, SpanSelection
from rageval_hooks.turn import Step, StepKind, Turn
from rageval_hooks.version import __version__

__all__ = ["OtelExporter"]

_logger = logging.getLogger(__name__)

_SCOPE = "rageval_hooks"
_CLIENT_STEPS = frozenset[StepKind]({"retriever", "reranker", "llm", "embedding"})
_REMEMBERED = 4096


class OtelExporter(Exporter):
    """Writes OpenTelemetry spans.

    They go to the tracer provider that is given; else to the application's global one, looked up anew until there is
    one; else, if the standard variables name an OTLP endpoint, to that, through a provider of our own; else the console
    gets a summary. The global provider is never set.

    Args:
        tracer_provider: where the spans go.
        capture_content: see :class:`rageval_hooks.settings.Settings`.
        spans: which steps become spans.
    """

    name: ClassVar[str] = "otel"
    traces: ClassVar[bool] = True

    def __init__(
        self,
        tracer_provider: AnyTracerProvider | None = None,
        *,
        capture_content: bool | None = None,
        spans: SpanSelection = "rag",
    ) -> None:
        if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
            raise ConfigurationError(f"tracer_provider is not an OpenTelemetry TracerProvider: {tracer_provider!r}")
        self._given = tracer_provider
        self._policy = ContentPolicy.build(capture_content)
        self._selection = spans
        self._provider: AnyTracerProvider | None = None
        self._own: OwnProvider | None = None
        self._undelivered = 0
        self._final_stats: Mapping[str, int] = {}
        self._deadlines = DeadlineThread("rageval-flush")
        self._tracer: trace.Tracer | None = None
        self._console: ConsoleExporter | None = None
        self._written: OrderedDict[str, SpanContext] = OrderedDict()
        if tracer_provider is None and _global_provider() is None:
            own_provider()  # now: a short script may be exiting already when the first turn arrives

    @classmethod
    def from_settings(cls, settings: Settings, tracer_provider: AnyTracerProvider | None) -> Self:
        """Make the exporter from the plain settings."""
        return cls(tracer_provider, capture_content=settings.capture_content, spans=settings.spans)

    def export(self, evaluation: Evaluation) -> None:
        """Write the turn's spans, or those of its late scores."""
        tracer = self._find_tracer()
        if tracer is None:
            self._fallback().export(evaluation)
        elif evaluation.stage == "inline" and not _has_foreign_span(evaluation.turn):
            self._write_turn(tracer, evaluation)
        else:
            self._write_late(tracer, evaluation)

    def flush(self, timeout: float) -> bool:
        """Flush the provider's span processors.

        Returns:
            With our own provider, True if every span since the last flush was delivered. For a provider of the
            application only the deadline is known: its processors do not say what became of the spans.
        """
        deadline = time.monotonic() + timeout
        flush = getattr(self._provider, "force_flush", None)
        if flush is None:
            return True
        milliseconds = max(1, int(timeout * 1000))
        # The SDK's batch processor ignores the timeout, so the deadline is kept here.
        in_time = self._deadlines.finish(lambda: flush(milliseconds), remaining(deadline))
        return in_time and (self._own is None or self._delivered_everything(self._own))

    def shutdown(self, timeout: float) -> bool:
        """Shut our own provider down. A provider of the application stays open: its owner closes it.

        Returns:
            False if spans of our own provider were lost or rejected since the last flush.
        """
        own, self._own = self._own, None
        if own is None:
            return True
        self._provider = None
        own_provider.cache_clear()
        in_time = self._deadlines.finish(own.provider.shutdown, timeout)
        lost = own.give_up()
        self._final_stats = own.stats()
        if lost:
            _logger.warning("rageval-hooks: %d spans could not be delivered in time and are lost", lost)
        return in_time and self._delivered_everything(own)

    def stats(self) -> Mapping[str, int]:
        """Return what became of the spans of our own provider; empty for a provider of the application.

        ``queued``: waiting; ``delivered``; ``rejected``: refused by the collector (HTTP 4xx; gRPC does not say);
        ``lost``: the collector could not be reached; ``dropped``: the queue was full.
        """
        return self._final_stats if self._own is None else self._own.stats()

    def _delivered_everything(self, own: OwnProvider) -> bool:
        """Return True if nothing waits and nothing was lost since this was asked last."""
        stats = own.stats()
        undelivered = stats["rejected"] + stats["lost"] + stats["dropped"]
        new, self._undelivered = undelivered - self._undelivered, undelivered
        return stats["queued"] == 0 and new == 0

    # -- providers

    def _find_tracer(self) -> trace.Tracer | None:
        provider = self._given or _global_provider()
        self._own = own_provider() if provider is None else None
        if self._own is not None:
            provider = self._own.provider
        if provider is None:
            return None
        self._deadlines.start()
        if provider is not self._provider:
            self._provider = provider
            self._tracer = provider.get_tracer(_SCOPE, __version__)
            _pin_ids(self._tracer)
        return self._tracer

    def _fallback(self) -> ConsoleExporter:
        if self._console is None:
            self._console = ConsoleExporter(policy=self._policy)
            _logger.warning(
                "rageval-hooks: no OpenTelemetry TracerProvider is set and no OTEL_EXPORTER_OTLP_ENDPOINT; evaluations "
                'are printed. To send traces: pip install "rageval-hooks[otlp]" and set OTEL_EXPORTER_OTLP_ENDPOINT, '
                "for example http://localhost:4318"
            )
        return self._console

    # -- spans

    def _write_turn(self, tracer: trace.Tracer, evaluation: Evaluation) -> None:
        turn = evaluation.turn
        limit = _attribute_limit(tracer)
        timing = turn.timing
        attributes = turn_attributes(turn, evaluation.results, self._policy).within(limit)
        span = _start_span(
            tracer,
            turn,
            turn.span.span_id if turn.span else None,
            f"rag {turn.name}" if turn.is_rag else turn.name,
            context=_parent_of(turn),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=timing.started_at if timing else None,
        )
        self._remember(turn, span.get_span_context())
        if span.is_recording():
            self._write_steps(tracer, span, turn, limit)
            if turn.error is not None:
                _record_error(span, turn.error, timing.ended_at if timing else None, self._policy)
        span.end(end_time=timing.ended_at if timing else None)

    def _write_steps(self, tracer: trace.Tracer, root: Span, turn: Turn, limit: int | None) -> None:
        if self._selection == "none":
            return
        spans: dict[str, Span] = {}
        parents = {step.id: step.parent_id for step in turn.steps}
        below: dict[str | None, Context] = {}
        for step in turn.steps:
            if not has_span(step, self._selection):
                continue
            around = step.parent_id
            while around is not None and around not in spans:
                around = parents.get(around)
            context = below.get(around)
            if context is None:
                parent = spans[around] if around is not None else root
                context = below[around] = trace.set_span_in_context(parent, Context())
            spans[step.id] = self._start_step(tracer, context, step, turn, limit)
        for step in turn.steps:
            if step.id in spans:
                spans[step.id].end(end_time=step.ended_at)

    def _start_step(self, tracer: trace.Tracer, context: Context, step: Step, turn: Turn, limit: int | None) -> Span:
        span = _start_span(
            tracer,
            turn,
            turn.step_span_id(step),
            step_name(step),
            context=context,
            kind=SpanKind.CLIENT if step.kind in _CLIENT_STEPS else SpanKind.INTERNAL,
            attributes=step_attributes(step, turn, self._policy).within(limit),
            start_time=step.started_at,
        )
        if step.error is not None:
            _record_error(span, step.error, step.ended_at, self._policy)
        return span

    def _write_late(self, tracer: trace.Tracer, evaluation: Evaluation) -> None:
        turn = evaluation.turn
        judged = self._written.get(turn.id) or _span_context(turn)
        if judged is None:
            return
        limit = _attribute_limit(tracer)
        at = turn.timing.ended_at if turn.timing else None
        for metric, results in results_by_metric(evaluation.results).items():
            span = tracer.start_span(
                f"evaluate {metric}",
                context=trace.set_span_in_context(NonRecordingSpan(judged), Context()),
                kind=SpanKind.INTERNAL,
                attributes=metric_attributes(evaluation, metric, self._policy).within(limit),
                links=[Link(judged)],
                start_time=at,
            )
            for result in results:
                if is_about_turn(result):
                    span.add_event(EVALUATION_RESULT_EVENT, result_event(result, self._policy), timestamp=at)
            span.end(end_time=at)

    def _remember(self, turn: Turn, context: SpanContext) -> None:
        """Keep the context of spans whose ids could not be set beforehand, or that the provider does not record."""
        expected = _span_context(turn)
        if expected is not None and expected == context and context.trace_flags.sampled:
            return
        self._written[turn.id] = context
        while len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)


def _has_foreign_span(turn: Turn) -> bool:
    return turn.span is not None and turn.span.external


def _span_context(turn: Turn) -> SpanContext | None:
    span = turn.span
    if span is None:
        return None
    return SpanContext(int(span.trace_id, 16), int(span.span_id, 16), False, TraceFlags(span.flags))


def _parent_of(turn: Turn) -> Context:
    span = turn.span
    if span is None or span.parent_span_id is None:
        return Context()
    parent = SpanContext(int(span.trace_id, 16), int(span.parent_span_id, 16), False, TraceFlags(span.flags))
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _record_error(span: Span, error: Any, at: int | None, policy: ContentPolicy) -> None:
    event = error_event(error, policy)
    span.add_event(EXCEPTION_EVENT, event, timestamp=at)
    span.set_status(Status(StatusCode.ERROR, f"{error.type}: {event['exception.message']}"))


# --------------------------------------------------------------------------- ids that are known beforehand


class _PinnedIds(IdGenerator):
    """Hands out the ids that a turn was given when it began, else those of the provider's own generator.

    A turn's span is written after the turn has ended, but its ids are needed before: sampling goes by the trace id, and
    scores name the span that they belong to. Only our own tracer gets this generator.
    """

    def __init__(self, ids: IdGenerator) -> None:
        self._ids = ids
        self.pinned = threading.local()

    def generate_trace_id(self) -> int:
        return getattr(self.pinned, "trace_id", None) or self._ids.generate_trace_id()

    def generate_span_id(self) -> int:
        return getattr(self.pinned, "span_id", None) or self._ids.generate_span_id()

    def is_trace_id_random(self) -> bool:
        return self._ids.is_trace_id_random()


def _pin_ids(tracer: trace.Tracer) -> None:
    ids = getattr(tracer, "id_generator", None)
    if isinstance(ids, IdGenerator) and not isinstance(ids, _PinnedIds):
        tracer.id_generator = _PinnedIds(ids_like(ids))  # type: ignore[attr-defined]


def _start_span(tracer: trace.Tracer, turn: Turn, span_id: str | None, name: str, **about: Any) -> Span:
    """Start a span with the id that it was given beforehand, if there is one."""
    ids = getattr(tracer, "id_generator", None)
    if turn.span is None or span_id is None or not isinstance(ids, _PinnedIds):
        return tracer.start_span(name, **about)
    ids.pinned.trace_id = int(turn.span.trace_id, 16)
    ids.pinned.span_id = int(span_id, 16)
    try:
        return tracer.start_span(name, **about)
    finally:
        ids.pinned.trace_id = ids.pinned.span_id = None


# --------------------------------------------------------------------------- providers


def _global_provider() -> AnyTracerProvider | None:
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider


def _attribute_limit(tracer: trace.Tracer) -> int | None:
    limits = getattr(tracer, "_span_limits", None)
    return limits.max_span_attributes if isinstance(limits, SpanLimits) else None
