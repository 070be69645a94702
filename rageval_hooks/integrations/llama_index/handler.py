"""The two handlers on LlamaIndex's dispatcher: they pass each span and event to the recorder.

A span that starts becomes a :class:`~rageval_hooks.integrations.capture.recorder.Run`. Events add what spans do not
carry. When the root ends (``streams``), ``turn_from_events`` builds the turn from the runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from functools import partial, wraps
from itertools import chain
from typing import Any, ParamSpec

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.dispatcher import active_instrument_tags
from llama_index_instrumentation.event_handlers import BaseEventHandler
from llama_index_instrumentation.span import BaseSpan, active_span_id
from llama_index_instrumentation.span_handlers import BaseSpanHandler

from rageval_hooks.integrations.capture.deferred import hand_over
from rageval_hooks.integrations.capture.recent_searches import (
    RecentSearch,
    forget_searches,
    note_search,
    recent_searches,
)
from rageval_hooks.integrations.capture.recorder import Run, shared_recorder
from rageval_hooks.integrations.capture.trace_context import note_other_span
from rageval_hooks.integrations.llama_index import streams, values
from rageval_hooks.integrations.llama_index.passages import nodes_in
from rageval_hooks.integrations.llama_index.runs import LlamaIndexRun
from rageval_hooks.integrations.llama_index.turn_building import FRAMEWORK
from rageval_hooks.integrations.llama_index.values import Streamed, is_generator
from rageval_hooks.online.pending import PendingTurn
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.interrupts import is_interrupt
from rageval_hooks.runtime.narrowing import text_or_empty

_NO_TURN = frozenset({"embedding", "ingestion"})
"""Building an index is not a turn."""

_recorder = shared_recorder()
_knows = _recorder.knows
P = ParamSpec("P")


# --------------------------------------------------------------------------- interrupts


_this_thread = threading.local()


class _Handlers(list[Any]):
    """The dispatcher's list of handlers. After the last of them it raises the interrupt that a call has kept.

    The dispatcher swallows whatever its handlers raise, also a deadline of the application.
    """

    def __iter__(self) -> Iterator[Any]:
        """Yield the handlers."""
        return chain(list.__iter__(self), _raise_kept_interrupt())


def _raise_kept_interrupt() -> Iterator[Any]:
    kept = _this_thread.__dict__
    if "interrupt" in kept:
        raise kept.pop("interrupt")
    yield from ()


def _keeping_interrupts(method: Callable[P, None]) -> Callable[P, None]:
    """Let a handler's method keep the interrupts that it raises."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except BaseException as error:
            if not isinstance(error, Exception) or is_interrupt(error):
                _this_thread.interrupt = error

    return call


# --------------------------------------------------------------------------- handlers


