"""How a turn ended: well, with an error, cancelled, or waiting for a person."""

from __future__ import annotations

from collections.abc import Sequence

from rageval_hooks.integrations.capture.run_facts import CANCELS, detail_of, outcome_of_error
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.turn_building.answer import is_interrupted
from rageval_hooks.integrations.langchain.turn_building.model_calls import generated_text, tool_calls_of
from rageval_hooks.turn import ErrorInfo, TurnStatus

__all__ = ["is_cancelled", "is_complete", "is_control_flow", "is_waiting", "outcome_of"]

# By name: LangGraph may not be installed, and its nodes' exceptions move between modules.
_WAITING = frozenset({"GraphInterrupt", "NodeInterrupt"})
_CONTROL_FLOW = _WAITING | {"GraphBubbleUp", "ParentCommand"}


def is_cancelled(error: BaseException | None) -> bool:
    """Return True if an exception is no failure: the run was cancelled, or a graph handed over control."""
    return type(error).__name__ in CANCELS | _CONTROL_FLOW


def is_control_flow(error: BaseException | None) -> bool:
    """Return True for the exceptions by which LangGraph's nodes wait for a person, or hand over to another graph."""
    return type(error).__name__ in _CONTROL_FLOW


def outcome_of(runs: Sequence[Run], answering: Run | None, returned: str) -> tuple[TurnStatus, ErrorInfo | None]:
    """Return how a turn ended, and its error.

    Args:
        runs: the records by start time, the root first.
        answering: the call that wrote the answer.
        returned: the answer in the root's output.
    """
    root = runs[0]
    if is_waiting(runs):
        return "interrupted", None
    if root.error is None and _stopped_early(root, answering, returned):
        return "cancelled", None
    return outcome_of_error(root.error)


def is_waiting(runs: Sequence[Run]) -> bool:
    """Return True if a turn has ended because a graph waits for a person."""
    error = runs[0].error
    if is_control_flow(error):
        return True
    # The reader of a graph's stream may stop at the interrupt, which cancels the root. A failure comes after it.
    has_failed = error is not None and type(error).__name__ not in CANCELS
    return not has_failed and _waits(runs)


def _waits(runs: Sequence[Run]) -> bool:
    """Return True if a graph waits for a person. LangGraph hides the exception that a node raises for that."""
    if is_interrupted(runs[0].output):
        return True
    waiting = [run for run in runs if type(run.error).__name__ in _WAITING]
    return any(not _is_resumed(run, runs) for run in waiting)


def _is_resumed(run: Run, runs: Sequence[Run]) -> bool:
    """Return True if a step that waited ran again under the same root, and succeeded."""
    ended_at = run.ended_at or run.started_at
    succeeded = [later for later in runs if later.name == run.name and later.error is None]
    return any(later.started_at >= ended_at for later in succeeded)


def _stopped_early(root: Run, answering: Run | None, returned: str) -> bool:
    """Return True if a reader left a stream before its end.

    The root then ends before the model, or without output. If the garbage collector closes the stream of a parser
    before that of the root, the parser reads the rest of the model's text: the root then ends after the model, with
    the beginning of its text.
    """
    if not detail_of(root, "streamed"):
        return False
    if root.output is None:
        return True
    if answering is None:
        return False
    return answering.ended_at is None or is_cancelled(answering.error) or _is_beginning(returned, answering)


def _is_beginning(returned: str, answering: Run) -> bool:
    """Return True if a text is only the beginning of what a model wrote."""
    written = generated_text(answering.output).strip()
    returned = returned.strip()
    return 0 < len(returned) < len(written) and written.startswith(returned)


def is_complete(status: TurnStatus, answering: Run | None, response: str) -> bool:
    """Return True if a response is whole: the model call that wrote it came to its end, even if the turn did not."""
    if status not in ("cancelled", "error") or answering is None:
        return True
    if _is_beginning(response, answering):
        return False
    if answering.ended_at is None or answering.error is not None:
        return False
    # A call that requests tools has not answered yet, whatever it says next to the request.
    return not tool_calls_of(answering.output)
