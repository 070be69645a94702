"""Graphs that wait for a person (``interrupt()``) and are resumed (``Command(resume=…)``): both halves are one turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rageval_hooks.integrations.capture.held_turns import HeldTurn, held_turns
from rageval_hooks.integrations.capture.runs import Recording, Run
from rageval_hooks.integrations.capture.values import first_string, or_else
from rageval_hooks.integrations.langchain.reading import is_control_flow, is_waiting, query_of
from rageval_hooks.integrations.langchain.snapshots import snapshot_runs
from rageval_hooks.runtime.at_exit import is_multiprocessing_child

__all__ = ["earlier_sampling", "has_copies", "hold_if_waiting", "join_halves", "note_sampling"]

_PLACE = "langgraph_checkpoint_ns"
"""Metadata of the runs of a graph. It ends with the id of the node's task, which stays the same when it is resumed."""


# --------------------------------------------------------------------------- sampling


def note_sampling(metadata: Mapping[str, Any] | None, sampled_out: bool) -> None:
    """Remember the sampling decision for a root, which may be the first half of a turn."""
    thread = first_string(metadata or {}, ("thread_id",))
    if thread:
        held_turns().note_sampling(thread, sampled_out)


def earlier_sampling(input: Any, metadata: Mapping[str, Any] | None) -> bool | None:
    """Return whether the first half of a turn was selected; None for a turn that resumes none that is known."""
    thread = first_string(metadata or {}, ("thread_id",))
    return held_turns().earlier_sampling(thread) if thread and _resumes(input) else None


@or_else(False)
def _resumes(input: Any) -> bool:
    """Return True for the input that lets a graph go on: a command with what the person said, or None."""
    if input is None:
        return True
    return type(input).__name__ == "Command" and getattr(input, "resume", None) is not None


# --------------------------------------------------------------------------- the second half


def join_halves(recording: Recording) -> None:
    """Put the first half in front of the runs of a turn that resumes it.

    If the first half is not held, the state with which the graph went on takes the place of the turn's input.
    """
    if len(recording.runs) == 1:
        return
    resumed = next((run for run in recording.runs if _resumes(run.input) and _is_graph(run, recording.runs)), None)
    if resumed is None:
        return
    if any(is_control_flow(run.error) and run.started_at < resumed.started_at for run in recording.runs):
        return  # the turn resumes itself
    root = recording.root
    thread = _thread_of(recording.runs)
    first = held_turns().take(thread, _places(recording.runs), root.name) if thread else None
    if first is not None:
        _copy_values(recording)
        _put_in_front(first, recording)
    elif resumed is root:
        state = _state_after(resumed, recording.runs)
        if state is not None:
            root.input = state
            root.details = {**(root.details or {}), "first_half_missing": True}


def _is_graph(run: Run, runs: Sequence[Run]) -> bool:
    return any(other.parent is run and _PLACE in (other.metadata or {}) for other in runs)


def _state_after(resumed: Run, runs: Sequence[Run]) -> Any:
    """Return the state that the first node of a resumed graph received; None if it has no question."""
    for run in runs:
        if run.parent is not resumed or run.kind != "chain":
            continue
        # A call of a tool by an agent is a mapping that has the state under this key.
        inner = run.input.get("state") if isinstance(run.input, Mapping) else None
        for state in (inner, run.input):
            if query_of(state):
                return state
    return None


def _put_in_front(first: HeldTurn, recording: Recording) -> None:
    before, root = first.recording, recording.root
    for run in before.runs:
        # The interrupt was answered. It must not make the whole turn one that waits.
        if is_control_flow(run.error):
            run.error = None
        if before.external_span is not None and run.details:
            # These spans are in the trace of the first half.
            run.details.pop("span_id", None)
    waits = [*(before.root.details or {}).get("waits", ()), (before.root.ended_at or first.since, root.started_at)]
    root.details = {**(root.details or {}), "waits": waits}
    root.input = before.root.input
    root.started_at = before.root.started_at
    root.metadata = {**(before.root.metadata or {}), **(root.metadata or {})}
    before.root.parent = root
    recording.runs = [root, *before.runs, *recording.runs[1:]]
    recording.selection.preparations[:0] = before.selection.preparations


# --------------------------------------------------------------------------- the first half


def hold_if_waiting(recording: Recording) -> bool:
    """Hold a turn that waits for a person; returns False if it does not wait or cannot be resumed in this process."""
    if not recording.owner.holds_interrupted or is_multiprocessing_child() or not is_waiting(recording.runs):
        return False
    thread = _thread_of(recording.runs)
    if not thread:
        return False
    places = _places([run for run in recording.runs if is_control_flow(run.error)])
    _copy_values(recording)
    held_turns().hold(recording, thread, places)
    return True


def has_copies(recording: Recording) -> bool:
    """Return True if the runs of a recording already hold copies of what the application may change."""
    return bool((recording.root.details or {}).get("copied"))


def _copy_values(recording: Recording) -> None:
    if has_copies(recording):
        return
    # If an object cannot be copied, the turn is read from what it is by then.
    with suppress(Exception):
        snapshot_runs(recording.runs, recording.owner.settings.spans == "all")
    recording.root.details = {**(recording.root.details or {}), "copied": True}


def _thread_of(runs: Sequence[Run]) -> str | None:
    for run in runs:
        for source in (run.metadata, (run.details or {}).get("configurable")):
            if thread := first_string(source or {}, ("thread_id",)):
                return thread
    return None


def _places(runs: Sequence[Run]) -> frozenset[str]:
    return frozenset(str(run.metadata[_PLACE]) for run in runs if run.metadata and _PLACE in run.metadata)
