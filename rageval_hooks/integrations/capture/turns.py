"""From runs to turns, for all frameworks: facts of runs, and the turn of a recording.

If a recording has runs of several frameworks, each builds a turn, and these are merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from rageval_hooks.integrations.capture.evidence import Evidence
from rageval_hooks.integrations.capture.passages import mark_seen
from rageval_hooks.integrations.capture.recorder import Recording, Run
from rageval_hooks.integrations.capture.trace_context import context_attributes, span_reference
from rageval_hooks.integrations.capture.values import first_string
from rageval_hooks.turn import ErrorInfo, Message, Passage, Step, Timing, Turn, TurnStatus, Usage

T = TypeVar("T", bound=Run | Step)
R = TypeVar("R", bound=Run)

CANCELS = frozenset({"CancelledError", "Cancelled", "GeneratorExit", "KeyboardInterrupt"})
"""What asyncio, trio, a closed generator and Ctrl-C raise."""


def end_of(run: Run, otherwise: int) -> int:
    """Return when a run ended, in nanoseconds since the epoch.

    Args:
        run: the run.
        otherwise: the end of a run that has not ended, for example the end of its turn.
    """
    # A run may start while another thread ends the turn. No interval is negative.
    return max(run.started_at, otherwise) if run.ended_at is None else run.ended_at


def is_inside(run: Run, *kinds: str) -> bool:
    """Return True if a run of one of these kinds is around a run."""
    return any(ancestor.kind in kinds for ancestor in run.ancestors())


def of_kind(items: Iterable[T], *kinds: str) -> list[T]:
    """Return the runs, or the steps, of some kinds."""
    return [item for item in items if item.kind in kinds]


def outside(runs: Iterable[R], *kinds: str) -> list[R]:
    """Return the runs that are not inside a run of one of these kinds."""
    return [run for run in runs if not is_inside(run, *kinds)]


def outcome_of_error(
    error: BaseException | None, cancels: Collection[str] = CANCELS
) -> tuple[TurnStatus, ErrorInfo | None]:
    """Return how a turn ended, from the exception that left it, and the error to report.

    Args:
        error: the exception; None without one.
        cancels: the names of the exceptions that are no failure.
    """
    if error is None:
        return "ok", None
    if type(error).__name__ in cancels:
        return "cancelled", None
    return "error", ErrorInfo.of(error)


def seconds_to_first_token(run: Run | None, since: int) -> float | None:
    """Return the seconds from a time in nanoseconds to a call's first token; None if it was not streamed."""
    if run is None or run.first_token_at is None:
        return None
    return (run.first_token_at - since) / 1e9


def rewritten(queries: Iterable[str], question: str) -> tuple[str, ...]:
    """Return the queries that are neither empty nor the user's question, each once: the application rewrote it."""
    known = ("", question.strip())
    return tuple(query for query in dict.fromkeys(queries) if query.strip() not in known)


def step_frame(run: Run, kept: Collection[int], turn_end: int, stopped: bool) -> dict[str, Any]:
    """Return the fields that a step of any kind has.

    Args:
        run: the run.
        kept: the identities of the runs that become steps.
        turn_end: the end of the turn, for a run that has not ended.
        stopped: the run ended with an exception that is not a failure, for example a cancellation.
    """
    return {
        "id": run.text_id,
        # Chains and prompts are no steps, unless the application asks for them with spans="all".
        "parent_id": next((outer.text_id for outer in run.ancestors() if id(outer) in kept), None),
        "span_id": run.span_id,
        "span_tracer": run.span_tracer,
        "name": run.name,
        "started_at": run.started_at,
        "ended_at": end_of(run, turn_end),
        "error": None if stopped or run.error is None else ErrorInfo.of(run.error),
        "complete": run.ended_at is not None and not stopped,
    }


def build_turn(
    root: Run,
    steps: Sequence[Step] = (),
    *,
    attributes: Mapping[str, Any] | None,
    timing: Mapping[str, float | None] | None = None,
    **fields: Any,
) -> Turn:
    """Build the turn of a root: what the root says for all frameworks, and the fields that the framework has found.

    Args:
        root: the root.
        steps: the steps of the turn by start time.
        attributes: what the application put into its OpenTelemetry context, for example {"session.id": "42",
            "metadata": {"tenant": "acme"}}. What the framework knows wins.
        timing: further fields of the timing.
        fields: all other fields of the turn.
    """
    attributes = attributes or {}
    # Metadata of the framework is closer to the call than metadata of the whole request.
    shared = attributes.get("metadata") or {}
    own = {
        **fields,
        "session_id": fields.get("session_id") or first_string(attributes, ("session.id",)),
        "user_id": fields.get("user_id") or first_string(attributes, ("user.id",)),
        "metadata": {**shared, **fields.get("metadata", {})},
    }
    ended_at = end_of(root, root.started_at)
    return Turn(
        id=root.text_id,
        name=root.name,
        usage=Usage.of_steps(steps),
        timing=Timing(started_at=root.started_at, ended_at=ended_at, **busy_times(steps), **(timing or {})),
        steps=tuple(steps),
        **own,
    )


