"""Turns, their steps and their evaluations as spans."""

from __future__ import annotations

import os
import re
import time
import weakref
from typing import Any, ClassVar, NamedTuple, cast
from urllib.parse import urlsplit

from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, Tracer, TracerProvider

from rageval_hooks.exporters.content import evaluation_span_id, has_span, passage_place
from rageval_hooks.exporters.otel.attributes import (
    evaluation_attributes,
    guard_attributes,
    has_news,
    main_scores,
    written,
)
from rageval_hooks.exporters.otel.providers import SCHEMA_URL, SCOPE, OtelSignal, QueuedExporter
from rageval_hooks.exporters.otel.turn_attributes import step_attributes, step_name, turn_attributes, turn_operation
from rageval_hooks.exporters.otlp_places import otlp_places
from rageval_hooks.exporters.phoenix import phoenix_resource
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.runtime.tracing import global_tracer_provider, most_attributes, provider_of_span, start_span
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import ErrorInfo, SpanReference, StepKind, Turn
from rageval_hooks.version import __version__

_CLIENT_STEPS = frozenset[StepKind]({"retriever", "reranker", "llm", "embedding"})
_MAX_WRITTEN = 4096

# Langfuse, LangSmith and Weave, which draw a span's input and output, as do MLflow and Braintrust.
_DRAW_VALUES = re.compile(r"/api/public/otel|smith\.langchain\.com|wandb\.ai")
_DRAW_VALUES_HEADERS = frozenset({"x-mlflow-experiment-id", "langsmith-project"})

_EVALUATION_NANOSECONDS = 1_000
"""Length of an evaluation's span. Jaeger warns about a span without length and about one that outlasts its parent."""

_FOREIGN_MARGIN = 0.1
"""Another tracer's span may end a little before the turn that we saw. If its end is not known, evaluations below it
keep this share of the turn's time away from the end."""

_ATTRIBUTE_LIMITS = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
# A retriever span with 100 passages has some 400 attributes; the SDK's default of 128 would lose most of them.
_MAX_ATTRIBUTES = 4096


class SpanWriter(NamedTuple):
    """What writes the spans of one provider.

    Attributes:
        tracer: our own tracer of the provider.
        for_braintrust: True to make the scores Braintrust's own.
        draws_values: True for a backend that draws a span's input and output.
    """

    tracer: Tracer
    for_braintrust: bool
    draws_values: bool


