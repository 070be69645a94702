"""The position of a turn in its trace: the application's OpenTelemetry context, and the spans of other tracers."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from opentelemetry import baggage
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext

from rageval_hooks.integrations.capture.recorder import Recording, Run, shared_recorder
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.turn import SpanReference

_ATTRIBUTES = ("session.id", "user.id", "metadata")


def context_attributes(context: Context) -> dict[str, Any]:
    """Return the session id, user id and metadata that the application put into its OpenTelemetry context.

    OpenInference's ``using_attributes`` stores them as context values; other libraries use baggage.
    """
    found: dict[str, Any] = {}
    if not context:
        return found
    for name in _ATTRIBUTES:
        value = context.get(name)
        if value is None and name != "metadata":
            value = baggage.get_baggage(name, context)
        if value:
            found[name] = value
    # OpenInference stores the metadata as a JSON string.
    if isinstance(found.get("metadata"), str):
        try:
            found["metadata"] = mapping_or_empty(json.loads(found["metadata"]))
        except ValueError:
            del found["metadata"]
    return found


def span_reference(recording: Recording) -> SpanReference:
    """Return the span that the turn's scores belong to: another tracer's, else our own."""
    selection, other = recording.selection, recording.other_span
    if other is not None and shares_spans(recording):
        context = other.get_span_context()
        reference = SpanReference(
            trace_id=f"{context.trace_id:032x}",
            span_id=f"{context.span_id:016x}",
            flags=int(context.trace_flags),
            trace_state=context.trace_state.to_header() or None,
            external=True,
        )
        return reference.within(selection.context, other)

    reference = selection.span_reference()
    # Another tracer's span in this turn, of the root or of a run below it.
    same_trace = recording.other_context if other is None else other.get_span_context()
    if same_trace is None:
        return reference
    if other is None and reference.parent_span_id is not None:
        return reference  # the application's own span holds the trace together
    moved = {"trace_id": f"{same_trace.trace_id:032x}", "flags": int(same_trace.trace_flags)}
    if other is not None:
        # The user wants our spans too: the turn's span is then below the other tracer's.
        moved["parent_span_id"] = f"{same_trace.span_id:016x}"
    return reference.model_copy(update=moved)


# --------------------------------------------------------------------------- spans of other tracers


_logger = logging.getLogger(__name__)

_STEPS = frozenset({"retriever", "reranker", "llm", "tool"})
"""Kinds of runs that are spans of ours, unless another tracer has made them."""

_named: set[str] = set()
"""Names of the tracers that were mentioned in the log."""


def shares_spans(recording: Recording) -> bool:
    """Return True if a turn uses the spans of another tracer, if there is one."""
    return recording.owner.settings.spans in ("auto", "scores")


def note_other_span(run: Run) -> None:
    """Note the span that another tracer has made for a run in progress, and for the root of its turn.

    The other tracer may be called before us or after us, so this is called at the start of runs and at their end.
    """
    # The span matters of the root, and of a run that is a span of ours.
    recording = None
    if run.parent is None or run.kind in _STEPS:
        recording = shared_recorder().recording(run.id)
    if recording is None:
        return
    root, find_span = recording.root, run.framework.find_span
    # Once found, the span of a root is looked for again only at the root's own end.
    is_wanted = recording.other_span is None or run is root
    if is_wanted and root.framework is run.framework and (found := _valid(find_span(root.id, recording))) is not None:
        recording.other_span = found
        claim(found.get_span_context())
        if shares_spans(recording):
            recording.selection.caller_waits = True
            _name_once(found)
    if run is root or run.kind not in _STEPS or not shares_spans(recording):
        return
    if (found := _valid(find_span(run.id, recording))) is not None:
        context = found.get_span_context()
        claim(context)
        run.span_id = f"{context.span_id:016x}"
        run.span_tracer = _scope_of(found)
        recording.other_context = recording.other_context or context
        _name_once(found)


_MAX_CLAIMED = 10_000
_claimed: OrderedDict[tuple[int, int], None] = OrderedDict()
"""Trace and span ids of other tracers' spans whose runs a callback has captured, the oldest first."""


def claim(context: SpanContext) -> None:
    """Remember that a callback captures what a span of another tracer is about: no turn is built from the span."""
    _claimed[context.trace_id, context.span_id] = None
    while len(_claimed) > _MAX_CLAIMED:
        with suppress(KeyError):  # another thread has removed it
            _claimed.popitem(last=False)


def is_claimed(trace_id: int, span_id: int) -> bool:
    """Return True if a callback captures what a span is about."""
    return (trace_id, span_id) in _claimed


def _valid(span: Span | None) -> Span | None:
    return span if span is not None and span.get_span_context().is_valid else None


def _name_once(span: Span) -> None:
    """Say in the log which tracer makes the spans, so that a reader knows why we wrote none."""
    scope = _scope_of(span)
    if scope and scope not in _named:
        _named.add(scope)
        _logger.info("rageval-hooks: %s makes spans, so the scores are added to those [RAGEVAL-107]", scope)


def _scope_of(span: Span) -> str | None:
    """Return the name of the tracer that made a span; None if the span does not say."""
    return getattr(getattr(span, "instrumentation_scope", None), "name", None)