# --------------------------------------------------------------------------- times


def busy_seconds(intervals: Iterable[tuple[int, int]]) -> float | None:
    """Return the seconds covered by some intervals in nanoseconds; overlaps count once. None without intervals."""
    total = 0
    counted_until: int | None = None
    for start, end in sorted(intervals):
        # Retrievers that run in parallel overlap: only what goes beyond the latest end is added.
        begin = start if counted_until is None else max(start, counted_until)
        total += max(0, end - begin)
        counted_until = max(begin, end)
    return None if counted_until is None else total / 1e9


def busy_times(steps: Sequence[Step]) -> dict[str, float | None]:
    """Return the fields ``retrieval`` and ``generation`` of a turn's timing."""
    outermost = outside_retrieval(steps)
    searches, calls = filter(is_retrieval, outermost), of_kind(outermost, "llm")
    return {
        "retrieval": busy_seconds((step.started_at, step.ended_at) for step in searches),
        "generation": busy_seconds((step.started_at, step.ended_at) for step in calls),
    }


def fields_of_steps(turn: Turn, steps: Sequence[Step], first_token: tuple[int, float | None] | None) -> dict[str, Any]:
    """Return the fields of a turn that follow from its steps: the steps, their usage and the timing.

    Args:
        turn: the turn, with other steps so far.
        steps: the steps by start time.
        first_token: when the answering call, or the turn with it, began, in nanoseconds since the epoch, and the
            seconds from then to its first token; None without one.
    """
    timing, seconds = turn.timing, None
    if timing is not None:
        if first_token is not None and first_token[1] is not None:
            seconds = (first_token[0] - timing.started_at) / 1e9 + first_token[1]
        timing = timing.model_copy(update={**busy_times(steps), "time_to_first_token": seconds})
    return {"steps": tuple(steps), "usage": Usage.of_steps(steps), "timing": timing}


def is_retrieval(step: Step) -> bool:
    """Return True if a step searches: a retriever, a reranker, or a tool that found passages."""
    return step.kind in ("retriever", "reranker") or bool(step.passages)


def outside_retrieval(steps: Sequence[Step]) -> list[Step]:
    """Return the steps that are not part of a search, the searches themselves included.

    A retriever may call a model, for example to rewrite the query. That call is part of the search.
    """
    by_id = {step.id: step for step in steps}
    kept = []
    for step in steps:
        around = by_id.get(step.parent_id or "")
        while around is not None and not is_retrieval(around):
            around = by_id.get(around.parent_id or "")
        if around is None:
            kept.append(step)
    return kept


def prompt_text(messages: Iterable[Message]) -> str:
    """Return all text of a prompt."""
    return "\n".join(message.content for message in messages)


# --------------------------------------------------------------------------- the turn of a recording


def turn_of(recording: Recording) -> Turn:
    """Build the turn of a recording."""
    # The root is the first run, so its family is the first too.
    outer, *inner = _families(recording.runs)
    root = outer[0]
    settings = recording.owner.settings
    evidence = Evidence(recording.runs, settings.search_tools)
    build = partial(_turn_of_family, every_step=settings.spans == "all", evidence=evidence)
    attributes = context_attributes(recording.selection.context)
    build_root = partial(build, outer, about={"span": span_reference(recording), "attributes": attributes})
    if root.framework.join is None:
        turn = build_root(inner)
    else:
        # A block of the application (start_turn) sees each framework's run inside it as one turn, with the families
        # below.
        below: dict[int, list[list[Run]]] = {}
        for family in inner:
            top = next((run for run in (family[0], *family[0].ancestors()) if run.parent is root), family[0])
            below.setdefault(id(top), []).append(family)
        turn = root.framework.join(build_root(()), [build(first, others) for first, *others in below.values()])
    turn = turn.model_copy(update={"guard": recording.guard})
    earlier = [passage for passage in turn.passages if passage.from_turn is not None]
    # These come last, as metrics of retrieval expect them.
    return turn.model_copy(update={"passages": (*turn.retrieved, *earlier)}) if earlier else turn


