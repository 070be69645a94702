"""The passages of a turn: the nodes that the answer was written from, and those that were retrieved and dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rageval_hooks.integrations.capture.passages import mark_dropped, mark_seen, passage_key, unique_passages
from rageval_hooks.integrations.capture.run_facts import of_kind, outside
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.llama_index.payloads import Made, Snapshot, arguments_of, nodes_in, passages_of
from rageval_hooks.integrations.llama_index.reading.calls import prompts_of_answer
from rageval_hooks.integrations.llama_index.reading.stages import context_of, nodes_after, repetitions
from rageval_hooks.turn import Passage

__all__ = ["Marks", "passages_found", "passages_in_turn", "retrievals_of", "with_mark"]

Marks = dict[tuple[str | None, str], Passage]
"""Passages by id and text, marked with how much of each was in the prompt."""

_STEPS = ("chain", "tool", "workflow", "agent")
"""Kinds that are an application's own code: workflow steps, functions and tools, and what receives its arguments."""

_FINDERS = ("retriever", "reranker")


def retrievals_of(runs: Iterable[Run]) -> list[Run]:
    """Return the outermost retrievers and rerankers."""
    return outside(of_kind(runs, *_FINDERS), *_FINDERS)


def passages_found(run: Run, made: Made | None = None) -> list[Passage]:
    """Return what a retriever or a reranker returned.

    Args:
        run: its run.
        made: the passages that were made of nodes already.
    """
    return passages_of(nodes_after(run) or (), made)


def passages_in_turn(
    runs: Sequence[Run], calls: Sequence[Run], answering: Run | None, made: Made
) -> tuple[tuple[Passage, ...], Marks]:
    """Return the passages of a turn, those of the answer's prompt first, and the marks of all that was retrieved.

    Args:
        runs: the runs by start time.
        calls: the model calls outside of retrievers.
        answering: the call that wrote the answer.
        made: the passages that were made of nodes already.
    """
    context_nodes, rebuilt_ids = context_of(runs)
    context = passages_of(context_nodes, made)
    retrieved = [passage for run in retrievals_of(runs) for passage in passages_found(run, made)]
    passed = passages_of(_nodes_passed_by_steps(runs), made)
    prompt = prompts_of_answer(runs, calls, answering)
    candidates = unique_passages([*context, *retrieved, *passed])
    marks = {passage_key(passage): passage for passage in mark_seen(candidates, prompt)}

    passages = [with_mark(passage, marks) for passage in unique_passages(context)]
    _add_dropped(passages, _found_by_retrievers(runs, made), marks, rebuilt_ids)
    _add_passed(passages, passed, marks)
    return tuple(passages), marks


def _add_dropped(
    passages: list[Passage], retrieved: Iterable[Passage], marks: Marks, rebuilt_ids: frozenset[str]
) -> None:
    """Add what was retrieved and did not reach the prompt."""
    for passage in retrieved:
        marked = with_mark(passage, marks)
        # A node that was cut into citations is in the prompt as these.
        is_rebuilt = passage.id in rebuilt_ids and bool(marked.prompt_share)
        if is_rebuilt or _is_among(marked, passages):
            continue
        # Without a mark no model was called: a reranker or the engine dropped the passage before.
        if marked.in_prompt is None:
            marked = mark_dropped(marked)
        passages.append(marked)


def _add_passed(passages: list[Passage], passed: Iterable[Passage], marks: Marks) -> None:
    """Add what steps passed on and the prompt contains.

    Steps pass many nodes around, whole documents too. Only the prompt tells which of them were used.
    """
    for passage in passed:
        marked = with_mark(passage, marks)
        if marked.in_prompt and not _is_among(marked, passages):
            passages.append(marked)


def _found_by_retrievers(runs: Sequence[Run], made: Made) -> list[Passage]:
    """Return what the outermost retrievers found, with the scores that they gave."""
    repeated = repetitions(runs)
    retrievers = of_kind(retrievals_of(runs), "retriever")
    originals = [run for run in retrievers if id(run) not in repeated]
    return [passage for run in originals for passage in passages_found(run, made)]


def _is_among(passage: Passage, others: Iterable[Passage]) -> bool:
    """Return True if one of some passages is this one, or was made from it: cut, extended or rewritten in place."""
    text = passage.text.strip()
    if not text:
        return True  # an empty passage has nothing to add
    return any(_has_same_id(passage, other) or _overlap(text, other.text) for other in others)


def _has_same_id(passage: Passage, other: Passage) -> bool:
    return passage.id is not None and passage.id == other.id


def _overlap(text: str, other: str) -> bool:
    return text in other or other.strip() in text


def _nodes_passed_by_steps(runs: Sequence[Run]) -> Snapshot:
    """Return nodes in the arguments and results of workflow steps, tools and functions.

    An application may call a vector store itself, search the web, or receive documents from its caller.
    """
    found: list[tuple[object, object, str]] = []
    # LlamaIndex's engines pass nodes with model output around, for example the answers to sub-questions.
    for run in outside(of_kind(runs, *_STEPS), "query", "chat"):
        found.extend(nodes_in(arguments_of(run.input)))
        found.extend(nodes_in(run.output))
    return tuple(found)


def with_mark(passage: Passage, marks: Marks) -> Passage:
    """Add how much of a passage was in the prompt. The score of its stage stays."""
    mark = marks.get(passage_key(passage))
    if mark is None:
        return passage
    if mark.score == passage.score and mark.metadata == passage.metadata:
        return mark
    return passage.model_copy(update={"in_prompt": mark.in_prompt, "prompt_share": mark.prompt_share})
