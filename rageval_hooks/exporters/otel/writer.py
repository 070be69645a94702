"""Writes the spans of a turn and of its evaluations."""

from __future__ import annotations

from collections import OrderedDict

from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanLimits
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
    TraceState,
)

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.attributes import (
    error_event,
    evaluation_attributes,
    evaluation_name,
    result_events,
    step_attributes,
    step_name,
    turn_attributes,
)
from rageval_hooks.exporters.span_places import has_span, passage_place
from rageval_hooks.runtime.tracing import sdk_tracer, start_span
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import ErrorInfo, SpanReference, Step, StepKind, Turn

__all__ = ["SpanWriter", "span_context"]

_CLIENT_STEPS = frozenset[StepKind]({"retriever", "reranker", "llm", "embedding"})
_REMEMBERED = 4096

_EVALUATION_NANOSECONDS = 1_000
"""Length of an evaluation's span. Jaeger warns about a span without length and about one that outlasts its parent."""

_FOREIGN_MARGIN = 0.1
"""Another tracer's span may end a little before the turn that we saw. If its end is not known, evaluations below it
keep this share of the turn's time away from the end."""


class SpanWriter:
    """Writes spans with one tracer.

    Args:
        tracer: our own tracer of the provider.
        policy: what may be shown.
        selection: which steps become spans.
        for_braintrust: True to make the scores Braintrust's own.
    """

    def __init__(
        self, tracer: Tracer, policy: ContentPolicy, selection: SpanSelection, *, for_braintrust: bool = False
    ) -> None:
        self._tracer = tracer
        self._policy = policy
        self._selection = selection
        self._for_braintrust = for_braintrust
        self._written: OrderedDict[str, SpanContext] = OrderedDict()

    def write_turn(self, turn: Turn, evaluation: Evaluation) -> None:
        """Write the span of a turn and those of its steps."""
        timing = turn.timing
        span = start_span(
            self._tracer,
            None if turn.span is None else _preset_ids(turn.span, turn.span.span_id),
            f"rag {turn.name}" if turn.is_rag else turn.name,
            context=_parent_context(turn),
            kind=SpanKind.INTERNAL,
            attributes=turn_attributes(turn, evaluation.results, self._policy).within(self._limits.max_span_attributes),
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
        # A turn without results has nothing to show, and an empty span would look like a failure.
        if judged is None or not evaluation.results:
            return
        started_at, ended_at = _evaluation_interval(turn)
        limits = self._limits
        attributes = evaluation_attributes(evaluation, self._policy, for_braintrust=self._for_braintrust)
        span = start_span(
            self._tracer,
            _evaluation_ids(evaluation, judged),
            evaluation_name(evaluation.results),
            context=trace.set_span_in_context(NonRecordingSpan(judged), _surrounding_context(turn.span)),
            kind=SpanKind.INTERNAL,
            attributes=attributes.within(limits.max_span_attributes),
            links=self._links(evaluation, judged),
            start_time=started_at,
        )
        if span.is_recording():
            for event in result_events(evaluation, self._policy, self._selection, limits.max_events):
                span.add_event(semconv.EVALUATION_RESULT_EVENT, event, timestamp=ended_at)
        span.end(end_time=ended_at)

    def evaluated_span(self, turn: Turn) -> SpanContext | None:
        """Return the span that a turn's results belong to; None for a turn without a place in a trace."""
        return self._written.get(turn.id) or span_context(turn.span)

    @property
    def _limits(self) -> SpanLimits:
        """The provider's limits; without the SDK inside, no limit is known."""
        limits = getattr(sdk_tracer(self._tracer), "_span_limits", None)
        return limits if isinstance(limits, SpanLimits) else _NO_LIMITS

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
            self._tracer,
            None if turn.span is None else _preset_ids(turn.span, turn.step_span_id(step)),
            step_name(step),
            context=context,
            kind=SpanKind.CLIENT if step.kind in _CLIENT_STEPS else SpanKind.INTERNAL,
            attributes=step_attributes(step, turn, self._policy).within(self._limits.max_span_attributes),
            start_time=step.started_at,
        )
        if step.error is not None:
            self._record_error(span, step.error, step.ended_at)
        return span

    def _links(self, evaluation: Evaluation, judged: SpanContext) -> list[Link]:
        """Return a link to the turn's span, then one to each span whose passages have scores."""
        links = [Link(judged)]
        for span_id in self._retriever_span_ids(evaluation):
            context = SpanContext(judged.trace_id, int(span_id, 16), False, judged.trace_flags, judged.trace_state)
            links.append(Link(context, {semconv.LINK_TARGET: "passages"}))
        return links

    def _retriever_span_ids(self, evaluation: Evaluation) -> list[str]:
        """Return the ids of the spans that list the scored passages, each once."""
        found: dict[str, None] = {}
        for score in evaluation.scores:
            if score.target.kind != "passage":
                continue
            place = passage_place(evaluation.turn, score.target.index, self._selection)
            if place is not None:
                found[place.span_id] = None
        return list(found)

    def _record_error(self, span: Span, error: ErrorInfo, at: int | None) -> None:
        event = error_event(error, self._policy)
        span.add_event(semconv.EXCEPTION_EVENT, event, timestamp=at)
        span.set_status(Status(StatusCode.ERROR, f"{error.type}: {event[semconv.EXCEPTION_MESSAGE]}"))

    def _remember(self, turn: Turn, context: SpanContext) -> None:
        """Keep the context of a span that has other ids than were preset, or that the provider does not record."""
        expected = span_context(turn.span)
        same = expected is not None and _ids(expected) == _ids(context)
        # Usually the ids are those that were preset, so there is nothing to remember.
        if same and context.trace_flags.sampled:
            return
        self._written[turn.id] = context
        while len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)


_NO_LIMITS = SpanLimits(max_span_attributes=SpanLimits.UNSET, max_events=SpanLimits.UNSET)


def _preset_ids(turn_span: SpanReference, span_id: str | None) -> tuple[int, int] | None:
    """Return the trace id and the span id as numbers; None for ids that the provider makes."""
    return None if span_id is None else (int(turn_span.trace_id, 16), int(span_id, 16))


def _evaluation_ids(evaluation: Evaluation, judged: SpanContext) -> tuple[int, int] | None:
    """Return the ids of an evaluation's span: the same ones if the evaluation is delivered again."""
    if evaluation.id is None:
        return None
    # The id is a hash of 32 hex digits; a span id is 16 of them and never 0.
    return judged.trace_id, int(evaluation.id[:16], 16) or 1


def _ids(context: SpanContext) -> tuple[int, int]:
    return context.trace_id, context.span_id


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


def _trace_state(span: SpanReference) -> TraceState:
    return TraceState.from_header([span.trace_state]) if span.trace_state else TraceState()
