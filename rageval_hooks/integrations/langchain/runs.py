"""From the runs under one root to a turn: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from rageval_hooks.integrations.capture.authorship import carries, writer_of
from rageval_hooks.integrations.capture.durations import busy_seconds
from rageval_hooks.integrations.capture.passages import mark_shown, unique_passages
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import first_string, is_a
from rageval_hooks.integrations.langchain.payloads import (
    answer_of,
    as_json,
    as_text,
    citations_of,
    documents_of,
    generated_text,
    handed_over,
    is_event,
    is_interrupted,
    model_of,
    passages_of,
    prompt_of,
    query_of,
    request_model_of,
    response_id_of,
    stands_in,
    tool_calls_of,
    tool_text,
    usage_of,
)
from rageval_hooks.turn import (
    ErrorInfo,
    Message,
    Passage,
    SpanReference,
    Step,
    StepKind,
    Timing,
    Turn,
    TurnStatus,
    Usage,
)

__all__ = ["turn_from_runs"]

_INTERRUPTS = frozenset({"GraphInterrupt", "NodeInterrupt", "GraphBubbleUp", "ParentCommand"})
_WAITING = frozenset({"GraphInterrupt", "NodeInterrupt"})
_CANCELS = frozenset({"CancelledError", "GeneratorExit", "KeyboardInterrupt"})
_SESSION_KEYS = ("session_id", "thread_id", "conversation_id")
_OWN_METADATA = ("ls_", "lc_", "langgraph_", "checkpoint_", "__")
_STEP_KINDS: frozenset[str] = frozenset({"retriever", "llm", "tool"})


def turn_from_runs(
    runs: Sequence[Run],
    *,
    every_step: bool = False,
    span: SpanReference | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Turn:
    """Build a turn from the runs under one root.

    Args:
        runs: the records by start time, the root first.
        every_step: keep chains, prompts and parsers as steps too, not only retrievers, model calls and tools.
        span: where the turn stands in its trace.
        attributes: what the application put into its OpenTelemetry context: ``session.id``, ``user.id``, ``metadata``.
    """
    root = runs[0]
    ended_at = _end(root, root.started_at)
    models = [run for run in runs if run.kind == "llm" and not _inside(run, "retriever")]
    came_out = _came_out(root, models)
    answering = _answering(models, came_out)
    retrievals = _retrievals(runs, answering)
    prompt = prompt_of(answering) if answering is not None else ()
    retrieved = {id(run): _passages(run) for run in retrievals}
    shown = mark_shown(
        unique_passages(passage for passages in retrieved.values() for passage in passages),
        "\n".join(message.content for message in prompt) if answering is not None else None,
    )
    steps = _steps(runs, ended_at, every_step, shown, retrieved, {id(answering): prompt})
    queries = [run.input for run in runs if run.kind == "retriever" and isinstance(run.input, str)]
    query = query_of(root.input) or next(iter(queries), "")
    status, error = _outcome(runs, answering)
    metadata = _run_metadata(runs)
    attributes = attributes or {}
    response = _response(root, models, answering, came_out, status)
    return Turn(
        id=root.text_id,
        name=root.name,
        framework="langchain",
        query=query,
        passages=shown,
        response=response,
        retrieval_queries=tuple(dict.fromkeys(text for text in queries if text.strip() != query.strip())),
        prompt=prompt,
        usage=Usage.sum(step.usage for step in steps),
        model=model_of(answering) if answering is not None else None,
        timing=Timing(
            started_at=root.started_at,
            ended_at=ended_at,
            retrieval=busy_seconds((run.started_at, _end(run, ended_at)) for run in retrievals),
            generation=busy_seconds((run.started_at, _end(run, ended_at)) for run in models),
            time_to_first_token=_first_token(answering, root.started_at),
        ),
        span=span,
        steps=steps,
        status=status,
        complete=not response or _is_complete(status, answering),
        error=error,
        session_id=first_string(metadata, _SESSION_KEYS) or first_string(attributes, ("session.id",)),
        user_id=first_string(metadata, ("user_id",)) or first_string(attributes, ("user.id",)),
        metadata={
            **(attributes.get("metadata") or {}),
            **_citations(answering, response),
            **{key: value for key, value in metadata.items() if not str(key).startswith(_OWN_METADATA)},
        },
    )


def _citations(answering: Run | None, response: str) -> dict[str, Any]:
    """Return the citations that the model has marked, if its text is the response as it stands."""
    if answering is None or generated_text(answering.output) != response:
        return {}
    found = citations_of(answering.output)
    return {"citations": found} if found else {}


def _end(run: Run, otherwise: int) -> int:
    ended_at = run.ended_at if run.ended_at is not None else otherwise
    return max(run.started_at, ended_at)


def _inside(run: Run, kind: str) -> bool:
    return any(ancestor.kind == kind for ancestor in run.ancestors())


def _retrievals(runs: Sequence[Run], answering: Run | None) -> list[Run]:
    """Return the outermost retrievers, and whatever else handed documents over without being one.

    A tool may return the documents beside its text (``response_format="content_and_artifact"``), and a plain function
    or a graph's node may search a vector store by itself.
    """
    retrieving = {id(ancestor) for run in runs if run.kind == "retriever" for ancestor in run.ancestors()}
    found = [
        run
        for run in runs
        if (run.kind == "retriever" and not _inside(run, "retriever"))
        or (run.kind == "tool" and id(run) not in retrieving and documents_of(run.output))
    ]
    return found or _searches(runs, answering)


def _searches(runs: Sequence[Run], answering: Run | None) -> list[Run]:
    """Return the functions and nodes that handed documents over, of several in a row the last.

    What comes with the answer or after it counts only if there was nothing before.
    """
    chains = [run for run in runs[1:] if run.kind == "chain"]
    found = [run for run in chains if handed_over(run.output, run.input)]
    before = [run for run in found if answering is None or _end(run, run.started_at) <= answering.started_at]
    found = before or found[-1:]
    found = [run for place, run in enumerate(found) if not any(_replaces(later, run) for later in found[place + 1 :])]
    if not found:  # the application has searched before, and handed the documents in
        return [run for run in chains if is_a(run.output, list) and documents_of(run.output)][-1:]
    return found if len(found) == 1 or answering is None else _without_discarded(found, answering)


def _without_discarded(found: list[Run], answering: Run) -> list[Run]:
    """Leave out searches of which nothing was shown to the model, where a later one has taken their place."""
    prompt = "\n".join(message.content for message in prompt_of(answering))
    shown = [any(passage.in_prompt for passage in mark_shown(_passages(run), prompt)) for run in found]
    return [
        run
        for place, run in enumerate(found)
        if shown[place]
        or not any(
            shown[later] and found[later].started_at >= _end(run, run.started_at)
            for later in range(place + 1, len(found))
        )
    ]


def _replaces(later: Run, run: Run) -> bool:
    """Whether a function was given what another one had found, or is the part of it that found it."""
    return run in later.ancestors() or stands_in(handed_over(run.output, run.input), later.input)


def _passages(run: Run) -> list[Passage]:
    return passages_of((handed_over(run.output, run.input) or run.output) if run.kind == "chain" else run.output)


def _came_out(root: Run, models: Sequence[Run]) -> str:
    """Return the answer as it came out of the root; empty if there is none to be seen."""
    streamed = (root.details or {}).get("streamed")
    pieces = [run.tokens for run in models if run.tokens] if streamed else []
    text: str = answer_of(root.output, root.input, _texts(models), ["".join(tokens) for tokens in pieces])
    if is_event(root.output, root.input) and any(len(tokens) > 1 and text == _last_piece(tokens) for tokens in pieces):
        return ""
    return text


def _last_piece(tokens: Sequence[str]) -> str:
    return next((token for token in reversed(tokens) if token), "")


def _texts(models: Sequence[Run]) -> list[str]:
    """Return what the models wrote that did not ask for tools, the last first."""
    texts = [generated_text(run.output) for run in reversed(models) if not tool_calls_of(run.output)]
    return [text for text in texts if text]


def _response(root: Run, models: Sequence[Run], answering: Run | None, came_out: str, status: TurnStatus) -> str:
    """Return the answer: what came out of the root, else what the answering model wrote or had streamed so far.

    Of a graph that waits for somebody only what was written before it did: its state may be that of earlier turns.
    """
    if status == "interrupted":
        return came_out if any(carries(came_out, text) for text in _texts(models)) else ""
    if came_out or (root.output is not None and not _structured(root.output)):
        return came_out
    if answering is None:
        return ""
    if answering.tokens and (root.output is None or answering.ended_at is None):
        return "".join(answering.tokens)
    return generated_text(answering.output)


def _structured(output: Any) -> bool:
    return not is_a(output, (str, BaseMessage))


def _answering(models: Sequence[Run], response: str) -> Run | None:
    """Return the model call that wrote the answer: whose text it is, else the last one that did not ask for tools."""
    writer = writer_of(response, models, _words)
    if writer is not None:
        return writer
    for run in reversed(models):
        if not tool_calls_of(run.output):
            return run
    return models[-1] if models else None


def _words(run: Run) -> str:
    """Return what a model wrote, or what it gave to the tool that stands for a structured answer."""
    calls = tool_calls_of(run.output)
    return as_json([call.get("args") for call in calls]) if calls else generated_text(run.output)


def _first_token(run: Run | None, since: int) -> float | None:
    if run is None or run.first_token_at is None:
        return None
    return max(0, run.first_token_at - since) / 1e9


def _outcome(runs: Sequence[Run], answering: Run | None) -> tuple[TurnStatus, ErrorInfo | None]:
    root = runs[0]
    name = type(root.error).__name__
    if name in _INTERRUPTS or ((root.error is None or name in _CANCELS) and _waits(runs)):
        return "interrupted", None
    if root.error is None:
        return ("cancelled" if _stopped_early(root, answering) else "ok"), None
    if name in _CANCELS:
        return "cancelled", None
    return "error", _error(root.error)


def _is_complete(status: TurnStatus, answering: Run | None) -> bool:
    """Return True if the model call that wrote the answer came to its end, even if the turn did not."""
    if status not in ("cancelled", "error") or answering is None:
        return True
    ended_well = answering.ended_at is not None and answering.error is None
    # A call that asks for tools has not answered yet, whatever it says beside the call.
    return ended_well and not tool_calls_of(answering.output)


def _waits(runs: Sequence[Run]) -> bool:
    """Whether a graph waits for a person: LangGraph keeps from its callers what its nodes raise for that."""
    return is_interrupted(runs[0].output) or any(
        type(run.error).__name__ in _WAITING and not _is_resumed(run, runs) for run in runs
    )


def _is_resumed(run: Run, runs: Sequence[Run]) -> bool:
    """Whether a step that waited was run again under the same root, and went through."""
    ended_at = _end(run, run.started_at)
    return any(later.name == run.name and later.error is None and later.started_at >= ended_at for later in runs)


def _stopped_early(root: Run, answering: Run | None) -> bool:
    """Whether a reader left a stream before its end: the root then ends before the model, or without output."""
    streamed = bool((root.details or {}).get("streamed"))
    return streamed and (root.output is None or (answering is not None and answering.ended_at is None))


def _error(error: BaseException | None) -> ErrorInfo | None:
    return None if error is None else ErrorInfo.of(error)


def _run_metadata(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the root's metadata; session and user ids also from the first run that has them."""
    found: dict[str, Any] = {}
    for run in runs:
        if run.parent is None:
            found.update(run.metadata or {})
        elif run.metadata:
            for key in (*_SESSION_KEYS, "user_id"):
                if key in run.metadata:
                    found.setdefault(key, run.metadata[key])
    return found


