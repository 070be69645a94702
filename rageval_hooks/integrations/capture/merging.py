"""One turn from a recording of several frameworks: each builds a turn of its own runs, the outermost takes them in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rageval_hooks.integrations.capture.durations import busy_seconds
from rageval_hooks.integrations.capture.passages import mark_shown
from rageval_hooks.integrations.capture.recorder import Recording, Run
from rageval_hooks.integrations.capture.trace_context import context_attributes, span_reference
from rageval_hooks.turn import Passage, Step, Turn, Usage

__all__ = ["turn_of"]


def turn_of(recording: Recording) -> Turn:
    """Build the turn of a recording.

    Raises:
        ValueError: a run was recorded without its framework.
    """
    every_step = recording.owner.settings.spans == "all"
    outer, *inner = _families(recording.runs)
    turn = _build(
        outer,
        every_step,
        span=span_reference(recording),
        attributes=context_attributes(recording.selection.context),
    )
    for family in inner:
        turn = _take_in(turn, _build(family, every_step), family[0])
    return turn


def _families(runs: Sequence[Run]) -> list[list[Run]]:
    """Part the runs where one framework calls another; each family begins with its outermost run."""
    families: dict[int, list[Run]] = {}
    for run in runs:
        parent = run.parent
        if parent is not None and parent.framework is run.framework and id(parent) in families:
            family = families[id(parent)]
            family.append(run)
        else:
            family = [run]
        families[id(run)] = family
    return [family for first, family in families.items() if id(family[0]) == first]


def _build(family: Sequence[Run], every_step: bool, **about: Any) -> Turn:
    framework = family[0].framework
    if framework is None:
        raise ValueError(f"the run {family[0].name!r} was recorded without its framework")
    return framework.turn_of(family, every_step=every_step, **about)


def _take_in(turn: Turn, inner: Turn, border: Run) -> Turn:
    """Add to a turn what another framework did inside of it.

    Args:
        turn: the outer turn.
        inner: what the other framework sees as a turn.
        border: the outermost run of the other framework.
    """
    same = _same_call(turn, inner, border)
    if same is not None:
        return _take_in_model_call(turn, inner, same)
    steps = _joined_steps(turn.steps, inner.steps, [run.text_id for run in border.ancestors()])
    answered = turn.model is not None or bool(turn.prompt)
    return turn.model_copy(
        update={
            "query": turn.query or inner.query,
            "passages": _joined_passages(turn, inner),
            "response": turn.response or inner.response,
            "retrieval_queries": _joined_queries(turn, inner),
            "prompt": turn.prompt or inner.prompt,
            "model": turn.model if answered else inner.model,
            "usage": Usage.sum(step.usage for step in steps),
            "timing": _joined_timing(turn, inner, steps, answered),
            "steps": steps,
            "session_id": turn.session_id or inner.session_id,
            "user_id": turn.user_id or inner.user_id,
        }
    )


def _same_call(turn: Turn, inner: Turn, border: Run) -> Step | None:
    """Return the model call of which the inner turn is but a part: one framework's model class around another's.

    Where the outer call is streamed, the inner one begins as it is read, and outside of it.
    """
    calls = [step for step in turn.steps if step.kind == "llm"]
    around = {run.text_id for run in border.ancestors() if run.kind == "llm"}
    for call in calls:
        streamed = call.time_to_first_token is not None and call.started_at <= border.started_at <= call.ended_at
        if call.id in around or (border.kind == "llm" and streamed and call.output == inner.response):
            return call
    return None


def _take_in_model_call(turn: Turn, inner: Turn, call: Step) -> Turn:
    full = call.model_copy(update={"usage": call.usage or inner.usage, "model": call.model or inner.model})
    steps = tuple(full if step is call else step for step in turn.steps)
    return turn.model_copy(
        update={
            "steps": steps,
            "usage": Usage.sum(step.usage for step in steps),
            "model": turn.model or inner.model,
        }
    )


def _joined_steps(outer: Iterable[Step], inner: Iterable[Step], around: Sequence[str]) -> tuple[Step, ...]:
    known = {step.id for step in outer}
    parent = next((run_id for run_id in around if run_id in known), None)
    moved = (step if step.parent_id is not None else step.model_copy(update={"parent_id": parent}) for step in inner)
    return tuple(sorted((*outer, *moved), key=lambda step: step.started_at))


def _joined_passages(turn: Turn, inner: Turn) -> tuple[Passage, ...]:
    """Join the passages; each counts as shown if the final prompt of either has it."""
    texts = {passage.text for passage in turn.passages}
    new = [passage for passage in inner.passages if passage.text not in texts]
    return (*_shown_also(turn.passages, inner), *_shown_also(new, turn))


def _shown_also(passages: Sequence[Passage], turn: Turn) -> list[Passage]:
    if not turn.prompt:
        return list(passages)
    prompt = "\n".join(message.content for message in turn.prompt)
    again = mark_shown(passages, prompt)
    return [
        new if (new.prompt_share or 0.0) > (old.prompt_share or 0.0) or old.prompt_share is None else old
        for old, new in zip(passages, again, strict=True)
    ]


def _joined_queries(turn: Turn, inner: Turn) -> tuple[str, ...]:
    asked = [inner.query] if inner.has_retrieval and inner.query else []
    queries = dict.fromkeys((*turn.retrieval_queries, *asked, *inner.retrieval_queries))
    return tuple(query for query in queries if query.strip() != turn.query.strip())


def _joined_timing(turn: Turn, inner: Turn, steps: Sequence[Step], answered: bool) -> Any:
    if turn.timing is None:
        return None
    parents = {step.id: step for step in steps}

    def retrieves(step: Step) -> bool:
        return step.kind in ("retriever", "reranker") or bool(step.passages)

    def inside_retrieval(step: Step) -> bool:
        around = parents.get(step.parent_id or "")
        return around is not None and (retrieves(around) or inside_retrieval(around))

    outermost = [step for step in steps if not inside_retrieval(step)]
    first_token = turn.timing.time_to_first_token
    if not answered and inner.timing is not None and inner.timing.time_to_first_token is not None:
        first_token = (inner.timing.started_at - turn.timing.started_at) / 1e9 + inner.timing.time_to_first_token
    return turn.timing.model_copy(
        update={
            "retrieval": busy_seconds((step.started_at, step.ended_at) for step in outermost if retrieves(step)),
            "generation": busy_seconds((step.started_at, step.ended_at) for step in outermost if step.kind == "llm"),
            "time_to_first_token": first_token,
        }
    )
