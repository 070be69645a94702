"""The thin part: two handlers that hand every span and event of LlamaIndex's dispatcher to the recorder."""

from __future__ import annotations

from functools import partial
from typing import Any

from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.dispatcher import active_instrument_tags
from llama_index_instrumentation.event_handlers import BaseEventHandler
from llama_index_instrumentation.span import BaseSpan
from llama_index_instrumentation.span_handlers import BaseSpanHandler
from opentelemetry import context as otel_context

from rageval_hooks.integrations.capture.recorder import Run, shared_recorder
from rageval_hooks.integrations.llama_index.components import kind_of, name_of
from rageval_hooks.integrations.llama_index.framework import FRAMEWORK
from rageval_hooks.integrations.llama_index.operations import HANDLERS, leave_model_open
from rageval_hooks.integrations.llama_index.payloads import Streamed, arguments_of, is_generator, snapshot, streamed_in
from rageval_hooks.integrations.llama_index.streams import Follower, hold
from rageval_hooks.integrations.llama_index.turn_end import (
    end,
    failed,
    leave_root,
    look_for_foreign_span,
    release_root,
    root_of,
)
from rageval_hooks.integrations.llama_index.unsampled import (
    LeftOut,
    is_part_left_out,
    is_read_here,
    left_out,
    note_stream,
)
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.suppression import is_suppressed

__all__ = ["attach", "detach"]

_NEVER_STREAMED = frozenset({type(None), str, list, dict})
_STREAMED = frozenset({"StreamingResponse", "AsyncStreamingResponse"})
_NO_TURN = frozenset({"embedding", "ingestion"})
"""Building an index is no turn."""

_pipeline: Pipeline | None = None
_recorder = shared_recorder()
_knows = _recorder.knows