def _turn_of_family(
    family: Sequence[Run],
    inner: Sequence[Sequence[Run]],
    *,
    every_step: bool,
    evidence: Evidence,
    about: Mapping[str, Any] | None = None,
) -> Turn:
    """Build the turn of one framework's runs, and add what other frameworks did inside it."""
    for other in inner:
        # The text that a tool or a function returns has what the other framework found inside it.
        if of_kind(other, "retriever", "reranker"):
            evidence.note_search_inside(other[0].ancestors())
    turn = family[0].framework.turn_of(family, every_step=every_step, evidence=evidence, **(about or {}))
    for other in inner:
        turn = _merge(turn, _turn_of_family(other, (), every_step=every_step, evidence=evidence), other[0])
    return turn


def _families(runs: Sequence[Run]) -> list[list[Run]]:
    """Split the runs where one framework calls another. Each family begins with its outermost run.

    A LangChain chain [A, B, C] whose step B queries a LlamaIndex engine [D, E] makes the families [A, B, C] and [D, E].
    """
    families: list[list[Run]] = []
    family_of: dict[int, list[Run]] = {}
    for run in runs:
        is_continued = run.parent is not None and run.parent.framework is run.framework
        family = family_of.get(id(run.parent)) if is_continued else None
        if family is None:
            family = []
            families.append(family)
        family.append(run)
        family_of[id(run)] = family
    return families


def _merge(turn: Turn, inner: Turn, border: Run) -> Turn:
    """Add to a turn what another framework did inside it.

    Args:
        turn: the outer turn.
        inner: the turn that the other framework's runs make.
        border: the outermost run of the other framework.
    """
    call = _same_model_call(turn, inner, border)
    if call is not None:
        # Only the wrapped framework knows the provider's token counts and the model's name: a model class of
        # LlamaIndex around a chat model of LangChain passes on the text only.
        known = {"usage": call.usage or inner.usage, "model": call.model or inner.model}
        complete = call.model_copy(update=known)
        steps = [complete if step is call else step for step in turn.steps]
        return turn.model_copy(
            update={"steps": tuple(steps), "usage": Usage.of_steps(steps), "model": turn.model or inner.model}
        )

    # The inner framework does not know the steps of the outer one: its outermost steps go below the nearest of those.
    known_ids = {step.id for step in turn.steps}
    parent_id = next((run.text_id for run in border.ancestors() if run.text_id in known_ids), None)
    inner_steps = [
        step.model_copy(update={"parent_id": parent_id}) if step.parent_id is None else step for step in inner.steps
    ]
    steps = sorted((*turn.steps, *inner_steps), key=lambda step: step.started_at)
    # The outer framework has called the answering model itself if it knows the model or its prompt.
    answered = turn.model is not None or bool(turn.prompt)
    timing = turn.timing if answered else inner.timing
    first_token = (timing.started_at, timing.time_to_first_token) if timing is not None else None
    searched = [inner.query] if inner.has_retrieval else []
    # Each text once: a retriever around another framework's retriever makes new documents, without the store's ids. A
    # passage was in the prompt if either final prompt contains it.
    texts = {passage.text for passage in turn.passages}
    new = [passage for passage in inner.passages if passage.text not in texts]
    either = ("query", "response", "prompt", "session_id", "user_id")
    return turn.model_copy(
        update={
            **{name: getattr(turn, name) or getattr(inner, name) for name in either},
            "passages": (*_marked_also(turn.passages, inner), *_marked_also(new, turn)),
            "retrieval_queries": rewritten((*turn.retrieval_queries, *searched, *inner.retrieval_queries), turn.query),
            "model": turn.model if answered else inner.model,
            **fields_of_steps(turn, steps, first_token),
        }
    )


def _same_model_call(turn: Turn, inner: Turn, border: Run) -> Step | None:
    """Return the model call that the inner turn is part of: one framework's model class wraps the other's."""
    around = {run.text_id for run in of_kind(border.ancestors(), "llm")}
    for call in of_kind(turn.steps, "llm"):
        if call.id in around:
            return call
        # The inner call of a streamed one begins when the stream is read, so it is not inside the outer call. But it
        # begins while the outer call is streaming, and writes the same text.
        is_streamed = border.kind == "llm" and call.time_to_first_token is not None
        is_during = call.started_at <= border.started_at <= call.ended_at
        if is_streamed and is_during and call.output == inner.response:
            return call
    return None


def _marked_also(passages: Sequence[Passage], turn: Turn) -> Sequence[Passage]:
    """Mark the passages that are in the final prompt of another turn too.

    One framework retrieves, the other one formats the prompt and calls the model.
    """
    if not turn.prompt:
        return passages
    return [
        again if old.prompt_share is None or (again.prompt_share or 0.0) > old.prompt_share else old
        for old, again in zip(passages, mark_seen(passages, prompt_text(turn.prompt)), strict=True)
    ]