class Spans(OtelSignal[TracerProvider, SpanWriter]):
    """Writes spans.

    Args:
        given: the tracer provider; None for the application's global one.

    Attributes:
        selection: which steps become spans.
    """

    what: ClassVar[str] = "spans"
    variable: ClassVar[str] = "TRACES"
    otlp_exporter: ClassVar[tuple[str, str]] = ("trace_exporter", "OTLPSpanExporter")
    queue: ClassVar[str] = "otlp-spans"
    capacity: ClassVar[str] = "OTEL_BSP_MAX_QUEUE_SIZE"

    def __init__(self, given: TracerProvider | None) -> None:
        super().__init__(given)
        self.selection: SpanSelection = "auto"
        # Providers of other tracers, whose spans carry turns; by them, our writers.
        self._others: weakref.WeakKeyDictionary[TracerProvider, SpanWriter] = weakref.WeakKeyDictionary()
        # Turns' spans that have other ids than were preset, or that the provider does not record, by the turn's id.
        self._written: dict[str, SpanContext] = {}

    def export(self, evaluation: Evaluation) -> bool:
        """Write the turn's spans and the span of its results."""
        turn = evaluation.turn
        other = self._writer_beside(turn.span)
        writer = other or self.writer()
        if writer is None:
            return False
        external = turn.span is not None and turn.span.external
        if evaluation.stage == "inline" and not external and other is None:
            self._write_turn(writer, evaluation)
        self._write_evaluation(writer, evaluation)
        return True

    def tracer(self) -> Tracer | None:
        """Return our tracer of the provider that turns are written to; None if there is no provider."""
        writer = self.writer()
        return None if writer is None else writer.tracer

    def context_of(self, turn: Turn) -> Context:
        """Return a context whose current span is the turn's; empty for a turn without a place in a trace.

        What is written in this context refers to that span: log events, and the exemplars of metrics.
        """
        span = self._evaluated_span(turn)
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
        live_span = None if span is None else span.live_span
        if live_span is None:
            return None
        provider = provider_of_span(live_span, self.provider())
        if provider is None:
            return None
        if provider not in self._others:
            self._others[provider] = self._make_writer(provider)
        return self._others[provider]

    def _make_writer(self, provider: TracerProvider) -> SpanWriter:
        # For example https://api-eu.braintrust.dev/otel; any host with the header of Braintrust's projects.
        places = otlp_places(provider)
        for_braintrust = any(
            (urlsplit(place.url).hostname or "").endswith("braintrust.dev") or "x-bt-parent" in place.headers
            for place in places
        )
        draws_values = for_braintrust or any(
            _DRAW_VALUES.search(place.url) or not _DRAW_VALUES_HEADERS.isdisjoint(place.headers) for place in places
        )
        tracer = provider.get_tracer(SCOPE, __version__, SCHEMA_URL)
        return SpanWriter(tracer=tracer, for_braintrust=for_braintrust, draws_values=draws_values)

    def _global_provider(self) -> TracerProvider | None:
        return global_tracer_provider()

    def _make_provider(self, sent: QueuedExporter) -> Any:
        limited = any(name in os.environ for name in _ATTRIBUTE_LIMITS)
        limits = SpanLimits() if limited else SpanLimits(max_span_attributes=_MAX_ATTRIBUTES)
        resource = Resource.create(phoenix_resource())
        provider = SdkTracerProvider(span_limits=limits, resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(cast("Any", sent)))
        return provider

    # -- the turn and its steps

    def _write_turn(self, writer: SpanWriter, evaluation: Evaluation) -> None:
        """Write the span of a turn and those of its steps."""
        turn, timing, tracer = evaluation.turn, evaluation.turn.timing, writer.tracer
        attributes = turn_attributes(turn, evaluation.results)
        span = start_span(
            tracer,
            None if turn.span is None else _preset_ids(turn.span, turn.span.span_id),
            # Lists of RAG turns are filtered by the name.
            f"{'rag' if turn.is_rag else turn_operation(turn)} {turn.name}",
            context=_parent_context(turn.span),
            kind=SpanKind.INTERNAL,
            attributes=written(attributes, most_attributes(tracer)),
            start_time=timing.started_at if timing else None,
        )
        self._remember(turn, span.get_span_context())
        ended_at = timing.ended_at if timing else None
        if span.is_recording():
            if self.selection != "scores":
                self._write_steps(writer, span, turn)
            if turn.error is not None:
                _record_error(span, turn.error, ended_at)
        span.end(end_time=ended_at)

    def _remember(self, turn: Turn, context: SpanContext) -> None:
        expected = span_context(turn.span)
        same = expected is not None and (expected.trace_id, expected.span_id) == (context.trace_id, context.span_id)
        # Usually the ids are those that were preset, so there is nothing to remember.
        if same and context.trace_flags.sampled:
            return
        self._written[turn.id] = context
        if len(self._written) > _MAX_WRITTEN:
            del self._written[next(iter(self._written))]

    def _evaluated_span(self, turn: Turn) -> SpanContext | None:
        """Return the span that a turn's results belong to; None for a turn without a place in a trace."""
        return self._written.get(turn.id) or span_context(turn.span)

    def _write_steps(self, writer: SpanWriter, root: Span, turn: Turn) -> None:
        tracer = writer.tracer
        surrounding = _surrounding_context(turn.span)
        parents = {step.id: step.parent_id for step in turn.steps}
        shown = [step for step in turn.steps if has_span(step, self.selection)]
        spans: dict[str | None, Span] = {None: root}
        for step in shown:
            parent_id = step.parent_id
            while parent_id not in spans:  # steps in between may have no span
                parent_id = parents.get(parent_id or "")
            attributes = step_attributes(step, turn, draws_values=writer.draws_values)
            spans[step.id] = span = start_span(
                tracer,
                None if turn.span is None else _preset_ids(turn.span, turn.step_span_id(step)),
                step_name(step),
                context=trace.set_span_in_context(spans[parent_id], surrounding),
                kind=SpanKind.CLIENT if step.kind in _CLIENT_STEPS else SpanKind.INTERNAL,
                attributes=written(attributes, most_attributes(tracer)),
                start_time=step.started_at,
            )
            if step.error is not None:
                _record_error(span, step.error, step.ended_at)
        # Spans end after all have started: a processor may look for a child's parent among the open ones.
        for step in shown:
            spans[step.id].end(end_time=step.ended_at)

    # -- evaluations

    def _write_evaluation(self, writer: SpanWriter, evaluation: Evaluation) -> None:
        """Write the span of a stage's results, as a child of the turn's span."""
        turn = evaluation.turn
        judged = self._evaluated_span(turn)
        # Without the turn's span, a span would be a second root of the trace; the log event has what it would say.
        if judged is None or not judged.span_id or not has_news(evaluation):
            return
        started_at, ended_at = _evaluation_interval(turn)
        attributes = evaluation_attributes(evaluation, for_braintrust=writer.for_braintrust)
        metric = attributes["rageval.metric"]
        span = start_span(
            writer.tracer,
            None if turn.span is None else _preset_ids(turn.span, evaluation_span_id(evaluation, turn.span)),
            "evaluate" if metric is None else f"evaluate {metric}",
            context=trace.set_span_in_context(NonRecordingSpan(judged), _surrounding_context(turn.span)),
            kind=SpanKind.INTERNAL,
            attributes=written(attributes, most_attributes(writer.tracer)),
            links=self._links(evaluation, judged),
            start_time=started_at,
        )
        span.end(end_time=ended_at)

    def _links(self, evaluation: Evaluation, judged: SpanContext) -> list[Link]:
        """Return a link to the turn's span, then one to each span whose passages have scores."""
        places = [passage_place(evaluation.turn, score.target, self.selection) for score in evaluation.scores]
        # Each span once, in the order of the scores.
        retrievers = dict.fromkeys(place.span_id for place in places if place is not None)
        about = {"rageval.link.target": "passages"}
        return [Link(judged), *(Link(sibling(judged, span_id), about) for span_id in retrievers)]


