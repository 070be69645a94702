"""``turn_from_events``: a pure function from the runs under one root, recorded from spans and events, to a turn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.capture import turns
from rageval_hooks.integrations.capture.evidence import Evidence
from rageval_hooks.integrations.capture.passages import unique_passages
from rageval_hooks.integrations.capture.recent_searches import passages_before, question_in
from rageval_hooks.integrations.capture.recorder import Framework, Run, shared_recorder
from rageval_hooks.integrations.capture.values import first_string
from rageval_hooks.integrations.llama_index import model_calls, values
from rageval_hooks.integrations.llama_index.other_tracers import find_span
from rageval_hooks.integrations.llama_index.passages import (
    EarlierTools,
    OfTool,
    TurnPassages,
    collection_of,
    top_k_of,
)
from rageval_hooks.integrations.llama_index.runs import LlamaIndexRun
from rageval_hooks.turn import ErrorInfo, SpanReference, Step, StepKind, Turn, TurnStatus

_CANCELS = turns.CANCELS | {"WorkflowCancelledByUser"}  # what ``handler.cancel_run()`` raises
_SESSION_KEYS = ("session_id", "session.id", "thread_id", "conversation_id")
_USER_KEYS = ("user_id", "user.id")
_OWN_TAGS = "llamaindex."
"""The beginning of the tags that workflows add."""


def turn_from_events(
    runs: Sequence[LlamaIndexRun],
    *,
    every_step: bool = False,
    earlier: EarlierTools | None = None,
    evidence: Evidence | None = None,
    span: SpanReference | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Turn:
    """Build a turn from what was recorded under one root.

    Args:
        runs: the runs by start time, the root first.
        every_step: keep every span as a step, not only retrievers, rerankers, model calls and tools.
        earlier: what tools found in earlier turns.
        evidence: tells what is evidence, from the runs of all frameworks; None for these runs alone.
        span: the place of the turn in its trace.
        attributes: what the application put into its OpenTelemetry context: ``session.id``, ``user.id``, ``metadata``.
    """
    root = runs[0]
    ended_at = turns.end_of(root, root.started_at)
    calls = model_calls.counted_calls(runs)
    # A model that a retriever calls rewrites the query or grades documents. It does not write answers.
    answers = turns.outside(calls, "retriever", "reranker")
    returned = _returned_answer(root, runs)
    answering = model_calls.answering_call(root, answers, returned)
    found = TurnPassages(runs=runs, calls=answers, answering=answering, evidence=evidence or Evidence(runs))
    passages = found.passages
    if earlier is not None:
        passages = unique_passages((*passages, *earlier.passages_in(answering, runs)))
    asked_before: list[str] = []
    if answering is not None and all(passage.from_turn for passage in passages):
        prompt = turns.prompt_text(values.messages_of(answering.input))
        before, asked_before = passages_before(root.searches_before, root.text_id, prompt)
        passages = unique_passages((*passages, *before))
    steps = _steps_of(runs, calls, ended_at, found, every_step)
    query = values.query_of(values.arguments_of(root.input))
    if not query and calls:
        # A resumed workflow has no question in its arguments: what the user said in the first prompt.
        said = [message.content for message in values.messages_of(calls[0].input) if message.role == "user"]
        query = said[-1] if said else ""
    query = question_in(query, asked_before)
    response = returned
    # Without an answer in its output: the model's text, unless the output is something else, such as a list of nodes.
    if not response and answering is not None and root.kind != "retriever" and values.leaves_answer_open(root.output):
        response = model_calls.answer_text(answering)
    status, error = _outcome(root, runs)
    # What the application set with instrument_tags: {"session_id": "42", "llamaindex.workflow_run_id": "…"}.
    tags = {key: value for key, value in root.metadata.items() if not str(key).startswith(_OWN_TAGS)}
    return turns.build_turn(
        root,
        steps,
        attributes=attributes,
        timing={"time_to_first_token": turns.seconds_to_first_token(answering, root.started_at)},
        framework="llama_index",
        query=query,
        passages=passages,
        response=response,
        retrieval_queries=_rewritten_queries(runs, answers, query, found.of_tools),
        span=span,
        status=status,
        complete=not response or status not in ("cancelled", "error"),
        error=error,
        prompt=() if answering is None else values.messages_of(answering.input),
        model=None if answering is None else model_calls.model_of(answering),
        session_id=first_string(tags, _SESSION_KEYS),
        user_id=first_string(tags, _USER_KEYS),
        metadata=tags,
    )


# --------------------------------------------------------------------------- questions


def _rewritten_queries(
    runs: Sequence[Run], answers: Sequence[Run], query: str, of_tools: Mapping[int, OfTool]
) -> tuple[str, ...]:
    """Return the queries of retrievers, and of tools that found texts, that differ from the user's question."""
    written = [text.strip() for text in map(model_calls.generated_text, answers)]
    searches = [run for run in runs if run.kind == "retriever" or isinstance(of_tools.get(id(run)), list)]
    # The retriever of an evaluator receives a prompt that quotes the answer.
    queries = [
        text
        for run in searches
        for text in values.queries_of(run)
        if not any(" " in answer and answer in text and answer != text for answer in written)
    ]
    return turns.rewritten(queries, query)


