"""A span processor that builds turns from finished spans, whatever framework and instrumentor makes them.

A trace is complete when its outermost span of this process has ended, and every span inside. Nothing is built before,
and nothing waits for quiet. What the callbacks of an integration capture is not built again: spans inside their runs,
and spans that an instrumentor of the same framework makes, are left to them. If such a run is inside a span of another
framework, for example of an agent whose tool asks a query engine, it becomes part of the turn of that span. If the run
has its own handler, that handler gets the run's turn as well.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakSet

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, get_current_span, set_span_in_context

from rageval_hooks.integrations.capture.deferred import hand_over, offer_parts_to
from rageval_hooks.integrations.capture.recorder import Recording, shared_recorder
from rageval_hooks.integrations.capture.trace_context import is_claimed
from rageval_hooks.integrations.opentelemetry import conventions as names
from rageval_hooks.integrations.opentelemetry.facts import Facts
from rageval_hooks.integrations.opentelemetry.spans import TracedSpan
from rageval_hooks.integrations.opentelemetry.turn_building import NoTurn, TurnBuilder, builders_of
from rageval_hooks.integrations.opentelemetry.turn_spans import instrumentor_of
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.interrupts import raise_interrupt
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.suppression import is_suppressed
from rageval_hooks.runtime.tracing import sdk_provider, when_provider_is_set
from rageval_hooks.turn import Turn

_logger = logging.getLogger(__name__)

MAX_TRACES = 2_000
"""Traces in progress; beyond it the oldest is given up."""
MAX_SPANS = 2_000
"""Spans of one trace; at each multiple of it, what is complete becomes turns."""
MAX_BYTES = 64 * 2**20
"""Texts of all traces in progress; beyond it the oldest is given up."""
MAX_SECONDS = 3600.0
"""For so long a trace may be in progress."""
_SPAN_BYTES = 500

_OURS = "rageval_hooks"
_KEYS = frozenset(
    (
        *(name for name, _ in names.KINDS),
        names.COMPONENT,
        *names.MESSAGES_OUT,
        "gen_ai.completion.0.role",
        "gen_ai.completion.0.content",
        "final_result",
    )
)
"""A span with one of these attributes is of a model, a search, a tool or an agent."""


_Counts = dict[str, Counter[str]]
"""How often what happened, by instrumentor."""


class _Part(NamedTuple):
    """A turn that an integration has captured inside a span of another framework.

    Attributes:
        span_id: the span that the turn is in.
        turn: the turn.
        recording: its recording; None if the turn's own pipeline evaluates it, too.
    """

    span_id: int
    turn: EndedTurn
    recording: Recording | None

    def submit_alone(self) -> None:
        """Have the turn evaluated by itself: no turn of spans has it."""
        if self.recording is not None:
            self.recording.owner.submit(self.turn, self.recording.selection)


@dataclass(eq=False)
class _Trace:
    """A trace in progress, as far as this process has it.

    Attributes:
        opened_at: seconds of a clock that never jumps.
        open: the spans that have not ended, by id.
        spans: finished spans of models, searches, tools and agents, and those around them.
        around: ids of the spans around these.
        hidden: ids of spans whose content an integration captures.
        parts: turns that integrations have captured inside the spans.
        size: about how many bytes the spans take.
        live: the spans as the application has them, by id: the scores may belong to any of them.
    """

    opened_at: float
    open: dict[int, Span] = field(default_factory=dict)
    spans: dict[int, ReadableSpan] = field(default_factory=dict)
    around: set[int] = field(default_factory=set)
    hidden: set[int] = field(default_factory=set)
    parts: list[_Part] = field(default_factory=list)
    size: int = 0
    live: dict[int, Span] = field(default_factory=dict)


class TurnSpanProcessor(SpanProcessor):
    """Collects the spans of traces in progress, and submits the turns of a trace when it is complete.

    Safe in any thread and in finalizers: it takes no lock.

    Args:
        clock: seconds, by a clock that never jumps.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pipeline: Pipeline | None = None
        self.clock = clock
        self._log = RateLimitedLogger(_logger)
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget all traces: they go on in the parent process."""
        self._traces: dict[int, _Trace] = {}
        self._size = 0
        self.counts: _Counts = defaultdict(Counter)

    # ----------------------------------------------------------------------- spans, on the application's threads

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Note that a span has started."""
        if self.pipeline is None:
            return
        try:
            if is_suppressed() or _scope_of(span).startswith(_OURS):
                return
            context = span.get_span_context()
            trace = self._traces.get(context.trace_id)
            if trace is None:
                self._give_up_the_oldest()
                trace = self._traces[context.trace_id] = _Trace(self.clock())
            trace.open[context.span_id] = span
            # Inside a run of LangChain or LlamaIndex, or a block of start_turn().
            if shared_recorder().surrounding(None) is not None:
                trace.hidden.add(context.span_id)
        except Exception as error:
            self._failed(error)

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span that has ended, and submit the turns of its trace if that is complete."""
        context = span.get_span_context()
        trace = None if context is None else self._traces.get(context.trace_id)
        if context is None or trace is None:
            return
        live = trace.open.pop(context.span_id, None)
        if live is None:
            return
        try:
            if context.span_id in trace.around or _is_known(span):
                self._keep(trace, span, context, live)
            if not trace.open:
                self._complete(context.trace_id)
            elif len(trace.spans) % MAX_SPANS == 0:
                self._complete_in_part(trace)
        except Exception as error:
            self._failed(error)

    def _keep(self, trace: _Trace, span: ReadableSpan, context: SpanContext, live: Span) -> None:
        trace.spans[context.span_id] = span
        trace.live[context.span_id] = live
        size = _size_of(span)
        trace.size += size
        self._size += size
        if span.parent is not None:
            trace.around.add(span.parent.span_id)
        if is_claimed(context.trace_id, context.span_id) or self._is_call_of_a_run(span):
            trace.hidden.add(context.span_id)

    def _is_call_of_a_run(self, span: ReadableSpan) -> bool:
        """Return True if a model that a callback reports is making this very call, with nothing around it."""
        roots = [root for root in shared_recorder().open_roots() if root.kind == "llm" and root.ended_at is None]
        if not roots:
            return False
        facts = Facts.of(TracedSpan.of_sdk(span))
        asked = next((said.text for said in reversed(facts.given) if said.text), "")
        return bool(asked) and any(
            root.started_at <= (span.start_time or 0) and asked in root.framework.given_text(root) for root in roots
        )

    def take_part(self, turn: EndedTurn, recording: Recording) -> bool:
        """Keep a turn that an integration has captured inside a span of another framework.

        Returns:
            False if the turn is to be submitted by itself: it is in no such span, or belongs to a handler of the user.
        """
        if not self._traces:
            return False
        context = recording.selection.context
        around = get_current_span(context).get_span_context() if context else None
        trace = None if around is None else self._traces.get(around.trace_id)
        if around is None or trace is None:
            return False
        span_id: int | None = around.span_id
        while span_id is not None:
            span = trace.open.get(span_id)
            if span is None or span_id in trace.hidden or is_claimed(around.trace_id, span_id):
                return False
            if _is_known(span):
                is_ours = recording.owner is self.pipeline
                trace.parts.append(_Part(around.span_id, turn, recording if is_ours else None))
                trace.around.add(around.span_id)
                return is_ours
            span_id = None if span.parent is None else span.parent.span_id
        return False

    # ----------------------------------------------------------------------- traces

    def _complete(self, trace_id: int) -> None:
        trace = self._traces.pop(trace_id, None)
        if trace is not None:
            self._size -= trace.size
            self._hand_over(trace)

    def _complete_in_part(self, trace: _Trace) -> None:
        """Hand over the spans of a trace that are in no agent or chain that is still running."""

        def is_running(span: ReadableSpan) -> bool:
            parent = span.parent
            while parent is not None:
                around = trace.open.get(parent.span_id)
                if around is not None and _is_known(around):
                    return True
                outer = around or trace.spans.get(parent.span_id)
                parent = None if outer is None else outer.parent
            return False

        running = {span_id: span for span_id, span in trace.spans.items() if is_running(span)}
        ended = {span_id: span for span_id, span in trace.spans.items() if span_id not in running}
        stays = running.keys() | trace.open.keys()
        part = _Trace(trace.opened_at, spans=ended, hidden=trace.hidden, live=trace.live)
        trace.live = {span_id: trace.live[span_id] for span_id in running}
        part.parts = [one for one in trace.parts if one.span_id not in stays]
        trace.spans, trace.parts = running, [one for one in trace.parts if one.span_id in stays]
        self._size -= trace.size
        trace.size = sum(map(_size_of, running.values()))
        self._size += trace.size
        self._hand_over(part)

    def _hand_over(self, trace: _Trace) -> None:
        pipeline = self.pipeline
        spans = list(_visible(trace))
        if pipeline is None or (not spans and not trace.parts):
            return

        def on_full() -> None:
            pipeline.count_dropped("queue_full")

        # The counters go along: they are others when `instrument()` was called again meanwhile.
        hand_over(self._submit, pipeline, self.counts, trace, spans, size=trace.size, on_full=on_full)

    def _give_up_the_oldest(self) -> None:
        """Give up traces whose outermost span does not end, if there are too many or they are too old."""
        while self._traces:
            trace_id, oldest = next(iter(list(self._traces.items())))
            is_old = self.clock() - oldest.opened_at > MAX_SECONDS
            if len(self._traces) < MAX_TRACES and self._size < MAX_BYTES and not is_old:
                return
            if self._traces.pop(trace_id, None) is None:
                continue
            self._size -= oldest.size
            if oldest.spans:
                some = Facts.of(TracedSpan.of_sdk(next(iter(oldest.spans.values()))))
                _count(self.counts, "without_end", instrumentor_of([some])[0])
            for part in oldest.parts:
                hand_over(part.submit_alone)

    # ----------------------------------------------------------------------- turns, on another thread

    def _submit(self, pipeline: Pipeline, counts: _Counts, trace: _Trace, spans: list[ReadableSpan]) -> None:
        parts = defaultdict[str, list[Turn]](list)
        for part in trace.parts:
            parts[f"{part.span_id:016x}"].append(part.turn.build())
        used = set[str]()
        for builder in builders_of(map(TracedSpan.of_sdk, spans), pipeline.settings.search_tools, parts):
            found = builder.turn()
            if isinstance(found, NoTurn):
                if found.cause == "no_content":
                    _count(counts, "without_content", found.instrumentor)
                    self._warn_of_missing(found.instrumentor, found.reason)
                elif found.cause == "search_only":
                    _count(counts, "search_only", found.instrumentor)
                continue
            used.update(span_id for span_id in parts if span_id in builder.spans)
            self._submit_turn(pipeline, counts, trace, found, builder)
        for part in trace.parts:
            if f"{part.span_id:016x}" not in used:
                part.submit_alone()

    def _submit_turn(
        self, pipeline: Pipeline, counts: _Counts, trace: _Trace, turn: Turn, builder: TurnBuilder
    ) -> None:
        if turn.span is None:
            return
        who = instrumentor_of(builder.spans.all)[0]
        _count(counts, "turns", who)
        if not builder.passages.passages:
            _count(counts, "without_passages", who)
        for reason in list(turn.missing.values())[:1]:
            self._warn_of_missing(who, reason)
        live = trace.live[int(turn.span.span_id, 16)]
        context = set_span_in_context(NonRecordingSpan(live.get_span_context()), Context())
        selection = pipeline.begin(context)
        if selection.selected:
            # Other span processors read values of the context of the turn.
            span = turn.span.within(context, live)
            pipeline.submit(EndedTurn.of(turn.model_copy(update={"span": span})), selection)

    def _warn_of_missing(self, instrumentor: str, reason: str) -> None:
        self._log.warn(f"missing {instrumentor}", "no verdict for a turn: %s [RAGEVAL-117]", reason)

    # ----------------------------------------------------------------------- counters

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: nothing waits here. In the oldest SDK the method of the base class returns None, a failure."""
        return True

    def stats(self) -> dict[str, Any]:
        """Return what became of traces, by instrumentor, and how many are in progress."""
        what = ("turns", "without_passages", "without_content", "without_end", "search_only")
        return {name: dict(self.counts[name]) for name in what} | {
            "open_traces": len(self._traces),
            "open_bytes": self._size,
        }

    def _failed(self, error: Exception) -> None:
        raise_interrupt(error)
        if self.pipeline is not None:
            self.pipeline.failed("spans could not be read", error)


