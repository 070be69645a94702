"""The end of a turn: it is held if it waits to be resumed, else built and submitted, here or on another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
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
from rageval_hooks.integrations.langchain.payloads import copy_values
from rageval_hooks.integrations.langchain.resuming import hold_if_waiting, join_halves
from rageval_hooks.online.pending import PendingTurn
from rageval_hooks.turn import Turn

__all__ = ["end"]

_recorder = shared_recorder()


def end(run_id: UUID, output: Any, error: BaseException | None) -> PendingTurn | None:
    """Record that a run has ended, and submit the turn if it was the root of one.

    Returns:
        What an async caller waits for, within the budget for inline scores; None if there is nothing to wait for.
    """
    key = key_of(run_id)
    run = _recorder.get(key)
    if run is not None:
        note_other_span(run)
    recording = _recorder.end(key, output, error)
    if recording is None:
        return None
    # LangGraph's ``update_state`` runs branches, but answers nothing.
    if recording.root.name.endswith("UpdateState") and all(run.kind == "chain" for run in recording.runs):
        return None
    # A stream that ends before the runs inside it was left by its reader. LangChain swallows the GeneratorExit of most
    # streams, so it does not show that the garbage collector may be closing this one.
    is_left_early = recording.streamed and any(run.ended_at is None for run in recording.runs)
    if deferred.closes_generator() or is_left_early:
        pipeline = recording.owner
        deferred.hand_over(_finish, recording, size=pipeline.typical_size, on_full=partial(pipeline.drop, "queue_full"))
        return None
    submitted = _finish(recording)
    # The caller of a cancelled call does not wait for scores.
    return None if isinstance(error, (asyncio.CancelledError, GeneratorExit)) else submitted


def _finish(recording: Recording) -> PendingTurn | None:
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


def _submit(recording: Recording) -> PendingTurn | None:
    """Submit the turn of a recording; returns what an async caller waits for."""
    pipeline = recording.owner
    may_be_evaluated = pipeline.settings.evaluate_without_retrieval or not _is_bare_model(recording)
    computes_inline = pipeline.computes_inline and may_be_evaluated
    turn: Turn | Callable[[], Turn] = partial(turn_of, recording)
    # If an object cannot be copied, or the turn not be built, the pipeline tries it again, and counts a failure.
    with suppress(Exception):
        has_foreign = any(run.framework is not FRAMEWORK for run in recording.runs)  # their values are not copied
        is_waited_for = computes_inline and not deferred.in_event_loop()
        if has_foreign or is_waited_for:
            turn = turn_of(recording)
        else:
            copy_values(recording.runs)  # and the turn is built on another thread
    pending = deferred.submit(pipeline, turn, recording.selection, computes_inline=computes_inline)
    return pending if computes_inline else None


def _is_bare_model(recording: Recording) -> bool:
    """Return True for a model that is called by itself: it has retrieved nothing."""
    return recording.root.kind == "llm" and len(recording.runs) == 1
