"""The spans that other tracers make for runs of LangChain. Scores are added to these spans.

The spans are read from what the other tracer keeps. Two tracers need a wrapper around one of their methods: Langfuse's
handlers cannot be reached from ours, and LangSmith makes its spans when the run is over.

Private names:

- OpenTelemetry's GenAI instrumentor: ``_invocation_manager`` of its handler, and ``_start_span`` of an invocation.
  Tested with opentelemetry-instrumentation-genai-langchain 1.3b0. OpenInference's ``get_span`` and OpenLLMetry's
  ``spans`` are public.
- Langfuse: ``LangchainCallbackHandler._attach_observation``, and ``_otel_span`` of an observation. Tested with
  langfuse 5.0; from version 6 on, nothing is wrapped.
- LangSmith: ``OTELExporter._create_span_for_run``, ``_span_info`` and ``_tracer`` in
  ``langsmith._internal.otel._otel_exporter``, and ``langsmith.run_trees._CLIENT``. Tested with langsmith 0.15; from
  version 1 on, nothing is wrapped.

In a version without these names, the scores go on spans of our own.
"""

from __future__ import annotations

import logging
import re
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags

from rageval_hooks.integrations.capture.recorder import Recording
from rageval_hooks.integrations.langchain.wrapped_methods import WrappedMethods
from rageval_hooks.runtime.interrupts import raise_interrupt
from rageval_hooks.runtime.tracing import RandomIds, preset_ids

_logger = logging.getLogger(__name__)


def find_span(run_id: Any, recording: Recording | None) -> Span | None:
    """Return the span of another tracer for a run; the first one's if several tracers are active.

    Args:
        run_id: the run's id.
        recording: what the run belongs to; None for a root that is about to start.
    """
    try:
        # Asked at the start and the end of each run, and most applications have no other tracer.
        if not (_handlers() or _langfuse.installed or _langsmith.installed):
            return None
        return next((span for span in _spans_of(run_id, recording) if span is not None), None)
    except Exception as error:  # another version of that tracer, which keeps its spans elsewhere
        raise_interrupt(error)
        _logger.debug("rageval-hooks: spans of another tracer could not be read", exc_info=True)
        return None


def watch() -> None:
    """Note the spans of tracers that cannot be read later."""
    global _watching
    _watching = True
    _langfuse.install()
    _langsmith.install()


def unwatch() -> None:
    """Take back what :func:`watch` did; for LangSmith when all spans have the ids that were chosen for them."""
    global _watching
    _watching = False
    _langfuse.remove()
    _remove_when_done()


def _remove_when_done() -> None:
    if not _watching and not _pending:
        _langsmith.remove()


def _spans_of(run_id: Any, recording: Recording | None) -> Iterator[Span | None]:
    for handler, span_of in _handlers():
        yield span_of(handler, run_id)
    yield _langfuse_spans.get(run_id)
    if _langsmith.installed and recording is not None:
        yield from _langsmith_spans(run_id, recording)


# --------------------------------------------------------------------------- OpenInference, OpenLLMetry, OTel's GenAI


Reader = Callable[[Any, UUID], Span | None]


def _of_openllmetry(handler: Any, run_id: UUID) -> Span | None:
    holder = handler.spans.get(run_id)
    return None if holder is None else holder.span


def _of_otel_genai(handler: Any, run_id: UUID) -> Span | None:
    invocation = handler._invocation_manager.get_invocation(run_id)
    # An invocation without its own span refers to the application's current span.
    if invocation is None or not getattr(invocation, "_start_span", True):
        return None
    span: Span = invocation.span
    return span


_READERS: dict[str, Reader] = {
    "openinference.instrumentation.langchain.": lambda handler, run_id: handler.get_span(run_id),
    "opentelemetry.instrumentation.langchain.": _of_openllmetry,
    "opentelemetry.instrumentation.genai.langchain.": _of_otel_genai,
}
"""How to read the spans of a handler, by the beginning of its module's name."""

_seen: tuple[object, tuple[tuple[BaseCallbackHandler, Reader], ...]] = (None, ())
"""The constructor that was read last, and the handlers that it adds."""