def _count(counts: _Counts, what: str, instrumentor: str) -> None:
    counts[what][instrumentor or "other"] += 1


def _size_of(span: ReadableSpan) -> int:
    return _SPAN_BYTES + sum(len(value) for value in (span.attributes or {}).values() if isinstance(value, str))


def _scope_of(span: ReadableSpan) -> str:
    return "" if span.instrumentation_scope is None else span.instrumentation_scope.name


def _is_known(span: ReadableSpan) -> bool:
    """Return True if a span is of a model, a search, a tool, an agent or a chain."""
    return not _KEYS.isdisjoint(span.attributes or ()) or span.name in names.NAMES


def _visible(trace: _Trace) -> Iterator[ReadableSpan]:
    """Yield the spans that no integration captures, neither themselves nor a span around them."""
    for span_id, span in trace.spans.items():
        inner: int | None = span_id
        while inner is not None and inner not in trace.hidden:
            parent = trace.spans[inner].parent if inner in trace.spans else None
            inner = None if parent is None else parent.span_id
        if inner is None:
            yield span


# --------------------------------------------------------------------------- the processor of this process

_processor = TurnSpanProcessor()
_attached: WeakSet[Any] = WeakSet()
"""The providers that have the processor. The SDK cannot remove one: without a pipeline it does nothing."""


def attach(pipeline: Pipeline) -> None:
    """Send the turns of the application's spans to a pipeline, in place of the one that was attached before."""
    _processor.pipeline = pipeline
    offer_parts_to(_processor.take_part)
    if pipeline.tracer_provider is not None:
        _add_to(pipeline.tracer_provider)
    when_provider_is_set(_add_to)


def detach() -> None:
    """Build no more turns, and drop the traces in progress."""
    _processor.pipeline = None
    _processor.reset_after_fork()


def stats() -> dict[str, Any]:
    """Return the counters of :meth:`TurnSpanProcessor.stats`."""
    return _processor.stats()


def _add_to(provider: object) -> None:
    sdk = sdk_provider(provider)
    if sdk is not None and sdk not in _attached:
        with suppress(TypeError):  # a provider of the application that is no key
            _attached.add(sdk)
        # The method of the SDK: in Phoenix's provider, its own replaces the processor that exports the spans.
        TracerProvider.add_span_processor(sdk, _processor)
