"""What only events tell: prompts, streamed text, token counts, and operations that have no span of their own."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from rageval_hooks.integrations.capture.deferred import hand_over
from rageval_hooks.integrations.capture.recorder import Run, shared_recorder
from rageval_hooks.integrations.llama_index.framework import FRAMEWORK
from rageval_hooks.integrations.llama_index.payloads import snapshot
from rageval_hooks.integrations.llama_index.streams import hold, when_dropped
from rageval_hooks.integrations.llama_index.turn_end import end, release_root, root_of

__all__ = ["HANDLERS", "leave_model_open"]


def leave_model_open(run: Run, stream: Any) -> None:
    """Note that a model's span has ended with a stream: events tell the end of the call."""
    root = root_of(run)
    if root is not None and root is not run:
        hold(root, ("llm", run.id))
    when_dropped(stream, partial(_break_off, run.id, GeneratorExit()))


def _end_model(run_id: Hashable, response: Any, error: BaseException | None) -> None:
    run = shared_recorder().get(run_id)
    if run is None or run.ended_at is not None:
        return
    if run.parent is not None:
        end(run_id, response, error)
    if isinstance(error, GeneratorExit):  # the garbage collector may be calling
        hand_over(_end_root, run, response, error)
    else:
        _end_root(run, response, error)


def _end_root(run: Run, response: Any, error: BaseException | None) -> None:
    if run.parent is None:
        end(run.id, response, error)
    else:
        release_root(run, ("llm", run.id), error)


def _model_starts(run: Run, event: Any) -> None:
    if run.kind == "llm":
        return  # another method within the model's own span: the same call
    call = run if run.kind == "model" else _start_inner(run, event, "llm", None)
    if call is not None:
        call.kind = "llm"
        call.input = event.messages if hasattr(event, "messages") else event.prompt
        call.details = {**(call.details or {}), "model": event.model_dict}


def _model_streams(run: Run, event: Any) -> None:
    key = _inner(run, "llm")
    call = shared_recorder().get(key)
    if call is not None and call.ended_at is None:
        call.output = event.response  # all there is, should the stream break off
        shared_recorder().token(key, event.response.delta or "")


def _model_ends(run: Run, event: Any) -> None:
    _end_model(_end_inner(run, "llm"), event.response, None)


def _model_fails(run: Run, event: Any) -> None:
    _break_off(_end_inner(run, "llm"), event.exception)


def _break_off(run_id: Hashable, error: BaseException) -> None:
    call = shared_recorder().get(run_id)
    if call is not None and call.kind == "llm":
        _end_model(run_id, call.output, error)


def _reranking_starts(run: Run, event: Any) -> None:
    if run.kind == "reranker":
        return  # its span tells it all
    inner = _start_inner(run, event, "reranker", {"query": event.query})
    if inner is not None:
        inner.name = event.model_name or inner.name
        inner.details = {"nodes_before": snapshot(event.nodes)}


def _reranking_ends(run: Run, event: Any) -> None:
    inner = shared_recorder().get(_end_inner(run, "reranker"))
    if inner is not None and inner is not run:
        inner.details = {**(inner.details or {}), "nodes_after": snapshot(event.nodes)}
        end(inner.id, None)


def _workflow_is_cancelled(run: Run, _event: Any) -> None:
    run.details = {**(run.details or {}), "cancelled": True}


def _start_inner(run: Run, event: Any, kind: str, input: Any) -> Run | None:
    recording = shared_recorder().recording(run.id)
    if recording is None:
        return None
    inner = shared_recorder().start(recording.owner, event.id_, run.id, kind, kind, input, framework=FRAMEWORK)
    if inner is not None:
        run.details = {**(run.details or {}), f"inner {kind}": inner.id}
    return inner


def _inner(run: Run, kind: str) -> Hashable:
    """Return the id of the operation that an event is about: one without a span inside of the span, or the span's."""
    inner: Hashable = (run.details or {}).get(f"inner {kind}")
    return run.id if inner is None else inner


def _end_inner(run: Run, kind: str) -> Hashable:
    key = _inner(run, kind)
    (run.details or {}).pop(f"inner {kind}", None)
    return key


HANDLERS: dict[str, Callable[[Run, Any], None]] = {
    "LLMChatStartEvent": _model_starts,
    "LLMCompletionStartEvent": _model_starts,
    "LLMChatInProgressEvent": _model_streams,
    "LLMCompletionInProgressEvent": _model_streams,
    "LLMChatEndEvent": _model_ends,
    "LLMCompletionEndEvent": _model_ends,
    "ExceptionEvent": _model_fails,
    "ReRankStartEvent": _reranking_starts,
    "ReRankEndEvent": _reranking_ends,
    "SpanCancelledEvent": _workflow_is_cancelled,
}
"""Event's class → what is recorded of it, on the record of the event's span."""