def _handlers() -> tuple[tuple[BaseCallbackHandler, Reader], ...]:
    """Return the handlers of the instrumentors that are active.

    All three wrap the constructor of LangChain's callback managers, so that every manager has their handler. A manager
    that is made for this purpose has it too.
    """
    global _seen
    # Instrumentors wrap the constructor and unwrap it: as long as it is the same object, so are the handlers.
    constructor = vars(BaseCallbackManager)["__init__"]
    seen, handlers = _seen
    if constructor is not seen:
        handlers = tuple(
            (handler, reader)
            for handler in BaseCallbackManager(handlers=[]).inheritable_handlers
            for prefix, reader in _READERS.items()
            if f"{type(handler).__module__}.".startswith(prefix)
        )
        _seen = (constructor, handlers)
    return handlers


# --------------------------------------------------------------------------- Langfuse


_langfuse_spans: weakref.WeakValueDictionary[UUID, Span] = weakref.WeakValueDictionary()
"""Open spans by run: a span that has ended is soon gone."""


def _noting_span(method: FunctionType) -> Callable[..., Any]:
    # The application makes a handler for each call, and LangChain does not show a handler to the others.
    def attach_observation(self: Any, run_id: UUID, observation: Any, *args: Any, **kwargs: Any) -> Any:
        span = getattr(observation, "_otel_span", None)
        if isinstance(span, Span):
            _langfuse_spans[run_id] = span
        return method(self, run_id, observation, *args, **kwargs)

    return attach_observation


_langfuse = WrappedMethods(
    "langfuse.langchain.CallbackHandler",
    "LangchainCallbackHandler",
    re.compile("_attach_observation"),
    _noting_span,
    below=("langfuse", 6),
)


# --------------------------------------------------------------------------- LangSmith (LANGSMITH_OTEL_ENABLED)


_REMEMBERED = 4096

_chosen: OrderedDict[UUID, SpanContext] = OrderedDict()
"""The context that the span of a run gets, by the run's id.

LangSmith makes the span of a run on its own thread, often after the run has ended, and with a random id. So the method
that makes it is wrapped: the spans of a turn get ids that are chosen when their runs start.
"""

_pending: set[UUID] = set()
"""Runs whose span has not been made."""

_watching = False


def _langsmith_spans(run_id: UUID, recording: Recording) -> Iterator[Span | None]:
    """Yield the span that LangSmith has made for a run or will make; nothing if it does not trace this run."""
    # Not imported here: an application without LangSmith must not load it.
    trees, utils = sys.modules["langsmith.run_trees"], sys.modules["langsmith.utils"]
    exporter = getattr(trees._CLIENT, "otel_exporter", None)
    # A run that LangSmith samples out gets no span. Which ones these are is decided later.
    if exporter is None or not utils.tracing_is_enabled() or trees._CLIENT.tracing_sample_rate is not None:
        return
    # If the run took a while, its span exists by the end of the run and is still open.
    if made := exporter._span_info.get(run_id):
        yield made.span
        return
    context = _chosen.get(run_id)
    if context is None:
        # The trace of the application's current span, or that of the turn if it begins a trace.
        selection = recording.selection
        flags = TraceFlags(selection.flags)
        context = SpanContext(selection.trace_id, RandomIds().generate_span_id(), is_remote=False, trace_flags=flags)
        _chosen[run_id] = context
        _pending.add(run_id)
        if len(_chosen) > _REMEMBERED:
            _pending.discard(_chosen.popitem(last=False)[0])
    if run_id != recording.root.id:
        # Without a span for the root, LangSmith traces only a part of the turn, in a trace that is not known.
        yield NonRecordingSpan(context) if recording.other_span is not None else None
        return
    # LangSmith's run of the function with ``@traceable`` that the calling code is in.
    helpers = sys.modules.get("langsmith.run_helpers")
    around = None if helpers is None else helpers.get_current_run_tree()
    if around is None:
        yield NonRecordingSpan(context)
    # The run is in the trace of the function, which is not known before LangSmith has made the function's span.
    elif made := exporter._span_info.get(around.id):
        trace_id = made.span.get_span_context().trace_id
        yield NonRecordingSpan(SpanContext(trace_id, context.span_id, is_remote=False, trace_flags=context.trace_flags))


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
            _remove_when_done()

    return create_span_for_run


_langsmith = WrappedMethods(
    "langsmith._internal.otel._otel_exporter",
    "OTELExporter",
    re.compile("_create_span_for_run"),
    _with_chosen_ids,
    below=("langsmith", 1),
)
