"""Spans of LangSmith's tracer in its OpenTelemetry mode (``LANGSMITH_OTEL_ENABLED``).

LangSmith makes the span of a run on its own thread, often after the run has ended, and with a random id. So the
method that makes it is wrapped: the spans of a turn get ids that are chosen when their runs start.

Private names: ``OTELExporter._create_span_for_run``, ``_span_info`` and ``_tracer`` in
``langsmith._internal.otel._otel_exporter``, and ``langsmith.run_trees._CLIENT``. Tested with langsmith 0.15. In a
version without them, and from version 1 on, nothing is wrapped, and the scores go on spans of our own.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType
from typing import Any
from uuid import UUID

from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags

from rageval_hooks.integrations.capture.runs import Recording, Run
from rageval_hooks.integrations.capture.wrapped_methods import WrappedMethods
from rageval_hooks.runtime.tracing import RandomIds, preset_ids

_REMEMBERED = 4096

_chosen: OrderedDict[UUID, SpanContext] = OrderedDict()
"""The context that the span of a run gets, by the run's id."""

_pending: set[UUID] = set()
"""Runs whose span has not been made."""

_watching = False


def is_active() -> bool:
    """Return True if LangSmith exports to OpenTelemetry, perhaps not for every run."""
    return _methods.installed


def find_span(run_id: UUID, run: Run, recording: Recording) -> Span | None:
    """Return the span that LangSmith has made for a run or will make; None if it does not trace this run."""
    exporter = _active_exporter()
    if exporter is None:
        return None
    made = exporter._span_info.get(run_id)
    # If the run took a while, its span exists by the end of the run and is still open.
    if made is not None:
        span: Span = made.span
        return span
    context = _choose(run_id, recording)
    if run is not recording.root:
        # Without a span for the root, LangSmith traces only a part of the turn, in a trace that is not known.
        return NonRecordingSpan(context) if recording.other_span is not None else None
    # LangSmith's run of the function with ``@traceable`` that the calling code is in.
    helpers = sys.modules.get("langsmith.run_helpers")
    around = None if helpers is None else helpers.get_current_run_tree()
    if around is None:
        return NonRecordingSpan(context)
    # The run is in the trace of the function, which is not known before LangSmith has made the function's span.
    made = exporter._span_info.get(around.id)
    if made is None:
        return None
    trace_id = made.span.get_span_context().trace_id
    return NonRecordingSpan(SpanContext(trace_id, context.span_id, is_remote=False, trace_flags=context.trace_flags))


def _active_exporter() -> Any:
    """Return the exporter of LangSmith's client; None if LangSmith does not trace here."""
    # Not imported here: an application without LangSmith must not load it.
    trees, utils = sys.modules.get("langsmith.run_trees"), sys.modules.get("langsmith.utils")
    if trees is None or utils is None:
        return None
    exporter = getattr(trees._CLIENT, "otel_exporter", None)
    if exporter is None or not utils.tracing_is_enabled():
        return None
    # A run that LangSmith samples out gets no span. Which ones these are is decided later.
    if trees._CLIENT.tracing_sample_rate is not None:
        return None
    return exporter


def _choose(run_id: UUID, recording: Recording) -> SpanContext:
    """Return the context for the span of a run; the same for each call with this run."""
    context = _chosen.get(run_id)
    if context is None:
        # The trace of the application's current span, or that of the turn if it begins a trace.
        selection = recording.selection
        flags = TraceFlags(selection.flags)
        context = SpanContext(selection.trace_id, RandomIds().generate_span_id(), is_remote=False, trace_flags=flags)
        _chosen[run_id] = context
        _pending.add(run_id)
        if len(_chosen) > _REMEMBERED:
            oldest, _ = _chosen.popitem(last=False)
            _pending.discard(oldest)
    return context


def watch() -> None:
    """Wrap the method, now or when LangSmith imports the module."""
    global _watching
    _watching = True
    _methods.install()


def unwatch() -> None:
    """Restore the method, as soon as all spans have the ids that were chosen for them."""
    global _watching
    _watching = False
    _restore_when_done()


def _restore_when_done() -> None:
    if not _watching and not _pending:
        _methods.remove()
        _chosen.clear()


def _with_chosen_ids(method: FunctionType) -> Callable[..., Any]:
    def create_span_for_run(self: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        context = _chosen.get(op.id)
        if context is None:
            return method(self, op, *args, **kwargs)
        try:
            with preset_ids(self._tracer, (context.trace_id, context.span_id)):
                return method(self, op, *args, **kwargs)
        finally:
            _pending.discard(op.id)
            _restore_when_done()

    return create_span_for_run


_methods = WrappedMethods(
    "langsmith._internal.otel._otel_exporter",
    "OTELExporter",
    re.compile("_create_span_for_run"),
    _with_chosen_ids,
    below=("langsmith", 1),
)
