"""Facts that LlamaIndex reports in events, not in spans: prompts, streamed text, token counts, some rerankers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from rageval_hooks.integrations.capture.deferred import hand_over
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.run_facts import details_of
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.llama_index.framework import FRAMEWORK
from rageval_hooks.integrations.llama_index.payloads import snapshot
from rageval_hooks.integrations.llama_index.streams import when_dropped
from rageval_hooks.integrations.llama_index.turn_end import end, finish_stream, root_of, wait_for

__all__ = ["HANDLERS", "keep_model_open"]

_recorder = shared_recorder()


def keep_model_open(run: Run, stream: Any) -> None:
    """Keep a model call open whose span has ended with a stream. Its last event ends it, or the loss of the stream."""
    root = root_of(run)
    if root is not None and root is not run:
        wait_for(root, ("llm", run.id))
    when_dropped(stream, partial(_abandon, run.id))


def _abandon(run_id: Hashable) -> None:
    hand_over(_break_off, run_id, GeneratorExit())  # a finalizer calls: see streams.Follower


# --------------------------------------------------------------------------- model calls


def _model_starts(run: Run, event: Any) -> None:
    if run.kind == "llm":
        return  # another method inside the model's own span: the same call
    call = run if run.kind == "model" else _start_inner(run, event, "llm", None)
    if call is None:
        return
    call.kind = "llm"
    call.input = event.messages if hasattr(event, "messages") else event.prompt
    details_of(call)["model"] = event.model_dict
    details_of(call)["options"] = event.additional_kwargs


def _model_streams(run: Run, event: Any) -> None:
    key = _inner_id(run, "llm")
    call = _recorder.get(key)
    if call is not None and call.ended_at is None:
        call.output = event.response  # the last one stays if the stream breaks off
        _recorder.token(key, event.response.delta or "")


def _model_ends(run: Run, event: Any) -> None:
    _end_model(_forget_inner(run, "llm"), event.response, None)


def _model_fails(run: Run, event: Any) -> None:
    _break_off(_forget_inner(run, "llm"), event.exception)


def _break_off(run_id: Hashable, error: BaseException) -> None:
    call = _recorder.get(run_id)
    if call is not None and call.kind == "llm":
        _end_model(run_id, call.output, error)


def _end_model(run_id: Hashable, response: Any, error: BaseException | None) -> None:
    call = _recorder.get(run_id)
    if call is None or call.ended_at is not None:
        return
    end(run_id, response, error)
    if call.parent is not None:
        finish_stream(call, ("llm", call.id), error)


# --------------------------------------------------------------------------- rerankers and workflows


def _reranking_starts(run: Run, event: Any) -> None:
    if run.kind == "reranker":
        return  # its span has all of this
    inner = _start_inner(run, event, "reranker", {"query": event.query})
    if inner is not None:
        inner.name = event.model_name or inner.name
        inner.details = {"nodes_before": snapshot(event.nodes)}


def _reranking_ends(run: Run, event: Any) -> None:
    inner = _recorder.get(_forget_inner(run, "reranker"))
    if inner is not None and inner is not run:
        details_of(inner)["nodes_after"] = snapshot(event.nodes)
        end(inner.id, None)


def _workflow_is_cancelled(run: Run, _event: Any) -> None:
    details_of(run)["cancelled"] = True


# --------------------------------------------------------------------------- operations without a span


def _start_inner(run: Run, event: Any, kind: str, input: Any) -> Run | None:
    """Start a run for an operation that has events but no span, inside of the span that the event names."""
    recording = _recorder.recording(run.id)
    if recording is None:
        return None
    inner = _recorder.start(recording.owner, event.id_, run.id, kind, kind, input, framework=FRAMEWORK)
    if inner is not None:
        details_of(run)[f"inner {kind}"] = inner.id
    return inner


def _inner_id(run: Run, kind: str) -> Hashable:
    """Return the id of the run that an event is about: the operation inside of its span, else the span's own."""
    inner: Hashable = details_of(run).get(f"inner {kind}")
    return run.id if inner is None else inner


def _forget_inner(run: Run, kind: str) -> Hashable:
    inner_id = _inner_id(run, kind)
    details_of(run).pop(f"inner {kind}", None)
    return inner_id


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
"""Name of the event's class → what records it on the run of the event's span."""
