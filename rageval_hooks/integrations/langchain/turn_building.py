"""From the runs under one root to a turn with its steps and its outcome: pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, cast

from langchain_core.messages import BaseMessage

from rageval_hooks.integrations.capture import authorship, turns, values
from rageval_hooks.integrations.capture.evidence import Evidence
from rageval_hooks.integrations.capture.passages import EarlierPassages, passage_key
from rageval_hooks.integrations.capture.recent_searches import question_in
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import is_a
from rageval_hooks.integrations.langchain import model_calls
from rageval_hooks.integrations.langchain.passages import SESSION_KEYS, USER_KEYS, TurnPassages, remember
from rageval_hooks.integrations.langchain.payloads import DocumentReader, as_json, as_text, fields_by_name
from rageval_hooks.integrations.langchain.question_and_answer import answer_of, is_stream_event, query_of
from rageval_hooks.integrations.langchain.runs import LangChainRun
from rageval_hooks.turn import ErrorInfo, SpanReference, Step, StepKind, Turn, TurnStatus

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
    is_streamed = root.streamed
    streams = [list(filter(None, run.tokens)) for run in models if run.tokens] if is_streamed else []
    text = str(answer_of(root.output, root.input, _written_texts(models), list(map("".join, streams))))
    # The last event of a stream may hold its last piece: the answer is then all pieces together.
    is_last_piece = any(len(one) > 1 and one[-1] == text for one in streams)
    return "" if is_last_piece and is_stream_event(root.output, root.input) else text


def _written_texts(models: Sequence[Run]) -> list[str]:
    """Return the texts of the models that did not request tools, the last one first.

    A text that begins with thoughts is also there without them, before the whole text: an application may have both.
    """
    texts: list[str] = []
    for run in reversed(models):
        if not model_calls.tool_calls_of(run.output):
            whole = model_calls.generated_text(run.output)
            texts += [_THOUGHTS.sub("", whole, count=1), whole]
    return list(dict.fromkeys(filter(None, texts)))


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
        return returned if any(authorship.carries(returned, text) for text in _written_texts(models)) else ""
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
        searched_later = any(run.started_at >= wrote_at for run in turns.of_kind(runs, "retriever"))
        if searched_later:
            return ""
    # What the model had streamed when the turn was cut off, else all that it wrote.
    if answering.tokens and (root.output is None or answering.ended_at is None):
        return "".join(answering.tokens)
    return model_calls.generated_text(answering.output)


# --------------------------------------------------------------------------- how a turn ended


# By name: LangGraph may not be installed, and its nodes' exceptions move between modules.
_WAITING = frozenset({"GraphInterrupt", "NodeInterrupt"})
_CONTROL_FLOW = _WAITING | {"GraphBubbleUp", "ParentCommand"}


def is_cancelled(error: BaseException | None) -> bool:
    """Return True if an exception is no failure: the run was cancelled, or a graph handed over control."""
    return type(error).__name__ in turns.CANCELS | _CONTROL_FLOW


def is_control_flow(error: BaseException | None) -> bool:
    """Return True for the exceptions by which LangGraph's nodes wait for a person, or hand over to another graph."""
    return type(error).__name__ in _CONTROL_FLOW


def is_waiting(runs: Sequence[Run]) -> bool:
    """Return True if a turn has ended because a graph waits for a person."""
    error = runs[0].error
    if is_control_flow(error):
        return True
    # The reader of a graph's stream may stop at the interrupt, which cancels the root. A failure comes after it.
    if error is not None and type(error).__name__ not in turns.CANCELS:
        return False
    # LangGraph hides the exception that a node raises to wait: {"messages": […], "__interrupt__": [Interrupt(…)]}.
    if is_a(runs[0].output, Mapping) and "__interrupt__" in runs[0].output:
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
    if not root.streamed:
        return False
    if root.output is None or answering is None:
        return root.output is None
    if answering.ended_at is None or is_cancelled(answering.error):
        return True
    # If the garbage collector closes the stream of a parser before that of the root, the parser reads the rest of the
    # model's text: the root then ends after the model, with the first pieces of it. A function may cut the text, too.
    is_first_pieces = returned in accumulate(answering.tokens or ()) and _is_beginning(returned, answering)
    parsed = [run.output for run in turns.of_kind(runs, "parser") if is_a(run.output, str)]
    return is_first_pieces and returned in parsed


