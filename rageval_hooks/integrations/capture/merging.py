"""Builds one turn from a recording. If it has runs of several frameworks, each builds a turn, and these are merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rageval_hooks.integrations.capture.authorship import prompt_text
from rageval_hooks.integrations.capture.passages import mark_seen
from rageval_hooks.integrations.capture.run_facts import busy_times, of_kind, rewritten
from rageval_hooks.integrations.capture.runs import Recording, Run
from rageval_hooks.integrations.capture.trace_context import context_attributes, span_reference
from rageval_hooks.turn import Passage, Step, Timing, Turn, Usage


def turn_of(recording: Recording) -> Turn:
    """Build the turn of a recording."""
    every_step = recording.owner.settings.spans == "all"
    # The root is the first run, so its family is the first too.
    outer, *inner = _families(recording.runs)
    turn = _build(
        outer,
        every_step,
        span=span_reference(recording),
        attributes=context_attributes(recording.selection.context),
    )
    root = outer[0]
    join = root.framework.join
    if join is None:
        return _in_order(_with_inner(turn, inner, every_step))

    # A block of the application (start_turn) sees each framework's run inside it as one turn, with the families below.
    below: dict[int, list[list[Run]]] = {}
    for family in inner:
        top = next((run for run in (family[0], *family[0].ancestors()) if run.parent is root), family[0])
        below.setdefault(id(top), []).append(family)
    turns = [_with_inner(_build(first, every_step), others, every_step) for first, *others in below.values()]
    return _in_order(join(turn, turns))


def _in_order(turn: Turn) -> Turn:
    """Return a turn whose passages of earlier turns come last, as metrics of retrieval expect them."""
    if len(turn.retrieved) == len(turn.passages):
        return turn
    passages = sorted(turn.passages, key=lambda passage: passage.from_turn is not None)
    return turn.model_copy(update={"passages": tuple(passages)})


def _with_inner(turn: Turn, inner: Iterable[Sequence[Run]], every_step: bool) -> Turn:
    for family in inner:
        turn = _merge(turn, _build(family, every_step), family[0])
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


def _build(family: Sequence[Run], every_step: bool, **about: Any) -> Turn:
    """Build the turn that the runs of one framework make by themselves."""
    return family[0].framework.turn_of(family, every_step=every_step, **about)


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
            "usage": Usage.of_steps(steps),
            "timing": _merged_timing(turn, inner, steps, answered),
            "steps": tuple(steps),
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


def _merged_timing(turn: Turn, inner: Turn, steps: Sequence[Step], answered: bool) -> Timing | None:
    """Return the times of the outer turn, with those of the inner turn's searches and model calls.

    Args:
        turn: the outer turn.
        inner: the inner turn.
        steps: the steps of both.
        answered: True if the outer framework called the model that answered.
    """
    outer = turn.timing
    if outer is None:
        return None
    first_token = outer.time_to_first_token
    if not answered and inner.timing is not None and inner.timing.time_to_first_token is not None:
        first_token = (inner.timing.started_at - outer.started_at) / 1e9 + inner.timing.time_to_first_token
    return outer.model_copy(update={**busy_times(steps), "time_to_first_token": first_token})
