"""The end of a root: with its span, or when the last of what it streams was read."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any

from rageval_hooks.integrations.capture import deferred as handover
from rageval_hooks.integrations.capture.merging import turn_of
from rageval_hooks.integrations.capture.recorder import Recording, Run, shared_recorder
from rageval_hooks.integrations.llama_index.framework import FRAMEWORK
from rageval_hooks.integrations.llama_index.openinference import foreign_span
from rageval_hooks.integrations.llama_index.payloads import Streamed, is_generator, streamed_in
from rageval_hooks.integrations.llama_index.streams import leave, release
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger

__all__ = ["end", "failed", "leave_root", "look_for_foreign_span", "release_root", "root_of"]

_MEANINGFUL = frozenset({"query", "chat", "agent", "workflow", "synthesizer", "retriever", "reranker", "llm", "tool"})
_limited_log = RateLimitedLogger(logging.getLogger(__name__))
_WRITERS = ("write_response_to_history_thread", "awrite_response_to_history_task")


def root_of(run: Run) -> Run | None:
    """Return the root that waits for what is streamed: not one of another framework, which ends as that says."""
    recording = shared_recorder().recording(run.id)
    return recording.root if recording is not None and recording.root.framework is FRAMEWORK else None


def end(run_id: Hashable, output: Any, error: BaseException | None = None) -> None:
    """End a run; if it is a root, submit its turn."""
    recording = shared_recorder().end(run_id, output, error)
    if recording is not None:
        _submit(recording)


def leave_root(root: Run, result: Any) -> None:
    """Note that a root's span has ended, and end the root unless something is still being streamed."""
    streamed = streamed_in(result)
    root.output = Streamed(id(streamed[0])) if streamed else result
    writer = ("writer", id(result)) if any(getattr(result, name, None) is not None for name in _WRITERS) else None
    if leave(root, writer, models=any(map(is_generator, streamed))):
        end(root.id, root.output, root.error)


def release_root(run: Run, key: tuple[str, Hashable], error: BaseException | None) -> None:
    """Note that something was streamed to its end, and end the root if that was the last it waited for."""
    root = root_of(run)
    if root is not None and release(root, key, error):
        end(root.id, root.output, root.error)


def _submit(recording: Recording) -> None:
    pipeline = recording.owner
    if not any(run.kind in _MEANINGFUL for run in recording.runs):
        return  # a parser or the like, used on its own
    try:
        if recording.external_span is None:
            recording.external_span = foreign_span(recording.root.id)
        turn = turn_of(recording)
    except Exception as error:
        pipeline.failed("a turn could not be built from what was recorded", error)
        return
    handover.submit(pipeline, turn, recording.selection)


def look_for_foreign_span(run: Run) -> None:
    """See whether somebody else's instrumentation has a span for the root by now."""
    recording = shared_recorder().recording(run.id)
    if recording is not None and recording.external_span is None and recording.root.framework is FRAMEWORK:
        recording.external_span = foreign_span(recording.root.id)


def failed(run_id: Hashable, error: BaseException) -> None:
    """Log our own mistake, which the dispatcher would swallow."""
    recording = shared_recorder().recording(run_id)
    if recording is not None:
        recording.owner.failed("a span or an event of LlamaIndex could not be recorded", error)
    else:
        _limited_log.warn("after the end", "a span of LlamaIndex has ended, but not for us", error=error)
