"""The end of a turn: when the root's span ends, or, if the answer is streamed, when the last stream ends.

A root may wait for several streams: the ``answer`` that its caller reads, the ``writer`` of a chat engine, which adds
the answer to the chat history on another thread or task, and a model's stream (``llm``).
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any

from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.capture.merging import turn_of
from rageval_hooks.integrations.capture.other_spans import look_for_other_span
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.run_facts import details_of
from rageval_hooks.integrations.capture.runs import Recording, Run
from rageval_hooks.integrations.llama_index.framework import FRAMEWORK
from rageval_hooks.integrations.llama_index.other_tracers import find_span
from rageval_hooks.integrations.llama_index.payloads import Streamed, is_generator, streamed_in
from rageval_hooks.runtime.logs import RateLimitedLogger

__all__ = [
    "StreamKey",
    "end",
    "end_root_span",
    "finish_stream",
    "log_failure",
    "root_of",
    "wait_for",
]

StreamKey = tuple[str, Hashable]
"""The source of the stream (``answer``, ``writer`` or ``llm``), and the identity of the stream."""

_MEANINGFUL = frozenset({"query", "chat", "agent", "workflow", "synthesizer", "retriever", "reranker", "llm", "tool"})
_WRITERS = ("write_response_to_history_thread", "awrite_response_to_history_task")
"""Attributes of a streamed chat response: the thread or the task that adds it to the history."""

_recorder = shared_recorder()
_limited_log = RateLimitedLogger(logging.getLogger(__name__))


class _OpenStreams:
    """The streams that a root waits for.

    No lock: several threads may see that a turn is over, and :func:`end` ends it once.
    """

    __slots__ = ("finished", "models_count", "open", "span_ended")

    def __init__(self) -> None:
        self.open: set[StreamKey] = set()
        self.finished: set[StreamKey] = set()
        self.span_ended = False
        self.models_count = False

    @property
    def turn_is_over(self) -> bool:
        return self.span_ended and not any(self.models_count or kind != "llm" for kind, _ in tuple(self.open))


def root_of(run: Run) -> Run | None:
    """Return the root that waits for streams. A root of another framework ends when that framework says so."""
    recording = _recorder.recording(run.id)
    return recording.root if recording is not None and recording.root.framework is FRAMEWORK else None


def wait_for(root: Run, key: StreamKey) -> None:
    """Let a root wait for a stream."""
    _open_streams(root).open.add(key)


def end(run_id: Hashable, output: Any, error: BaseException | None = None) -> None:
    """End a run; if it is a root, submit its turn."""
    recording = _recorder.end(run_id, output, error)
    if recording is not None:
        _submit(recording)


def end_root_span(root: Run, result: Any) -> None:
    """Record that a root's span has ended. The turn ends too, unless something is still being streamed."""
    streamed = streamed_in(result)
    root.output = Streamed(id(streamed[0])) if streamed else result
    streams = _open_streams(root)
    if any(getattr(result, name, None) is not None for name in _WRITERS):
        # The writer may not have started yet, or have finished already: added first, then removed, so that a writer
        # that finishes at this moment is not waited for forever.
        writer = ("writer", id(result))
        streams.open.add(writer)
        if writer in streams.finished:
            streams.open.discard(writer)
    # If the root returns a model's own stream, the end of the model call is the end of the answer.
    streams.models_count = any(map(is_generator, streamed))
    streams.span_ended = True
    if streams.turn_is_over:
        end(root.id, root.output, root.error)
    else:
        _recorder.hold(root)


def finish_stream(run: Run, key: StreamKey, error: BaseException | None) -> None:
    """Record that a stream has ended, and end the turn if that was the last stream it waited for."""
    root = root_of(run)
    if root is None:
        return
    streams = _open_streams(root)
    streams.finished.add(key)
    if key not in streams.open:
        return
    streams.open.discard(key)
    # A model inside of an engine may fail, and the engine may try another one.
    is_of_answer = key[0] != "llm" or streams.models_count
    if is_of_answer and root.error is None:
        root.error = error
    if streams.turn_is_over:
        end(root.id, root.output, root.error)


def _open_streams(root: Run) -> _OpenStreams:
    streams: _OpenStreams = details_of(root).setdefault("streams", _OpenStreams())
    return streams


def _submit(recording: Recording) -> None:
    if not any(run.kind in _MEANINGFUL for run in recording.runs):
        return  # for example a node parser that is used on its own
    pipeline = recording.owner
    try:
        look_for_other_span(recording.root, recording, find_span)
        turn = turn_of(recording)
    except Exception as error:
        pipeline.failed("a turn could not be built from what was recorded", error)
        pipeline.drop("not_built")
        return
    deferred.submit(pipeline, turn, recording.selection)


def log_failure(run_id: Hashable, error: BaseException) -> None:
    """Log an exception of our own code. LlamaIndex's dispatcher would swallow it."""
    recording = _recorder.recording(run_id)
    if recording is not None:
        recording.owner.failed("a span or an event of LlamaIndex could not be recorded", error)
    else:
        _limited_log.warn(
            "after the end", "an event after the end of a LlamaIndex turn failed [RAGEVAL-212]", error=error
        )