def add_scores(evaluation: Evaluation) -> None:
    """Add the main scores to the turn's span of another tracer. One that has ended takes no more attributes."""
    span = None if evaluation.turn.span is None else evaluation.turn.span.live_span
    if span is None or not span.is_recording():
        return
    span.set_attributes(written(main_scores(evaluation.results) | guard_attributes(evaluation.turn)))


def _record_error(span: Span, error: ErrorInfo, at: int | None) -> None:
    span.add_event("exception", {"exception.type": error.type, "exception.message": error.message}, timestamp=at)
    span.set_status(StatusCode.ERROR, f"{error.type}: {error.message}")


def _preset_ids(turn_span: SpanReference, span_id: str | None) -> tuple[int, int] | None:
    """Return the trace id and the span id as numbers; None for ids that the provider makes."""
    return None if span_id is None else (int(turn_span.trace_id, 16), int(span_id, 16))


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
    if (context := span.context) is not None:
        return context
    context = Context()
    for name, value in span.baggage.items():
        context = baggage.set_baggage(name, value, context)
    return context


def _parent_context(span: SpanReference | None) -> Context:
    """Return a context whose current span is the parent of a turn's span."""
    surrounding = _surrounding_context(span)
    if span is None or span.parent_span_id is None:
        return surrounding
    current = trace.get_current_span(surrounding).get_span_context()
    # The live span knows more than the ids, for example whether it is recorded.
    if f"{current.span_id:016x}" == span.parent_span_id:
        return surrounding
    parent = _context_in_trace(span, span.parent_span_id, is_remote=span.parent_is_remote)
    return trace.set_span_in_context(NonRecordingSpan(parent), surrounding)


def span_context(span: SpanReference | None) -> SpanContext | None:
    """Return a reference to a span as the ids that OpenTelemetry uses; None for None."""
    return None if span is None else _context_in_trace(span, span.span_id)


def _context_in_trace(span: SpanReference, span_id: str, *, is_remote: bool = False) -> SpanContext:
    state = trace.TraceState.from_header([span.trace_state]) if span.trace_state else trace.TraceState()
    return SpanContext(int(span.trace_id, 16), int(span_id, 16), is_remote, trace.TraceFlags(span.flags), state)


def sibling(span: SpanContext, span_id: str) -> SpanContext:
    """Return a reference to another span of the same trace."""
    return SpanContext(span.trace_id, int(span_id, 16), False, span.trace_flags, span.trace_state)
