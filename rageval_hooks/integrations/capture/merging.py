"""Builds one turn from a recording. If it has runs of several frameworks, each builds a turn, and these are merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rageval_hooks.integrations.capture.authorship import prompt_text
from rageval_hooks.integrations.capture.passages import mark_seen
from rageval_hooks.integrations.capture.run_facts import of_kind, rewritten
from rageval_hooks.integrations.capture.runs import Recording, Run
from rageval_hooks.integrations.capture.step_times import busy_times
from rageval_hooks.integrations.capture.trace_context import context_attributes, span_reference
from rageval_hooks.turn import Passage, Step, Timing, Turn, Usage

__all__ = ["turn_of"]


def turn_of(recording: Recording) -> Turn:
    """Build the turn of a recording.

    Raises:
        ValueError: a run was recorded without its framework.
    """
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
    join = None if root.framework is None else root.framework.join
    if join is None:
        return _with_inner(turn, inner, every_step)
    # A block of the application (start_turn) sees each framework's run inside it as one turn.
    inner_turns = [_turn_of_families(group, every_step) for group in _groups(inner, root)]
    return join(turn, inner_turns)


def _turn_of_families(families: Sequence[Sequence[Run]], every_step: bool) -> Turn:
    outer, *inner = families
    return _with_inner(_build(outer, every_step), inner, every_step)


def _with_inner(turn: Turn, inner: Iterable[Sequence[Run]], every_step: bool) -> Turn:
    for family in inner:
        turn = _merge(turn, _build(family, every_step), family[0])
    return turn


def _groups(families: Iterable[list[Run]], root: Run) -> list[list[list[Run]]]:
    """Return the families below each run that is directly under the root, the outermost family of each first."""
    groups: dict[int, list[list[Run]]] = {}
    for family in families:
        top = _below(root, family[0])
        groups.setdefault(id(top), []).append(family)
    return list(groups.values())


def _below(root: Run, run: Run) -> Run:
    """Return the run directly under the root that is, or encloses, a run."""
    top = run
    for ancestor in run.ancestors():
        if ancestor is root:
            return top
        top = ancestor
    return top


def _families(runs: Sequence[Run]) -> list[list[Run]]:
    """Split the runs where one framework calls another. Each family begins with its outermost run.

    A LangChain chain [A, B, C] whose step B queries a LlamaIndex engine [D, E] makes the families [A, B, C] and [D, E].
    """
    families: list[list[Run]] = []
    family_of: dict[int, list[Run]] = {}
    for run in runs:
        family = _family_of_parent(run, family_of)
        if family is None:
            family = []
            families.append(family)
        family.append(run)
        family_of[id(run)] = family
    return families


def _family_of_parent(run: Run, family_of: dict[int, list[Run]]) -> list[Run] | None:
    """Return the family of the enclosing run; None if another framework reported that, or for the root."""
    parent = run.parent
    if parent is None or parent.framework is not run.framework:
        return None
    return family_of.get(id(parent))


def _build(family: Sequence[Run], every_step: bool, **about: Any) -> Turn:
    """Build the turn that the runs of one framework make by themselves."""
    framework = family[0].framework
    if framework is None:
        raise ValueError(f"the run {family[0].name!r} was recorded without its framework")
    return framework.turn_of(family, every_step=every_step, **about)


def _merge(turn: Turn, inner: Turn, border: Run) -> Turn:
    """Add to a turn what another framework did inside it.

    Args:
        turn: the outer turn.
        inner: the turn that the other framework's runs make.
        border: the outermost run of the other framework.
    """
    call = _same_model_call(turn, inner, border)
    if call is not None:
        return _merge_model_call(turn, inner, call)
    steps = _merged_steps(turn.steps, inner.steps, border)
    # The outer framework has called the answering model itself if it knows the model or its prompt.
    answered = turn.model is not None or bool(turn.prompt)
    return turn.model_copy(
        update={
            **_known_fields(turn, inner, "query", "response", "prompt", "session_id", "user_id"),
            "passages": _merged_passages(turn, inner),
            "retrieval_queries": _merged_queries(turn, inner),
            "model": turn.model if answered else inner.model,
            "usage": Usage.of_steps(steps),
            "timing": _merged_timing(turn, inner, steps, answered),
            "steps": steps,
        }
    )


def _known_fields(turn: Turn, inner: Turn, *names: str) -> dict[str, Any]:
    """Return fields of the outer turn, and of the inner one where the outer framework knows nothing."""
    return {name: getattr(turn, name) or getattr(inner, name) for name in names}


# --------------------------------------------------------------------------- model calls


def _same_model_call(turn: Turn, inner: Turn, border: Run) -> Step | None:
    """Return the model call that the inner turn is part of: one framework's model class wraps the other's."""
    around = {run.text_id for run in of_kind(border.ancestors(), "llm")}
    for call in of_kind(turn.steps, "llm"):
        if call.id in around or _is_read_from_stream(call, inner, border):
            return call
    return None


def _is_read_from_stream(call: Step, inner: Turn, border: Run) -> bool:
    """Return True if a streamed model call wraps an inner one.

    The inner call begins when the stream is read, so it is not inside the outer call. But it begins while the outer
    call is streaming, and writes the same text.
    """
    is_streamed = border.kind == "llm" and call.time_to_first_token is not None
    if not is_streamed or call.output != inner.response:
        return False
    return call.started_at <= border.started_at <= call.ended_at


def _merge_model_call(turn: Turn, inner: Turn, call: Step) -> Turn:
    """Add to a model call what only the wrapped framework knows: the provider's token counts and the model's name."""
    # A model class of LlamaIndex around a chat model of LangChain passes on the text only.
    known = {"usage": call.usage or inner.usage, "model": call.model or inner.model}
    complete = call.model_copy(update=known)
    steps = tuple(complete if step is call else step for step in turn.steps)
    return turn.model_copy(
        update={
            "steps": steps,
            "usage": Usage.of_steps(steps),
            "model": turn.model or inner.model,
        }
    )


# --------------------------------------------------------------------------- the other fields


def _merged_steps(outer: Sequence[Step], inner: Sequence[Step], border: Run) -> tuple[Step, ...]:
    """Return all steps by start time. The inner ones become children of the nearest outer step around them."""
    parent_id = _nearest_step(outer, border)
    steps = list(outer)
    for step in inner:
        # The inner framework does not know the steps of the outer one.
        is_outermost = step.parent_id is None
        steps.append(step.model_copy(update={"parent_id": parent_id}) if is_outermost else step)
    steps.sort(key=lambda step: step.started_at)
    return tuple(steps)


def _nearest_step(steps: Sequence[Step], border: Run) -> str | None:
    """Return the id of the nearest run around the border that has become a step."""
    known = {step.id for step in steps}
    for run in border.ancestors():
        if run.text_id in known:
            return run.text_id
    return None


def _merged_passages(turn: Turn, inner: Turn) -> tuple[Passage, ...]:
    """Return the passages of both, each text once. A passage was in the prompt if either final prompt contains it."""
    # By text: a retriever around another framework's retriever makes new documents, without the store's ids.
    texts = {passage.text for passage in turn.passages}
    new = [passage for passage in inner.passages if passage.text not in texts]
    return (*_marked_also(turn.passages, inner), *_marked_also(new, turn))


def _marked_also(passages: Sequence[Passage], turn: Turn) -> Iterator[Passage]:
    """Mark the passages that are in the final prompt of another turn too."""
    if not turn.prompt:
        return iter(passages)
    # One framework retrieves, the other one formats the prompt and calls the model.
    return map(_better_marked, passages, mark_seen(passages, prompt_text(turn.prompt)))


def _better_marked(passage: Passage, again: Passage) -> Passage:
    """Return the copy of a passage that shows more of it in the prompt."""
    if passage.prompt_share is None:
        return again  # no prompt was known before
    if again.prompt_share is not None and again.prompt_share > passage.prompt_share:
        return again
    return passage


def _merged_queries(turn: Turn, inner: Turn) -> tuple[str, ...]:
    """Return the retrieval queries that differ from the user's. The inner turn's own query is one of them."""
    own = [inner.query] if inner.has_retrieval else []
    return rewritten((*turn.retrieval_queries, *own, *inner.retrieval_queries), turn.query)


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
    first_token = outer.time_to_first_token if answered else _inner_first_token(outer, inner.timing)
    return outer.model_copy(update={**busy_times(steps), "time_to_first_token": first_token})


def _inner_first_token(outer: Timing, inner: Timing | None) -> float | None:
    """Return the seconds from the start of the outer turn to the first token of the inner one."""
    if inner is None or inner.time_to_first_token is None:
        return outer.time_to_first_token
    before_inner = (inner.started_at - outer.started_at) / 1e9
    return before_inner + inner.time_to_first_token
