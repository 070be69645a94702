"""What came out of a turn: the response, the model call that wrote it, and how the turn ended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from langchain_core.messages import BaseMessage

from rageval_hooks.integrations.capture.authorship import carries, last_without_tools, writer_of
from rageval_hooks.integrations.capture.host_values import is_a
from rageval_hooks.integrations.capture.run_facts import CANCELS, of_kind, outcome_of_error
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import DocumentReader
from rageval_hooks.integrations.langchain.turn_building.answer import answer_of, is_interrupted, is_stream_event
from rageval_hooks.integrations.langchain.turn_building.models import generated_text, tool_calls_of, written_by
from rageval_hooks.turn import ErrorInfo, TurnStatus

# What a reasoning model writes before its answer, for example "<think>Which pier?</think>". Some chat templates leave
# the opening tag in the prompt.
_THOUGHTS = re.compile(r"\A.*</(?:think|thinking|reasoning)>\s*", re.DOTALL | re.IGNORECASE)


def returned_answer(root: Run, models: Sequence[Run]) -> str:
    """Return the answer in the root's output; empty if it has no answer.

    Args:
        root: the root.
        models: the model calls by start time.
    """
    # The streamed pieces of each model, for example [["It opened", " in 1869."]]. Streams may end with empty pieces.
    is_streamed = bool(root.details.get("streamed"))
    streams = [list(filter(None, run.tokens)) for run in models if run.tokens] if is_streamed else []
    text = str(answer_of(root.output, root.input, _written_texts(models), list(map("".join, streams))))
    # The last event of a stream may hold its last piece: the answer is then all pieces together.
    if is_stream_event(root.output, root.input) and any(len(one) > 1 and one[-1] == text for one in streams):
        return ""
    return text


def _written_texts(models: Sequence[Run]) -> list[str]:
    """Return the texts of the models that did not request tools, the last one first.

    A text that begins with thoughts is also there without them, before the whole text: an application may have both.
    """
    texts: list[str] = []
    for run in reversed(models):
        if not tool_calls_of(run.output):
            whole = generated_text(run.output)
            texts += [_THOUGHTS.sub("", whole, count=1), whole]
    return list(dict.fromkeys(filter(None, texts)))


def answering_call(models: Sequence[Run], returned: str) -> Run | None:
    """Return the model call that wrote the answer. If no text tells, it is the last one that requested no tools."""
    writer = writer_of(returned, models, written_by)
    if writer is not None:
        return writer
    return last_without_tools(models, tool_calls_of)


def response_of(
    runs: Sequence[Run], models: Sequence[Run], answering: Run | None, returned: str, status: TurnStatus
) -> str:
    """Return the answer: what came out of the root, else what the answering model wrote or had streamed so far.

    Args:
        runs: the records by start time, the root first.
        models: the model calls by start time.
        answering: the call that wrote the answer.
        returned: the answer in the root's output.
        status: how the turn ended.
    """
    root = runs[0]
    if status == "interrupted":
        # The state of a waiting graph may have the answer of an earlier turn.
        return returned if any(carries(returned, text) for text in _written_texts(models)) else ""
    # A search tool that the application calls by itself returns passages. No model wrote anything.
    if root.kind == "tool" and not models:
        return ""
    # A chain that returns an empty text has answered nothing, whatever its models wrote on the way.
    if returned or is_a(root.output, (str, BaseMessage)):
        return returned
    if answering is None:
        return ""
    # A chain that returns what a retriever found for the model's text: the model wrote queries.
    wrote_at = answering.ended_at
    has_documents = is_a(root.output, list) and bool(DocumentReader().lists_in(root.output))
    if has_documents and wrote_at is not None:
        searched_later = any(run.started_at >= wrote_at for run in of_kind(runs, "retriever"))
        if searched_later:
            return ""
    # What the model had streamed when the turn was cut off, else all that it wrote.
    if answering.tokens and (root.output is None or answering.ended_at is None):
        return "".join(answering.tokens)
    return generated_text(answering.output)


# --------------------------------------------------------------------------- how a turn ended


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
    if root.error is None and _stopped_early(runs, answering, returned):
        return "cancelled", None
    return outcome_of_error(root.error)


def is_waiting(runs: Sequence[Run]) -> bool:
    """Return True if a turn has ended because a graph waits for a person."""
    error = runs[0].error
    if is_control_flow(error):
        return True
    # The reader of a graph's stream may stop at the interrupt, which cancels the root. A failure comes after it.
    if error is not None and type(error).__name__ not in CANCELS:
        return False
    # LangGraph hides the exception that a node raises to wait.
    if is_interrupted(runs[0].output):
        return True
    for run in runs:
        if type(run.error).__name__ in _WAITING:
            # A step that waited may have run again under the same root, and succeeded.
            later = [one for one in runs if one.name == run.name and one.started_at >= (run.ended_at or 0)]
            if not any(one.error is None for one in later):
                return True
    return False


def _stopped_early(runs: Sequence[Run], answering: Run | None, returned: str) -> bool:
    """Return True if a reader left a stream before its end: the root ends before the model, or without output."""
    root = runs[0]
    if not root.details.get("streamed"):
        return False
    if root.output is None:
        return True
    if answering is None:
        return False
    if answering.ended_at is None or is_cancelled(answering.error):
        return True
    # If the garbage collector closes the stream of a parser before that of the root, the parser reads the rest of the
    # model's text: the root then ends after the model, with the first pieces of it. A function may cut the text, too.
    is_first_pieces = returned in accumulate(answering.tokens or ()) and _is_beginning(returned, answering)
    return is_first_pieces and any(is_a(run.output, str) and run.output == returned for run in of_kind(runs, "parser"))


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
