"""The end of a turn: it is held if it waits to be resumed, else built and submitted, here or on another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.capture.held_turns import held_turns
from rageval_hooks.integrations.capture.merging import turn_of
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.integrations.langchain.framework import FRAMEWORK, key_of
from rageval_hooks.integrations.langchain.other_tracers import note_other_span
from rageval_hooks.integrations.langchain.resuming import has_copies, hold_if_waiting, join_halves
from rageval_hooks.integrations.langchain.snapshots import snapshot_runs
from rageval_hooks.online.inline import Arrival
from rageval_hooks.turn import Turn

__all__ = ["end"]

_recorder = shared_recorder()


def end(run_id: UUID, output: Any, error: BaseException | None) -> Arrival | None:
    """Record that a run has ended, and submit the turn if it was the root of one.

    Returns:
        What an async caller waits for, within the budget for inline scores; None if there is nothing to wait for.
    """
    key = key_of(run_id)
    run = _recorder.get(key)
    if run is not None:
        note_other_span(run)
    recording = _recorder.end(key, output, error)
    if recording is None or _is_state_update(recording):
        return None
    if deferred.closes_generator() or _is_left_early(recording):
        pipeline = recording.owner
        deferred.hand_over(_finish, recording, size=pipeline.typical_size, on_full=partial(pipeline.drop, "queue_full"))
        return None
    submitted = _finish(recording)
    # The caller of a cancelled call does not wait for scores.
    return None if isinstance(error, (asyncio.CancelledError, GeneratorExit)) else submitted


def _is_left_early(recording: Recording) -> bool:
    """Return True if a stream has ended before the runs inside it: its reader has left it.

    LangChain swallows the GeneratorExit of most streams, so :func:`deferred.closes_generator` does not see that the
    garbage collector may be closing this one.
    """
    return recording.streamed and any(run.ended_at is None for run in recording.runs)


def _is_state_update(recording: Recording) -> bool:
    """Return True if the root is LangGraph's ``update_state``. It runs branches but answers nothing."""
    return recording.root.name.endswith("UpdateState") and all(run.kind == "chain" for run in recording.runs)


def _finish(recording: Recording) -> Arrival | None:
    """Submit the turn of a recording, or hold it if it waits to be resumed; returns what an async caller waits for."""
    if _is_bare_model(recording):
        return _submit(recording)
    try:
        held_turns().submit_old()
        join_halves(recording)
        if hold_if_waiting(recording):
            return None
    except Exception as error:
        recording.owner.failed("the halves of a turn could not be joined", error)
    return _submit(recording)


def _submit(recording: Recording) -> Arrival | None:
    """Submit the turn of a recording; returns what an async caller waits for.

    The turn is built on another thread if this one runs an event loop, or if the caller does not wait for any score.
    """
    computed_inline = _is_computed_inline(recording)
    if computed_inline and deferred.running_loop() is None:
        turn = _build(recording)
        return None if turn is None else deferred.submit(recording.owner, turn, recording.selection)

    build = _build_later(recording)
    if build is None:
        return None
    arrival = recording.owner.submit(build, recording.selection, computes_inline=computed_inline)
    return arrival if computed_inline else None


def _is_computed_inline(recording: Recording) -> bool:
    pipeline = recording.owner
    if not pipeline.computes_inline:
        return False
    return pipeline.settings.evaluate_without_retrieval or not _is_bare_model(recording)


def _is_bare_model(recording: Recording) -> bool:
    """Return True for a model that is called by itself: it has retrieved nothing."""
    return recording.root.kind == "llm" and len(recording.runs) == 1


def _build_later(recording: Recording) -> Turn | Callable[[], Turn] | None:
    """Return a function that builds the turn from what it is now, or the turn if it cannot be built later."""
    # There are no copies of what runs of other frameworks hold.
    if any(run.framework is not FRAMEWORK for run in recording.runs):
        return _build(recording)
    try:
        if not has_copies(recording):
            snapshot_runs(recording.runs, recording.owner.settings.spans == "all")
    except Exception:
        return _build(recording)  # an object that cannot be copied
    return partial(turn_of, recording)


def _build(recording: Recording) -> Turn | None:
    """Return the turn of a recording; None if our own code failed, which is logged and counted."""
    try:
        return turn_of(recording)
    except Exception as error:
        recording.owner.failed("a turn could not be built from what was recorded", error)
        recording.owner.drop("not_built")
        return None