# --------------------------------------------------------------------------- answers


def _returned_answer(root: Run, runs: Sequence[Run]) -> str:
    """Return the answer that the root returned or streamed to the caller."""
    if type(root.output) is not values.Streamed:
        return str(values.answer_of(root.output))
    # The pieces are on the run that followed the stream: the root, or a synthesizer inside of it.
    followed = (run for run in reversed(runs) if type(run.output) is values.Streamed and run.output == root.output)
    return next(("".join(run.tokens) for run in followed if run.tokens), "")


# --------------------------------------------------------------------------- outcome


def _outcome(root: LlamaIndexRun, runs: Iterable[Run]) -> tuple[TurnStatus, ErrorInfo | None]:
    """Return how a turn ended, and its error."""
    status, error = turns.outcome_of_error(root.error, _CANCELS)
    if root.cancelled:
        status, error = "cancelled", None
    # A step of a workflow that waits for a human: ctx.wait_for_event raises WaitingForEvent; a step may also return
    # InputRequiredEvent(prefix="Is this correct?").
    bases = (base for run in runs for base in (*type(run.error).__mro__, *type(run.output).__mro__))
    if status == "cancelled" and any(base.__name__ in ("WaitingForEvent", "InputRequiredEvent") for base in bases):
        return "interrupted", None
    return status, error


# --------------------------------------------------------------------------- steps


_KINDS = frozenset({"retriever", "reranker", "llm", "tool", "agent", "embedding"})
_ALWAYS = frozenset({"retriever", "reranker", "tool"})

# What stops a run without a failure, such as a workflow that waits for a person.
_NO_ERRORS = turns.CANCELS | {"WaitingForEvent"}


def _steps_of(
    runs: Sequence[LlamaIndexRun],
    calls: Sequence[LlamaIndexRun],
    ended_at: int,
    found: TurnPassages,
    every_step: bool,
) -> tuple[Step, ...]:
    """Build the steps of a turn.

    Args:
        runs: the runs by start time, the root first.
        calls: the model calls that count.
        ended_at: when the turn ended.
        found: the passages, and what tools found.
        every_step: keep every span, not only retrievers, rerankers, model calls and tools.
    """
    counted = set(map(id, calls))
    # The root is the turn itself. It is a step too if it is a model call or a search of its own.
    kept = [run for run in runs if _is_step(run, counted, every_step and run is not runs[0])]
    ids = set(map(id, kept))
    return tuple(
        Step(
            kind=cast("StepKind", run.kind if run.kind in _KINDS else "chain"),
            **_frame(run, ids, ended_at),
            **_fields(run, runs, found),
        )
        for run in kept
    )


def _frame(run: Run, ids: Collection[int], ended_at: int) -> dict[str, Any]:
    frame = turns.step_frame(run, ids, ended_at, stopped=type(run.error).__name__ in _NO_ERRORS)
    # A tool may return its error: ToolOutput(content="The index is offline.", is_error=True, …).
    if run.kind == "tool" and getattr(run.output, "is_error", False) is True and frame["error"] is None:
        frame["error"] = ErrorInfo(type="ToolError", message=values.answer_of(run.output))
    return frame


def _is_step(run: LlamaIndexRun, counted: Collection[int], every_step: bool) -> bool:
    if run.kind == "llm":
        return id(run) in counted
    if run.kind not in _ALWAYS:
        return every_step
    # Another method of the same component may be around it: a tool's "call" inside "__call__", or an adapter.
    for outer in turns.of_kind(run.ancestors(), run.kind):
        is_same_tool = run.kind == "tool" and outer.name == run.name
        if is_same_tool or run.is_of_same_component(outer):
            return False
    return True


def _fields(run: LlamaIndexRun, runs: Sequence[LlamaIndexRun], found: TurnPassages) -> dict[str, Any]:
    if run.kind == "llm":
        return model_calls.call_fields(run, runs)
    if run.kind == "tool":
        described = values.tool_fields(run.instance)
        of_tool = found.of_tools.get(id(run), [])
        result = {"left_out": of_tool} if isinstance(of_tool, str) else {"passages": tuple(of_tool)}
        return {"input": values.tool_input(run.input), "output": values.answer_of(run.output), **result, **described}
    query = values.query_of(values.arguments_of(run.input))
    if run.kind in ("retriever", "reranker"):
        return {
            "input": query,
            "passages": tuple(map(found.marked, run.nodes_after or ())),
            "top_k": top_k_of(run.instance),
            "data_source": collection_of(run.instance),
        }
    return {"input": query or None, "output": values.answer_of(run.output) or None}


# --------------------------------------------------------------------------- for the recorder


_earlier = EarlierTools()


def _turn_of(runs: Sequence[LlamaIndexRun], **options: Any) -> Turn:
    turn = turn_from_events(runs, earlier=_earlier, **options)
    _earlier.add_tools(runs, turn, values.answer_of)
    return turn


FRAMEWORK = Framework(
    "llama_index",
    _turn_of,
    active_span_id.get,
    given_text=model_calls.given_text,
    returned_text=model_calls.returned_text,
    texts_of=lambda nodes: [node.get_content() for node in nodes or ()],
    find_span=find_span,
    run_class=LlamaIndexRun,
)
shared_recorder().join(FRAMEWORK)