class _SpanHandler(BaseSpanHandler[BaseSpan]):
    """Records spans. Keeps none in the base class's lists."""

    @classmethod
    def class_name(cls) -> str:
        """Return the handler's name."""
        return "RagevalSpanHandler"

    def span_enter(
        self,
        id_: str,
        bound_args: Any,
        instance: Any = None,
        parent_id: str | None = None,
        tags: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record that a span has begun."""
        pipeline = _pipeline
        if is_part_left_out(parent_id) or pipeline is None or not pipeline.enabled or is_suppressed():
            return
        try:
            _enter(pipeline, id_, parent_id, bound_args, instance)
        except Exception as error:
            pipeline.failed("the start of a span of LlamaIndex could not be recorded", error)

    def span_exit(self, id_: str, bound_args: Any, instance: Any = None, result: Any = None, **kwargs: Any) -> None:
        """Record that a span has ended."""
        try:
            if not _knows(id_):
                root = left_out.get()
                if root is not None and root.span_id == id_:
                    root.end()
                    _pass_over(id_, result)
                elif root is not None and type(result).__name__ in _STREAMED:
                    _pass_over(root.span_id, result)  # the root may return it inside of something else
                return
            run = _recorder.get(id_)
            if run is not None:
                _exit(run, result)
            else:
                _pass_over(id_, result)
                end(id_, None)
        except Exception as error:
            failed(id_, error)
            end(id_, result)

    def span_drop(
        self, id_: str, bound_args: Any, instance: Any = None, err: BaseException | None = None, **kwargs: Any
    ) -> None:
        """Record that a span has ended with an exception."""
        try:
            if not _knows(id_):
                root = left_out.get()
                if root is not None and root.span_id == id_:
                    root.end()
                return
            run = _recorder.get(id_)
            end(id_, None, err)
            if run is not None and run.kind == "writer":
                release_root(run, _writer(run), err)
        except Exception as error:
            failed(id_, error)

    # What the base class's methods in the place of those above would call.

    def new_span(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


class _EventHandler(BaseEventHandler):
    """Records events."""

    @classmethod
    def class_name(cls) -> str:
        """Return the handler's name."""
        return "RagevalEventHandler"

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Record an event on its span's record."""
        if not _knows(event.span_id):
            return
        record = HANDLERS.get(type(event).__name__)
        run = _recorder.get(event.span_id)
        if record is None or run is None:
            return
        try:
            record(run, event)
        except Exception as error:
            failed(run.id, error)


def _enter(pipeline: Pipeline, span_id: str, parent_id: str | None, bound_args: Any, instance: Any) -> None:
    kind = kind_of(span_id, instance)
    selection = None
    if parent_id is None and _recorder.surrounding(FRAMEWORK) is None:
        is_none = kind in _NO_TURN or _recorder.is_left_out(FRAMEWORK) or is_read_here()
        selection = None if is_none else pipeline.begin(otel_context.get_current())
        if selection is None or not selection.selected:
            left_out.set(LeftOut(span_id))
            return
    run = _recorder.start(
        pipeline,
        span_id,
        parent_id,
        kind,
        name_of(span_id, instance),
        bound_args,
        framework=FRAMEWORK,
        standalone=kind not in _NO_TURN,
        selection=selection,
    )
    if run is None:
        return
    run.details = {"instance": instance}
    if kind in ("reranker", "synthesizer"):
        run.details["nodes_before"] = snapshot(arguments_of(bound_args).get("nodes"))
    if run.parent is None:
        run.metadata = dict(active_instrument_tags.get())
    if run.parent is None or kind == "retriever":
        look_for_foreign_span(run)
    if kind == "writer":
        root = root_of(run)
        if root is not None:
            hold(root, _writer(run))


def _exit(run: Run, result: Any) -> None:
    if run.kind in ("retriever", "reranker") and run.details is not None:
        run.details["nodes_after"] = snapshot(result)
    if run.kind == "llm" and is_generator(result):
        leave_model_open(run, result)
        return
    streamed = streamed_in(result)
    if run.kind != "synthesizer" or run.parent is None:
        # Others that watch a synthesizer, as OpenInference does, look for the generator that it returned.
        for response in streamed:
            if not is_generator(response):
                _follow(run, response)
    if run.parent is None:
        leave_root(run, result)
        return
    end(run.id, Streamed(id(streamed[0])) if streamed else result)
    if run.kind == "writer":
        release_root(run, _writer(run), None)


def _pass_over(span_id: str, result: Any) -> None:
    """Keep what is streamed for a turn that is not looked at from being taken for another turn.

    Args:
        span_id: the root's.
        result: what a span returned.
    """
    kind = type(result)
    if kind in _NEVER_STREAMED:
        return
    for response in (result,) if kind.__name__ in _STREAMED else streamed_in(result):
        stream = getattr(response, "response_gen", None)
        if stream is not None and not note_stream(stream):
            response.response_gen = Follower(span_id).follow(stream)


def _writer(run: Run) -> tuple[str, int]:
    """Return what stands for the work of a chat engine that writes its streamed answer down, beside its readers."""
    return ("writer", id((run.details or {}).get("instance")))


def _follow(run: Run, response: Any) -> None:
    """Follow a streamed answer to its last word, wherever it will be read."""
    if Follower.follows(response.response_gen):
        return
    key = ("answer", object())
    root = root_of(run)
    if root is not None:
        hold(root, key)
    recording = _recorder.recording(run.id)
    runs = recording.runs if recording is not None else []
    made = (other for other in runs if other.kind == "synthesizer" and other.output == Streamed(id(response)))
    source = next(made, run)
    follower = Follower(
        str(source.id),
        on_text=lambda text: _recorder.token(run.id, text if isinstance(text, str) else ""),
        on_end=partial(_stop_following, run, key),
    )
    response.response_gen = follower.follow(response.response_gen)


def _stop_following(run: Run, key: tuple[str, object], error: BaseException | None) -> None:
    try:
        release_root(run, key, error)
    except Exception as failure:
        failed(run.id, failure)


_span_handler = _SpanHandler()
_event_handler = _EventHandler()


def attach(pipeline: Pipeline) -> None:
    """Send the turns of everything that LlamaIndex runs in the process to a pipeline; replaces the one before."""
    global _pipeline
    _pipeline = pipeline
    dispatcher = get_dispatcher()
    if not any(handler is _span_handler for handler in dispatcher.span_handlers):
        dispatcher.add_span_handler(_span_handler)
        dispatcher.add_event_handler(_event_handler)


def detach() -> None:
    """Take the handlers away; what is under way is forgotten."""
    global _pipeline
    pipeline, _pipeline = _pipeline, None
    dispatcher = get_dispatcher()
    dispatcher.span_handlers[:] = [handler for handler in dispatcher.span_handlers if handler is not _span_handler]
    dispatcher.event_handlers[:] = [handler for handler in dispatcher.event_handlers if handler is not _event_handler]
    if pipeline is not None:
        _recorder.forget(pipeline)