def _steps(
    runs: Sequence[Run],
    ended_at: int,
    every: bool,
    shown: Sequence[Passage],
    handed_over: Mapping[int, Sequence[Passage]],
    prompts: Mapping[int, tuple[Message, ...]],
) -> tuple[Step, ...]:
    """Build the steps of a turn.

    Args:
        runs: the records by start time, the root first.
        ended_at: when the turn ended.
        every: keep chains, prompts and parsers too.
        shown: the context, with what of it was shown to the model.
        handed_over: by the identity of the record, what the outermost retrievals returned.
        prompts: likewise, prompts that are known already.
    """
    marked = {(passage.id, passage.text): passage for passage in shown}
    kept = [
        run for run in runs if run.kind in _STEP_KINDS or id(run) in handed_over or (every and run.parent is not None)
    ]
    ids = {id(run) for run in kept}
    steps = []
    for run in kept:
        kind: StepKind = "retriever" if id(run) in handed_over and run.kind == "chain" else run.kind  # type: ignore[assignment]
        parent = next((ancestor for ancestor in run.ancestors() if id(ancestor) in ids), None)
        cancelled = run.error is not None and type(run.error).__name__ in _CANCELS | _INTERRUPTS
        fields: dict[str, Any] = {}
        if kind == "llm":
            fields = {
                "messages": prompts[id(run)] if id(run) in prompts else prompt_of(run),
                "output": generated_text(run.output) or _written(run),
                "model": model_of(run),
                "request_model": request_model_of(run),
                "response_id": response_id_of(run),
                "provider": first_string(run.metadata or {}, ("ls_provider",)),
                "usage": usage_of(run),
                "time_to_first_token": _first_token(run, run.started_at),
            }
        elif kind == "retriever" or id(run) in handed_over:
            passages = handed_over[id(run)] if id(run) in handed_over else passages_of(run.output)
            fields = {
                "input": run.input if isinstance(run.input, str) else query_of(run.input),
                "passages": tuple(marked.get((passage.id, passage.text), passage) for passage in passages),
                "output": tool_text(run.output) if kind == "tool" else None,
            }
        elif kind == "tool":
            fields = {
                "input": run.input if isinstance(run.input, str) else as_json(run.input),
                "output": tool_text(run.output),
            }
        else:
            fields = {"input": as_text(run.input), "output": as_text(run.output)}
        steps.append(
            Step(
                id=run.text_id,
                parent_id=None if parent is None else parent.text_id,
                kind=kind,
                name=run.name,
                started_at=run.started_at,
                ended_at=_end(run, ended_at),
                error=None if cancelled else _error(run.error),
                complete=run.ended_at is not None and not cancelled,
                span_id=(run.details or {}).get("span_id"),
                **fields,
            )
        )
    return tuple(steps)


def _written(run: Run) -> str:
    if run.tokens:
        return "".join(run.tokens)
    calls = tool_calls_of(run.output)
    return as_json(calls) if calls else ""
