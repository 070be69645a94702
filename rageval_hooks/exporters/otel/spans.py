"""Turns, their steps and their evaluations as spans."""

from __future__ import annotations

import os
import time
import weakref
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
    TraceState,
)

from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.attributes import (
    Attributes,
    Value,
    add_main_scores,
    evaluation_attributes,
    has_news,
    only_metric,
)
from rageval_hooks.exporters.otel.providers import SCHEMA_URL, SCOPE, CountedExporter, OtelSignal
from rageval_hooks.exporters.otel.turn_attributes import step_attributes, step_name, turn_attributes
from rageval_hooks.exporters.otlp_places import otlp_places
from rageval_hooks.exporters.phoenix import phoenix_resource
from rageval_hooks.exporters.selection import has_span, passage_place
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.tracing import global_tracer_provider, most_attributes, provider_of_span, start_span
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import ErrorInfo, SpanReference, Step, StepKind, Turn
from rageval_hooks.version import __version__

_CLIENT_STEPS = frozenset[StepKind]({"retriever", "reranker", "llm", "embedding"})
_REMEMBERED = 4096

_EVALUATION_NANOSECONDS = 1_000
"""Length of an evaluation's span. Jaeger warns about a span without length and about one that outlasts its parent."""

_FOREIGN_MARGIN = 0.1
"""Another tracer's span may end a little before the turn that we saw. If its end is not known, evaluations below it
keep this share of the turn's time away from the end."""

_ATTRIBUTE_LIMITS = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
# A retriever span with 100 passages has some 400 attributes; the SDK's default of 128 would lose most of them.
_MOST_ATTRIBUTES = 4096


