"""Graphs that wait for a person (``interrupt()``) and are resumed (``Command(resume=…)``): both halves are one turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rageval_hooks.integrations.capture.held_turns import HeldTurn, held_turns
from rageval_hooks.integrations.capture.host_values import first_string, or_else
from rageval_hooks.integrations.capture.run_facts import detail_of, details_of, metadata_of, of_kind
from rageval_hooks.integrations.capture.runs import Recording, Run
from rageval_hooks.integrations.langchain.payloads import fields_by_name
from rageval_hooks.integrations.langchain.snapshots import snapshot_runs
from rageval_hooks.integrations.langchain.turn_building import is_control_flow, is_waiting
from rageval_hooks.runtime.at_exit import is_multiprocessing_child
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.runtime.selecting import not_none

__all__ = ["earlier_sampling", "has_copies", "hold_if_waiting", "join_halves", "note_sampling"]

_PLACE = "langgraph_checkpoint_ns"
"""Metadata of the runs of a graph. It ends with the id of the node's task, which stays the same when it is resumed."""

_THREAD = ("thread_id",)
"""The key of the conversation: {"configurable": {"thread_id": "42"}}. LangGraph copies it into the metadata."""


# --------------------------------------------------------------------------- sampling


def note_sampling(metadata: Mapping[str, Any] | None, sampled_out: bool) -> None:
    """Remember the sampling decision for a root, which may be the first half of a turn."""
    thread = first_string(metadata, _THREAD)
    if thread:
        held_turns().note_sampling(thread, sampled_out)


def earlier_sampling(input: Any, metadata: Mapping[str, Any] | None) -> bool | None:
    """Return whether the first half of a turn was selected; None for a turn that resumes none that is known."""
    thread = first_string(metadata, _THREAD)
    if thread is None or not _resumes(input):
        return None
    return held_turns().earlier_sampling(thread)


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
    resumed = _resumed_graph(recording.runs)
    if resumed is None:
        return
    first = _take_first_half(recording)
    if first is not None:
        _copy_values(recording)
        _put_in_front(first, recording)
    elif resumed is recording.root:
        _start_from_state(resumed, recording.runs)


def _resumed_graph(runs: Sequence[Run]) -> Run | None:
    """Return the graph that a turn resumes; None without one, or if the graph also waited in this turn."""
    if len(runs) == 1:
        return None
    resumed = next((run for run in runs if _is_resumed_graph(run, runs)), None)
    if resumed is None:
        return None
    waited_at = min((run.started_at for run in _waiting_runs(runs)), default=None)
    # An application may ask the person itself and resume the graph, all in one turn.
    if waited_at is not None and waited_at < resumed.started_at:
        return None
    return resumed


def _is_resumed_graph(run: Run, runs: Sequence[Run]) -> bool:
    if not _resumes(run.input):
        return False
    inner = [other for other in runs if other.parent is run]
    return any(_PLACE in metadata_of(other) for other in inner)


def _waiting_runs(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that ended because they wait for a person."""
    return [run for run in runs if is_control_flow(run.error)]


def _take_first_half(recording: Recording) -> HeldTurn | None:
    """Return the first half of a conversation's turn, which is then not held any more."""
    thread = _thread_of(recording.runs)
    if not thread:
        return None
    return held_turns().take(thread, _places(recording.runs), recording.root.name)


def _start_from_state(root: Run, runs: Sequence[Run]) -> None:
    """Use the state of a resumed graph as the input of its turn: the first half ran in another process, or long ago."""
    state = _state_after(root, runs)
    if state is not None:
        root.input = state
        details_of(root)["first_half_missing"] = True


def _state_after(resumed: Run, runs: Sequence[Run]) -> Any:
    """Return the state that the first node of a resumed graph received; None if it has none."""
    for node in of_kind(runs, "chain"):
        if node.parent is resumed and fields_by_name(node.input):
            # A call of a tool by an agent is a mapping that has the state under this key.
            return mapping_or_empty(node.input).get("state") or node.input
    return None


def _put_in_front(first: HeldTurn, recording: Recording) -> None:
    before, root = first.recording, recording.root
    _release(before)
    waited_since = before.root.ended_at or before.root.started_at
    earlier_waits = detail_of(before.root, "waits") or ()
    details_of(root)["waits"] = [*earlier_waits, (waited_since, root.started_at)]
    root.input = before.root.input
    root.started_at = before.root.started_at
    root.metadata = {**metadata_of(before.root), **metadata_of(root)}
    before.root.parent = root
    recording.runs = [root, *before.runs, *recording.runs[1:]]
    # The passages of the first half may be analysed already.
    recording.selection.preparations[:0] = before.selection.preparations


def _release(before: Recording) -> None:
    """Remove from the runs of a first half what holds for the half only."""
    for run in before.runs:
        # The interrupt was answered. It must not make the whole turn one that waits.
        if is_control_flow(run.error):
            run.error = None
        # Another tracer's spans are in the trace of the first half.
        if run.details:
            run.details.pop("span_id", None)
            run.details.pop("span_tracer", None)


# --------------------------------------------------------------------------- the first half


def hold_if_waiting(recording: Recording) -> bool:
    """Hold a turn that waits for a person; returns False if it does not wait or cannot be resumed in this process."""
    if not recording.owner.holds_interrupted or not is_waiting(recording.runs):
        return False
    # A worker process may end before the person answers, and the answer may reach another worker.
    if is_multiprocessing_child():
        return False
    # Without the id of a conversation, the second half could not be told from another turn.
    thread = _thread_of(recording.runs)
    if not thread:
        return False
    _copy_values(recording)
    held_turns().hold(recording, thread, _places(_waiting_runs(recording.runs)))
    return True


def has_copies(recording: Recording) -> bool:
    """Return True if the runs of a recording already hold copies of what the application may change."""
    return bool(detail_of(recording.root, "copied"))


def _copy_values(recording: Recording) -> None:
    if has_copies(recording):
        return
    # If an object cannot be copied, the turn is read from what it is by then.
    with suppress(Exception):
        snapshot_runs(recording.runs, recording.owner.settings.spans == "all")
    details_of(recording.root)["copied"] = True


def _thread_of(runs: Sequence[Run]) -> str | None:
    """Return the id of the conversation, from the first run that has it."""
    for run in runs:
        thread = first_string(run.metadata, _THREAD) or first_string(detail_of(run, "configurable"), _THREAD)
        if thread:
            return thread
    return None


def _places(runs: Sequence[Run]) -> frozenset[str]:
    """Return where in a graph some runs are, for example "answer:3f1c…" of a node, "agent:3f1c…|tools:9a2e…" inside."""
    places = [metadata_of(run).get(_PLACE) for run in runs]
    return frozenset(map(str, not_none(places)))