def _is_beginning(returned: str, answering: Run) -> bool:
    """Return True if a text is only the beginning of what a model wrote."""
    written = model_calls.generated_text(answering.output).strip()
    returned = returned.strip()
    return 0 < len(returned) < len(written) and written.startswith(returned)


def is_complete(status: TurnStatus, answering: Run | None, response: str) -> bool:
    """Return True if a response is whole: the model call that wrote it came to its end, even if the turn did not."""
    if status not in ("cancelled", "error") or answering is None or not response:
        return True
    if _is_beginning(response, answering) or answering.ended_at is None or answering.error is not None:
        return False
    # A call that requests tools has not answered yet, whatever it says next to the request.
    return not model_calls.tool_calls_of(answering.output)


# Metadata that LangChain and LangGraph add, for example "ls_provider", "langgraph_node" or "checkpoint_ns".
_OWN_METADATA = ("ls_", "lc_", "langgraph_", "checkpoint_", "__")


def turn_from_runs(
    runs: Sequence[LangChainRun],
    *,
    every_step: bool = False,
    earlier: EarlierPassages | None = None,
    evidence: Evidence | None = None,
    span: SpanReference | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Turn:
    """Build a turn from the runs under one root.

    Args:
        runs: the records by start time, the root first.
        every_step: keep chains, prompts and parsers as steps too, not only retrievers, model calls and tools.
        earlier: what was found in earlier turns: see :func:`~rageval_hooks.integrations.langchain.passages.remember`.
        evidence: tells what is evidence, from the runs of all frameworks; None for these runs alone.
        span: the turn's position in its trace.
        attributes: what the application put into its OpenTelemetry context: ``session.id``, ``user.id``, ``metadata``.
    """
    root = runs[0]
    ended_at = turns.end_of(root, root.started_at)
    # A model inside a retriever rewrites the query or compresses documents: it does not answer.
    models = [run for run in turns.outside(turns.of_kind(runs, "llm"), "retriever") if not model_calls.classifies(run)]
    returned = returned_answer(root, models)
    # The call that wrote the answer. If no text tells, it is the last one that requested no tools.
    writer = authorship.writer_of(returned, models, model_calls.written_by, model_calls.prompt_of)
    answering = writer or authorship.last_without_tools(models, model_calls.tool_calls_of)
    status, error = turns.outcome_of_error(root.error)
    if is_waiting(runs):
        status, error = "interrupted", None
    elif root.error is None and _stopped_early(runs, answering, returned):
        status = "cancelled"
    response = response_of(runs, models, answering, returned, status)
    passages = TurnPassages(
        runs=runs,
        models=models,
        answering=answering,
        response=response,
        earlier=earlier or EarlierPassages(),
        evidence=evidence or Evidence(runs),
    )
    # What was searched for first is the best guess if the input of the root has no question.
    query = _query(root) or next(iter(passages.queries), "")
    query = question_in(query, passages.asked_before)
    steps = _steps_of(runs, ended_at, every_step, passages)
    identity = passages.identity
    # The citations that the model marked. Their positions hold only for exactly its text.
    written = next((step for step in steps if answering is not None and step.id == answering.text_id), None)
    is_whole_text = answering is not None and model_calls.generated_text(answering.output) == response
    citations = model_calls.citations_of(answering.output) if answering is not None and is_whole_text else ()
    metadata = {key: value for key, value in root.metadata.items() if not str(key).startswith(_OWN_METADATA)}
    # The time in which a graph waited for a person is no time of the answer.
    first_token = turns.seconds_to_first_token(answering, root.started_at)
    if first_token is not None and answering is not None:
        first_token = max(0.0, first_token - _seconds_waited(root, answering.first_token_at or 0))
    waiting = _seconds_waited(root, ended_at) if root.waits else None
    return turns.build_turn(
        root,
        steps,
        attributes=attributes,
        timing={"time_to_first_token": first_token, "waiting": waiting},
        framework="langchain",
        query=query,
        passages=passages.passages,
        response=response,
        retrieval_queries=turns.rewritten([*passages.asked_before, *passages.queries], query),
        span=span,
        status=status,
        first_half_missing=root.first_half_missing,
        complete=is_complete(status, answering, response),
        error=error,
        prompt=() if written is None else written.messages,
        model=None if written is None else written.model,
        session_id=values.first_string(identity, SESSION_KEYS),
        user_id=values.first_string(identity, USER_KEYS),
        metadata={**({"citations": citations} if citations else {}), **identity, **metadata},
    )


_earlier = EarlierPassages()


def turn_of_conversation(runs: Sequence[LangChainRun], **options: Any) -> Turn:
    """Build a turn with what earlier turns of this process found, and remember what it found itself."""
    turn = turn_from_runs(runs, earlier=_earlier, **options)
    remember(_earlier, runs, turn)
    return turn


def _query(root: LangChainRun) -> str:
    """Return the user's question in the input of the root; empty if it has no question."""
    if not root.first_half_missing:
        return query_of(root.input)
    # The state of a graph that goes on. Its messages may be those of an agent inside it, so its texts come first: of
    # several the one whose key names a question, else the first field of the state.
    state: Mapping[Any, Any] = fields_by_name(root.input)
    no_questions = {*values.answer_keys_in(state), *filter(values.is_beside_answer, state)}
    no_questions = {key for key in no_questions if not values.names_subject(str(key))}
    texts = {key: item for key, item in state.items() if is_a(item, str) and item and key not in no_questions}
    return query_of(texts) or next(iter(texts.values()), "") or query_of(root.input)


def _seconds_waited(root: LangChainRun, until: int) -> float:
    """Return how long a graph had waited for a person by a time in nanoseconds since the epoch."""
    return sum(end - start for start, end in root.waits if end <= until) / 1e9


# --------------------------------------------------------------------------- steps


def _steps_of(runs: Sequence[LangChainRun], ended_at: int, every_step: bool, passages: TurnPassages) -> list[Step]:
    """Build the steps of a turn: retrievers, model calls and tools.

    Args:
        runs: the records by start time, the root first.
        ended_at: when the turn ended.
        every_step: keep chains, prompts and parsers too.
        passages: the turn's passages, marked, and which runs found them.
    """
    searches = set(map(id, passages.searches))
    marked = {passage_key(passage): passage for passage in passages.passages}
    kept = [
        run
        for run in runs
        if run.kind in ("retriever", "llm", "tool") or id(run) in searches or (every_step and run.parent is not None)
    ]
    ids = set(map(id, kept))
    steps = []
    for run in kept:
        # A function or a graph node that searches by itself is shown as a retriever.
        kind = "retriever" if run.kind == "chain" and id(run) in searches else run.kind
        fields: dict[str, Any]
        if kind == "llm":
            fields = model_calls.call_fields(run, runs, passages.prompts[id(run)])
        elif kind == "tool":
            fields = {
                # LangChain passes a string, for example "{'city': 'Rome'}", or a mapping.
                "input": run.input if isinstance(run.input, str) else as_json(run.input),
                "output": as_text(run.output),
                "description": run.description,
                "call_id": run.tool_call_id,
                "left_out": passages.left_out.get(id(run)),
            }
        elif kind == "retriever":
            fields = {}  # its output is the passages
        else:
            fields = {"input": as_text(run.input), "output": as_text(run.output)}
        found = passages.found.get(id(run))
        if kind == "retriever":
            found = DocumentReader().passages_in(run.output) if found is None else found
        if found is not None:
            fields |= {
                "input": query_of(run.input),
                "passages": tuple(marked.get(passage_key(passage), passage) for passage in found),
                "top_k": run.top_k,
                # The collection that was searched, else the class of the vector store.
                "data_source": run.collection or values.first_string(run.metadata, ("ls_vector_store_provider",)),
            }
        frame = turns.step_frame(run, ids, ended_at, is_cancelled(run.error))
        if kind == "tool" and getattr(run.output, "status", None) == "error":  # the application has handled it
            frame["error"] = ErrorInfo(type="ToolError", message=as_text(run.output))
        steps.append(Step(kind=cast("StepKind", kind), **frame, **fields))
    return steps
