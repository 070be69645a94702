"""Graphs that wait for a person (``interrupt()``) and are resumed (``Command(resume=…)``): both halves are one turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rageval_hooks.integrations.capture.deferred import HeldTurn, held_turns
from rageval_hooks.integrations.capture.recorder import Recording, Run
from rageval_hooks.integrations.capture.turns import of_kind
from rageval_hooks.integrations.capture.values import or_else
from rageval_hooks.integrations.langchain.passages import place_of, thread_of
from rageval_hooks.integrations.langchain.payloads import copy_values, fields_by_name
from rageval_hooks.integrations.langchain.runs import LangChainRun
from rageval_hooks.integrations.langchain.turn_building import is_control_flow, is_waiting
from rageval_hooks.runtime.at_exit import is_multiprocessing_child
from rageval_hooks.runtime.narrowing import mapping_or_empty


class GraphInterrupt(Exception):  # noqa: N818 - named like that of LangGraph, which may not be installed
    """Stands for the exception with which a node waits for a person."""


@or_else(False)
def resumes(input: Any) -> bool:
    """Return True for the input that lets a graph go on: a command with what the person said, or None."""
    if input is None:
        return True
    return type(input).__name__ == "Command" and getattr(input, "resume", None) is not None


# --------------------------------------------------------------------------- the second half


def join_halves(recording: Recording) -> None:
    """Put the first half in front of the runs of a turn that resumes it.

    If the first half is not held, the state with which the graph went on takes the place of the turn's input.
    """
    runs, root = recording.runs, recording.root
    resumed = _resumed_graph(recording)
    if resumed is None:
        return
    thread = thread_of(runs)
    first = held_turns().take(thread, _places(runs), root.name) if thread else None
    if first is not None:
        copy_values(recording.runs)
        _put_in_front(first, recording)
    elif resumed is root and isinstance(root, LangChainRun):
        # The first half ran in another process, or long ago. The state that the first node received has its input.
        for node in of_kind(runs, "chain"):
            if node.parent is resumed and fields_by_name(node.input):
                # A call of a tool by an agent is a mapping that has the state under this key.
                root.input = mapping_or_empty(node.input).get("state") or node.input
                root.first_half_missing = True
                return


def _resumed_graph(recording: Recording) -> Run | None:
    """Return the graph that a turn resumes; None without one, or if the graph also waited in this turn."""
    runs = recording.runs
    resumed = None
    if any(run.input is None or type(run.input).__name__ == "Command" for run in runs):  # most turns have none
        of_graphs = {id(run.parent) for run in runs if place_of(run) is not None}
        resumed = next((run for run in runs if id(run) in of_graphs and resumes(run.input)), None)
    if resumed is None:
        return None
    # An application may ask the person itself and resume the graph, all in one turn.
    has_waited = any(run.started_at < resumed.started_at for run in runs if is_control_flow(run.error))
    return None if has_waited else resumed


def _put_in_front(first: HeldTurn, recording: Recording) -> None:
    before, root = first.recording, recording.root
    # If the clock was set while the graph waited, the times of both halves follow the clock of the second.
    shift = recording.clock_offset - before.clock_offset
    for run in before.runs:
        run.started_at += shift
        run.ended_at = None if run.ended_at is None else run.ended_at + shift
        run.first_token_at = None if run.first_token_at is None else run.first_token_at + shift
        # The interrupt was answered. It must not make the whole turn one that waits.
        if is_control_flow(run.error):
            run.error = None
        # Another tracer's spans are in the trace of the first half.
        run.span_id = run.span_tracer = None
    waited_since = before.root.ended_at or before.root.started_at
    if isinstance(root, LangChainRun) and isinstance(before.root, LangChainRun):
        root.waits = [*before.root.waits, (waited_since, root.started_at)]
    root.input = before.root.input
    root.started_at = before.root.started_at
    root.metadata = {**before.root.metadata, **root.metadata}
    before.root.parent = root
    recording.runs = [root, *before.runs, *recording.runs[1:]]
    # The passages of the first half may be analysed already.
    recording.selection.preparations[:0] = before.selection.preparations


# --------------------------------------------------------------------------- the first half


def hold_if_waiting(recording: Recording) -> bool:
    """Hold a turn that waits for a person; returns False if it does not wait or cannot be resumed in this process."""
    # A worker process may end before the person answers, and the answer may reach another worker.
    if not recording.owner.holds_interrupted or not is_waiting(recording.runs) or is_multiprocessing_child():
        return False
    # Without the id of a conversation, the second half could not be told from another turn.
    thread = thread_of(recording.runs)
    if not thread:
        return False
    copy_values(recording.runs)
    waiting = [run for run in recording.runs if is_control_flow(run.error)]
    for run in waiting:
        run.error = GraphInterrupt()  # the traceback of the original refers to frames of the application
    held_turns().hold(recording, thread, _places(waiting))
    return True


def _places(runs: Iterable[Run]) -> frozenset[str]:
    return frozenset(filter(None, map(place_of, runs)))