class _SpanHandler(BaseSpanHandler[BaseSpan]):
    """Records spans. The lists of the base class stay empty: the recorder keeps the runs."""

    @_keeping_interrupts
    def span_enter(
        self,
        id_: str,
        bound_args: Any,
        instance: Any = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a span has started."""
        pipeline = streams.source.pipeline
        if pipeline is None or streams.source.ignores:
            return
        try:
            _start(pipeline, id_, parent_id, bound_args, instance)
        except BaseException as error:
            try:
                streams.source.failed(id_, error)
            except BaseException:
                active_span_id.set(parent_id)  # LlamaIndex leaves its context in the span
                raise

    @_keeping_interrupts
    def span_exit(self, id_: str, bound_args: Any, instance: Any = None, result: Any = None, **kwargs: Any) -> None:
        """Record that a span has ended."""
        if not _knows(id_):
            return
        try:
            run = _recorder.get(id_)
            if isinstance(run, LlamaIndexRun):
                _end(run, result)
            else:
                _end_unsampled(id_, result)
        except Exception as error:
            streams.source.failed(id_, error)
            streams.end(id_, result)

    @_keeping_interrupts
    def span_drop(
        self, id_: str, bound_args: Any, instance: Any = None, err: BaseException | None = None, **kwargs: Any
    ) -> None:
        """Record that a span has ended with an exception."""
        if _knows(id_):
            _after_error(err, id_, partial(_drop, id_, err))

    # The base class calls these three from the methods above, which this class replaces.

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


class _EventHandler(BaseEventHandler):
    """Records events."""

    @_keeping_interrupts
    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Record an event on the run of its span."""
        run = _recorder.get(event.span_id)
        record = _RECORDERS.get(type(event).__name__)
        if isinstance(run, LlamaIndexRun) and record is not None:
            _after_error(getattr(event, "exception", None), run.id, partial(record, run, event))


# --------------------------------------------------------------------------- spans


def _start(pipeline: Pipeline, span_id: str, parent_id: str | None, bound_args: Any, instance: Any) -> None:
    kind = values.kind_of(span_id, instance)
    run = _recorder.start(
        pipeline,
        span_id,
        parent_id,
        framework=FRAMEWORK,
        kind=kind,
        name=values.name_of(span_id, instance),
        input=bound_args,
        standalone=kind not in _NO_TURN,
    )
    if not isinstance(run, LlamaIndexRun):
        return
    run.instance = instance
    if kind in ("reranker", "synthesizer"):
        # Postprocessors change nodes in place, so what they were given is copied now.
        run.nodes_before = nodes_in(values.arguments_of(bound_args).get("nodes"))
    if run.parent is None:
        run.metadata = dict(active_instrument_tags.get())
        run.searches_before = recent_searches()
    note_other_span(run)
    if kind == "writer":
        streams.wait_for(run, _writer_key(run))


def _end(run: LlamaIndexRun, result: Any) -> None:
    if run.kind in ("retriever", "reranker"):
        run.nodes_after = nodes_in(result)
        if run.parent is None:
            query = values.query_of(values.arguments_of(run.input))
            note_search(RecentSearch(query, run.nodes_after))
    note_other_span(run)
    if run.kind == "llm" and is_generator(result):
        # The call goes on when its span has ended with a stream. Its last event ends it, or the loss of the stream.
        if run.parent is not None:
            streams.wait_for(run, ("llm", run.id))
        # A finalizer calls: see streams.Follower.
        streams.when_dropped(result, partial(hand_over, _break_off, run.id, GeneratorExit()))
        return
    streamed = values.streamed_in(result)
    # Other tools that watch synthesizers, OpenInference among them, expect the generator that the synthesizer made. It
    # is followed when the engine around the synthesizer returns it.
    if run.kind != "synthesizer" or run.parent is None:
        for response in streamed:
            if not is_generator(response):
                _follow(run, response)
    if run.parent is None:
        streams.end_root_span(run, result)
        return
    streams.end(run.id, Streamed(id(streamed[0])) if streamed else result)
    if run.kind == "writer":
        streams.finish_stream(run, _writer_key(run), None)


def _drop(span_id: str, error: BaseException | None) -> None:
    run = _recorder.get(span_id)
    if run is not None:
        note_other_span(run)
    streams.end(span_id, None, error)
    if isinstance(run, LlamaIndexRun) and run.kind == "writer":
        streams.finish_stream(run, _writer_key(run), error)


def _after_error(error: object, run_id: Hashable, function: Callable[[], None]) -> None:
    """Call a function of ours after an exception; on another thread if it is GeneratorExit."""
    # The garbage collector destroys an abandoned coroutine. It may run anywhere, for example inside ContextVar.set, so
    # no work may be done here.
    if isinstance(error, GeneratorExit):
        hand_over(_safely, run_id, function)
    else:
        _safely(run_id, function)


def _safely(run_id: Hashable, function: Callable[[], PendingTurn | None]) -> PendingTurn | None:
    """Call a function of ours. LlamaIndex's dispatcher, or the reader of a stream, must not see its exceptions."""
    try:
        return function()
    except Exception as error:
        streams.source.failed(run_id, error)
        return None


def _end_unsampled(span_id: str, result: Any) -> None:
    """End a span of a sampled-out turn.

    Its streamed answer is read later, perhaps in another context. Many model classes start another model call then,
    which must not become a turn.
    """
    streams.end(span_id, None)
    for response in values.streamed_in(result):
        stream = getattr(response, "response_gen", None)
        if stream is not None and not streams.Follower.follows(stream):
            response.response_gen = streams.Follower(span_id).follow(stream)
            _recorder.ended.add([span_id])  # the span goes on, as far as the recorder is concerned


def _writer_key(run: LlamaIndexRun) -> tuple[str, int]:
    """Return the key of a chat engine's writer: the thread or task that adds a streamed answer to the history."""
    return ("writer", id(run.instance))


# --------------------------------------------------------------------------- streamed answers


def _follow(run: Run, response: Any) -> None:
    """Follow a streamed answer to its end, wherever it is read."""
    if streams.Follower.follows(response.response_gen):
        return
    key = ("answer", object())
    streams.wait_for(run, key)
    recording = _recorder.recording(run.id)
    runs = [] if recording is None else recording.runs
    # The synthesizer that made the response, or the run that returned it.
    made = (other for other in runs if other.kind == "synthesizer" and other.output == Streamed(id(response)))
    follower = streams.Follower(
        next(made, run).text_id,
        on_text=lambda text: _recorder.token(run.id, text_or_empty(text)),
        on_end=lambda error: _safely(run.id, partial(streams.finish_stream, run, key, error)),
    )
    response.response_gen = follower.follow(response.response_gen)


# --------------------------------------------------------------------------- attaching


_span_handler = _SpanHandler()
_event_handler = _EventHandler()


def attach(pipeline: Pipeline) -> None:
    """Send the turns of everything that LlamaIndex runs in this process to a pipeline, instead of the previous one."""
    streams.source.pipeline = pipeline
    forget_searches()
    dispatcher = get_dispatcher()
    if not any(handler is _span_handler for handler in dispatcher.span_handlers):
        dispatcher.span_handlers = _Handlers([*dispatcher.span_handlers, _span_handler])
        dispatcher.event_handlers = _Handlers([*dispatcher.event_handlers, _event_handler])


def detach() -> None:
    """Remove the handlers, and drop turns that have not ended."""
    dispatcher = get_dispatcher()
    dispatcher.span_handlers = [handler for handler in dispatcher.span_handlers if handler is not _span_handler]
    dispatcher.event_handlers = [handler for handler in dispatcher.event_handlers if handler is not _event_handler]
    streams.source.detach()


# --------------------------------------------------------------------------- events of model calls


def _model_starts(run: LlamaIndexRun, event: Any) -> None:
    if run.kind == "llm":
        return  # another method inside the model's own span: the same call
    call: Run | None = run
    recording = _recorder.recording(run.id)
    if run.kind != "model" and recording is not None:
        # A model without a span of its own, inside the span that the event names.
        run.inner_call = event.id_
        call = _recorder.start(
            recording.owner, event.id_, run.id, framework=FRAMEWORK, kind="llm", name="llm", input=None
        )
    if not isinstance(call, LlamaIndexRun):
        return
    call.kind = "llm"
    call.input = event.messages if hasattr(event, "messages") else event.prompt
    call.model = event.model_dict
    call.options = event.additional_kwargs


def _model_streams(run: LlamaIndexRun, event: Any) -> None:
    key = run.id if run.inner_call is None else run.inner_call
    call = _recorder.get(key)
    if call is not None and call.ended_at is None:
        call.output = event.response  # the last one stays if the stream breaks off
        _recorder.token(key, event.response.delta or "")


def _model_ends(run: LlamaIndexRun, event: Any) -> None:
    _end_model(_call_that_ends(run), event.response, None)


def _model_fails(run: LlamaIndexRun, event: Any) -> None:
    _break_off(_call_that_ends(run), event.exception)


def _call_that_ends(run: LlamaIndexRun) -> Hashable:
    """Return the id of a model call that ends: the run, or the call inside it, which ends once."""
    call, run.inner_call = run.inner_call, None
    return run.id if call is None else call


def _break_off(run_id: Hashable, error: BaseException) -> None:
    call = _recorder.get(run_id)
    if call is not None and call.kind == "llm":
        _end_model(run_id, call.output, error)


def _end_model(run_id: Hashable, response: Any, error: BaseException | None) -> None:
    call = _recorder.get(run_id)
    if call is None:
        return
    streams.end(run_id, response, error)
    if call.parent is not None:
        streams.finish_stream(call, ("llm", call.id), error)


def _workflow_is_cancelled(run: LlamaIndexRun, _event: Any) -> None:
    run.cancelled = True


_RECORDERS: dict[str, Callable[[LlamaIndexRun, Any], None]] = {
    "LLMChatStartEvent": _model_starts,
    "LLMCompletionStartEvent": _model_starts,
    "LLMChatInProgressEvent": _model_streams,
    "LLMCompletionInProgressEvent": _model_streams,
    "LLMChatEndEvent": _model_ends,
    "LLMCompletionEndEvent": _model_ends,
    "ExceptionEvent": _model_fails,
    "SpanCancelledEvent": _workflow_is_cancelled,
}
"""Name of the event's class → what records it on the run of the event's span."""