class Spans(OtelSignal[TracerProvider, "SpanWriter"]):
    """Writes spans.

    Args:
        given: the tracer provider; None for the application's global one.
        policy: what may be shown.
        selection: which steps become spans.
    """

    what: ClassVar[str] = "spans"
    variable: ClassVar[str] = "TRACES"
    otlp_exporter: ClassVar[tuple[str, str]] = ("trace_exporter", "OTLPSpanExporter")
    queue: ClassVar[str] = "otlp-spans"
    capacity: ClassVar[str] = "OTEL_BSP_MAX_QUEUE_SIZE"

    def __init__(self, given: TracerProvider | None, policy: ContentPolicy, selection: SpanSelection) -> None:
        super().__init__(given)
        self._policy = policy
        self._selection = selection
        # Providers of other tracers, whose spans carry turns; by them, our writers.
        self._others: weakref.WeakKeyDictionary[TracerProvider, SpanWriter] = weakref.WeakKeyDictionary()

    def export(self, evaluation: Evaluation) -> bool:
        """Write the turn's spans and the span of its results."""
        turn = evaluation.turn
        other = self._writer_beside(turn.span)
        writer = other or self.writer()
        if writer is None:
            return False
        external = turn.span is not None and turn.span.external
        if evaluation.stage == "inline" and not external and other is None:
            writer.write_turn(turn, evaluation)
        writer.write_evaluation(evaluation)
        return True

    def tracer(self) -> Tracer | None:
        """Return our tracer of the provider that turns are written to; None if there is no provider."""
        writer = self.writer()
        return None if writer is None else writer.tracer

    def context_of(self, turn: Turn) -> Context:
        """Return a context whose current span is the turn's; empty for a turn without a place in a trace.

        What is written in this context refers to that span: log events, and the exemplars of metrics.
        """
        span = self._writer.evaluated_span(turn) if self._writer is not None else span_context(turn.span)
        return Context() if span is None else trace.set_span_in_context(NonRecordingSpan(span), Context())

    def flush(self, timeout: float) -> bool:
        """Flush the provider, and those of other tracers that we have written to."""
        deadline = time.monotonic() + timeout
        done = super().flush(timeout)
        for provider in list(self._others):
            done = self._flush(provider, remaining(deadline)) and done
        return done

    def _writer_beside(self, span: SpanReference | None) -> SpanWriter | None:
        """Return a writer for the provider of another tracer's span; None if that is the one we use anyway.

        An application may have two providers. An evaluation must arrive where its turn's span does.
        """
        if span is None or span.live_span is None:
            return None
        provider = provider_of_span(span.live_span, self._find_provider())
        if provider is None:
            return None
        writer = self._others.get(provider)
        if writer is None:
            writer = self._others[provider] = self._make_writer(provider)
        return writer

    def _make_writer(self, provider: TracerProvider) -> SpanWriter:
        tracer = provider.get_tracer(SCOPE, __version__, SCHEMA_URL)
        # For example https://api-eu.braintrust.dev/otel; any host with the header of Braintrust's projects.
        for_braintrust = any(
            (urlsplit(place.url).hostname or "").endswith("braintrust.dev") or "x-bt-parent" in place.headers
            for place in otlp_places(provider)
        )
        return SpanWriter(tracer, self._policy, self._selection, for_braintrust=for_braintrust)

    def _global_provider(self) -> TracerProvider | None:
        return global_tracer_provider()

    def _make_provider(self, sent: CountedExporter) -> Any:
        class CountedSpans(BatchSpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                # Our own limit, because the SDK's queue drops its oldest spans and does not say so.
                if span.context is not None and span.context.trace_flags.sampled and sent.accept(span.attributes):
                    super().on_end(span)

        limited = any(name in os.environ for name in _ATTRIBUTE_LIMITS)
        limits = SpanLimits() if limited else SpanLimits(max_span_attributes=_MOST_ATTRIBUTES)
        resource = Resource.create(phoenix_resource())
        provider = SdkTracerProvider(span_limits=limits, resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(CountedSpans(cast("Any", sent), max_queue_size=sent.capacity))
        return provider


class SpanWriter:
    """Writes spans with one tracer.

    Args:
        tracer: our own tracer of the provider.
        policy: what may be shown.
        selection: which steps become spans.
        for_braintrust: True to make the scores Braintrust's own.
    """

    def __init__(
        self, tracer: Tracer, policy: ContentPolicy, selection: SpanSelection, *, for_braintrust: bool
    ) -> None:
        self.tracer = tracer
        self._policy = policy
        self._selection = selection
        self._for_braintrust = for_braintrust
        self._written: dict[str, SpanContext] = {}

    def write_turn(self, turn: Turn, evaluation: Evaluation) -> None:
        """Write the span of a turn and those of its steps."""
        timing = turn.timing
        attributes = turn_attributes(turn, evaluation.results, self._policy)
        span = start_span(
            self.tracer,
            None if turn.span is None else _preset_ids(turn.span, turn.span.span_id),
            f"rag {turn.name}" if turn.is_rag else turn.name,
            context=_parent_context(turn),
            kind=SpanKind.INTERNAL,
            attributes=attributes.within(most_attributes(self.tracer)),
            start_time=timing.started_at if timing else None,
        )
        self._remember(turn, span.get_span_context())
        ended_at = timing.ended_at if timing else None
        if span.is_recording():
            self._write_steps(span, turn)
            if turn.error is not None:
                self._record_error(span, turn.error, ended_at)
        span.end(end_time=ended_at)

    def write_evaluation(self, evaluation: Evaluation) -> None:
        """Write the span of a stage's results, as a child of the turn's span."""
        turn = evaluation.turn
        judged = self.evaluated_span(turn)
        if judged is None or not has_news(evaluation):
            return
        started_at, ended_at = _evaluation_interval(turn)
        metric = only_metric(evaluation.results)
        attributes = evaluation_attributes(evaluation, self._policy, for_braintrust=self._for_braintrust)
        span = start_span(
            self.tracer,
            _evaluation_ids(evaluation, judged),
            "evaluate" if metric is None else f"evaluate {metric}",
            context=trace.set_span_in_context(NonRecordingSpan(judged), _surrounding_context(turn.span)),
            kind=SpanKind.INTERNAL,
            attributes=attributes.within(most_attributes(self.tracer)),
            links=self._links(evaluation, judged),
            start_time=started_at,
        )
        span.end(end_time=ended_at)

    def evaluated_span(self, turn: Turn) -> SpanContext | None:
        """Return the span that a turn's results belong to; None for a turn without a place in a trace."""
        return self._written.get(turn.id) or span_context(turn.span)

    def _write_steps(self, root: Span, turn: Turn) -> None:
        if self._selection == "scores":
            return
        surrounding = _surrounding_context(turn.span)
        parents = {step.id: step.parent_id for step in turn.steps}
        shown = [step for step in turn.steps if has_span(step, self._selection)]
        spans: dict[str | None, Span] = {None: root}
        for step in shown:
            parent_id = step.parent_id
            while parent_id not in spans:  # steps in between may have no span
                parent_id = parents.get(parent_id or "")
            context = trace.set_span_in_context(spans[parent_id], surrounding)
            spans[step.id] = self._start_step(context, step, turn)
        # Spans end after all have started: a processor may look for a child's parent among the open ones.
        for step in shown:
            spans[step.id].end(end_time=step.ended_at)

    def _start_step(self, context: Context, step: Step, turn: Turn) -> Span:
        span = start_span(
            self.tracer,
            None if turn.span is None else _preset_ids(turn.span, turn.step_span_id(step)),
            step_name(step),
            context=context,
            kind=SpanKind.CLIENT if step.kind in _CLIENT_STEPS else SpanKind.INTERNAL,
            attributes=step_attributes(step, turn, self._policy).within(most_attributes(self.tracer)),
            start_time=step.started_at,
        )
        if step.error is not None:
            self._record_error(span, step.error, step.ended_at)
        return span

    def _links(self, evaluation: Evaluation, judged: SpanContext) -> list[Link]:
        """Return a link to the turn's span, then one to each span whose passages have scores."""
        scored = [score.target.index for score in evaluation.scores if score.target.kind == "passage"]
        places = [passage_place(evaluation.turn, index, self._selection) for index in scored]
        # Each span once, in the order of the scores.
        retrievers = dict.fromkeys(place.span_id for place in places if place is not None)
        about = {"rageval.link.target": "passages"}
        return [Link(judged), *(Link(sibling(judged, span_id), about) for span_id in retrievers)]

    def _record_error(self, span: Span, error: ErrorInfo, at: int | None) -> None:
        # A message may quote any text.
        message = self._policy.quote(error.message, self._policy.everything)
        event: dict[str, Value] = {"exception.type": error.type, "exception.message": message}
        span.add_event("exception", event, timestamp=at)
        span.set_status(Status(StatusCode.ERROR, f"{error.type}: {message}"))

    def _remember(self, turn: Turn, context: SpanContext) -> None:
        """Keep the context of a span that has other ids than were preset, or that the provider does not record."""
        expected = span_context(turn.span)
        same = expected is not None and (expected.trace_id, expected.span_id) == (context.trace_id, context.span_id)
        # Usually the ids are those that were preset, so there is nothing to remember.
        if same and context.trace_flags.sampled:
            return
        self._written[turn.id] = context
        if len(self._written) > _REMEMBERED:
            del self._written[next(iter(self._written))]


def add_scores(evaluation: Evaluation, policy: ContentPolicy) -> None:
    """Add the main scores to the turn's span of another tracer. One that has ended takes no more attributes.

    Args:
        evaluation: the turn and its results.
        policy: what may be shown.
    """
    span = None if evaluation.turn.span is None else evaluation.turn.span.live_span
    if span is None or not span.is_recording():
        return
    attributes = Attributes()
    add_main_scores(attributes, evaluation.results, policy)
    span.set_attributes(dict(attributes))


def _preset_ids(turn_span: SpanReference, span_id: str | None) -> tuple[int, int] | None:
    """Return the trace id and the span id as numbers; None for ids that the provider makes."""
    return None if span_id is None else (int(turn_span.trace_id, 16), int(span_id, 16))


def _evaluation_ids(evaluation: Evaluation, judged: SpanContext) -> tuple[int, int] | None:
    """Return the ids of an evaluation's span: the same ones if the evaluation is delivered again."""
    if evaluation.id is None:
        return None
    # The id is a hash of 32 hex digits; a span id is 16 of them and never 0.
    return judged.trace_id, int(evaluation.id[:16], 16) or 1


def _evaluation_interval(turn: Turn) -> tuple[int | None, int | None]:
    """Return start and end of an evaluation's span: the last microsecond of its parent's."""
    timing = turn.timing
    if timing is None:
        return None, None
    end = timing.ended_at
    if turn.span is not None and turn.span.external:
        parents_end = getattr(turn.span.live_span, "end_time", None)
        end = parents_end or end - int((end - timing.started_at) * _FOREIGN_MARGIN)
    return max(timing.started_at, end - _EVALUATION_NANOSECONDS), end


# --------------------------------------------------------------------------- contexts


def _surrounding_context(span: SpanReference | None) -> Context:
    """Return the context in which the turn began: span processors read baggage and other values from it.

    In another process than the one that captured the turn, the baggage is all that is known.
    """
    if span is None:
        return Context()
    if span.context is not None:
        return span.context
    context = Context()
    for name, value in span.baggage.items():
        context = baggage.set_baggage(name, value, context)
    return context


def _parent_context(turn: Turn) -> Context:
    """Return a context whose current span is the parent of the turn's span."""
    span = turn.span
    surrounding = _surrounding_context(span)
    if span is None or span.parent_span_id is None:
        return surrounding
    current = trace.get_current_span(surrounding).get_span_context()
    # The live span knows more than the ids, for example whether it is recorded.
    if f"{current.span_id:016x}" == span.parent_span_id:
        return surrounding
    parent = SpanContext(
        int(span.trace_id, 16),
        int(span.parent_span_id, 16),
        span.parent_is_remote,
        TraceFlags(span.flags),
        _trace_state(span),
    )
    return trace.set_span_in_context(NonRecordingSpan(parent), surrounding)


def span_context(span: SpanReference | None) -> SpanContext | None:
    """Return a reference to a span as the ids that OpenTelemetry uses; None for None."""
    if span is None:
        return None
    return SpanContext(int(span.trace_id, 16), int(span.span_id, 16), False, TraceFlags(span.flags), _trace_state(span))


def sibling(span: SpanContext, span_id: str) -> SpanContext:
    """Return a reference to another span of the same trace."""
    return SpanContext(span.trace_id, int(span_id, 16), False, span.trace_flags, span.trace_state)


def _trace_state(span: SpanReference) -> TraceState:
    return TraceState.from_header([span.trace_state]) if span.trace_state else TraceState()
