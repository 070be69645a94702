"""The passages of a turn: the nodes that the answer was written from, and those that were retrieved and dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rageval_hooks.integrations.capture.passages import mark_shown, unique_passages
from rageval_hooks.integrations.capture.run_facts import detail_of, is_inside
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.llama_index.payloads import (
    Made,
    Snapshot,
    arguments_of,
    node_ids,
    nodes_in,
    passages_of,
)
from rageval_hooks.integrations.llama_index.reading.calls import prompts_of_answer
from rageval_hooks.turn import Passage

__all__ = ["Marks", "nodes_after", "nodes_before", "passages_in_turn", "repetitions", "retrievals_of", "with_mark"]

Marks = dict[tuple[str | None, str], Passage]
"""Passages by id and text, marked with how much of each was in the prompt."""

_STEPS = frozenset({"chain", "tool", "workflow", "agent"})
"""Kinds that are an application's own code: workflow steps, functions and tools, and what receives its arguments."""


def nodes_before(run: Run) -> Snapshot:
    """Return the nodes that a reranker or a synthesizer was given."""
    return detail_of(run, "nodes_before") or ()


def nodes_after(run: Run) -> Snapshot | None:
    """Return the nodes that a retriever or a reranker returned; None if it failed."""
    nodes: Snapshot | None = detail_of(run, "nodes_after")
    return nodes


def retrievals_of(runs: Iterable[Run]) -> list[Run]:
    """Return the outermost retrievers and rerankers."""
    return [
        run for run in runs if run.kind in ("retriever", "reranker") and not is_inside(run, "retriever", "reranker")
    ]


# --------------------------------------------------------------------------- the passages of a turn


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
    retrieved = [passage for run in retrievals_of(runs) for passage in passages_of(nodes_after(run) or (), made)]
    passed = passages_of(_nodes_passed_by_steps(runs), made)
    prompt = prompts_of_answer(runs, calls, answering)
    candidates = unique_passages([*context, *retrieved, *passed])
    marks = {(passage.id, passage.text): passage for passage in mark_shown(candidates, prompt)}
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
        is_rebuilt = passage.id in rebuilt_ids and (marked.prompt_share or 0.0) > 0
        if not is_rebuilt and not _is_among(marked, passages):
            passages.append(marked if marked.in_prompt is not None else _dropped(marked))


def _add_passed(passages: list[Passage], passed: Iterable[Passage], marks: Marks) -> None:
    """Add what steps passed on and the prompt contains.

    Steps pass many nodes around, whole documents too. Only the prompt tells which of them were used.
    """
    for passage in passed:
        marked = with_mark(passage, marks)
        if marked.in_prompt and not _is_among(marked, passages):
            passages.append(marked)


def _dropped(passage: Passage) -> Passage:
    """Mark a passage that a reranker or an engine dropped before it called a model, or called none."""
    return passage.model_copy(update={"in_prompt": False, "prompt_share": 0.0})


def _found_by_retrievers(runs: Sequence[Run], made: Made) -> list[Passage]:
    """Return what the outermost retrievers found, with the scores that they gave."""
    repeated = repetitions(runs)
    retrievers = [run for run in retrievals_of(runs) if run.kind == "retriever" and id(run) not in repeated]
    return [passage for run in retrievers for passage in passages_of(nodes_after(run) or (), made)]


def _is_among(passage: Passage, others: Iterable[Passage]) -> bool:
    """Return True if one of some passages is this one, or was made from it: cut, extended or rewritten in place."""
    text = passage.text.strip()
    for other in others:
        if passage.id is not None and passage.id == other.id:
            return True
        if text and (text in other.text or other.text.strip() in text):
            return True
    return not text


def _nodes_passed_by_steps(runs: Sequence[Run]) -> Snapshot:
    """Return nodes in the arguments and results of workflow steps, tools and functions.

    An application may call a vector store itself, search the web, or receive documents from its caller.
    """
    found: list[tuple[object, object, str]] = []
    for run in runs:
        # LlamaIndex's engines pass nodes with model output around, for example the answers to sub-questions.
        if run.kind in _STEPS and not is_inside(run, "query", "chat"):
            found.extend(nodes_in(arguments_of(run.input)))
            found.extend(nodes_in(run.output))
    return tuple(found)


def with_mark(passage: Passage, marks: Marks) -> Passage:
    """Add how much of a passage was in the prompt. The score of its stage stays."""
    mark = marks.get((passage.id, passage.text))
    if mark is None:
        return passage
    if mark.score == passage.score and mark.metadata == passage.metadata:
        return mark
    return passage.model_copy(update={"in_prompt": mark.in_prompt, "prompt_share": mark.prompt_share})


# --------------------------------------------------------------------------- from the retriever to the prompt


@dataclass
class _Stage:
    """Nodes on their way from the retriever to the prompt."""

    nodes: Snapshot
    parent: Run | None
    used: bool = False
    ids: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = node_ids(self.nodes)


def context_of(runs: Sequence[Run]) -> tuple[Snapshot, frozenset[str]]:
    """Return the nodes that the answer was written from, in the order in which they were retrieved.

    The output of a reranker replaces its input. So do the nodes that a synthesizer was given: they may be fewer, cut
    into citations, or have new scores. A synthesizer over the answers to sub-questions was given nodes that no
    retriever found; they count only if nothing was retrieved.

    Returns:
        The nodes, and the ids of retrieved nodes from which an engine made nodes with new ids: citations.
    """
    rebuilt: frozenset[str] = frozenset()
    stages: list[_Stage] = []
    given: list[_Stage] = []
    retrieved: set[str] = set()
    ids_of_repetitions: set[str] = set()
    repeated = repetitions(runs)
    for run in _in_order(runs):
        if id(run) in repeated:
            ids_of_repetitions |= node_ids(nodes_after(run) or ())
        elif run.kind != "synthesizer":
            stage = _Stage(nodes_after(run) or (), run.parent)
            stages = [*_without(stages, _sharing(stages, node_ids(nodes_before(run)))), stage]
            retrieved |= stage.ids
        else:
            stage = _Stage(nodes_before(run), run.parent, used=True)
            if stage.ids <= ids_of_repetitions:
                continue
            replaced = _sharing(stages, stage.ids)
            has_new_ids = not replaced and not stage.ids & retrieved
            if has_new_ids:
                replaced = _unused_of_engine(stages, run.parent)
                rebuilt = rebuilt.union(*(old.ids for old in replaced))
            if has_new_ids and not replaced:
                given.append(stage)
            else:
                stages = [*_without(stages, replaced), stage]
    return tuple(node for stage in stages or given for node in stage.nodes), rebuilt


def _sharing(stages: Iterable[_Stage], ids: frozenset[str]) -> list[_Stage]:
    """Return the stages whose nodes go into the next one, and have not been in a prompt yet."""
    return [stage for stage in stages if not stage.used and stage.ids & ids]


def _unused_of_engine(stages: Iterable[_Stage], engine: Run | None) -> list[_Stage]:
    """Return what an engine's retriever found and no prompt has used. The engine made other nodes from it.

    A citation engine cuts nodes into numbered sources, each with a new id.
    """
    return [stage for stage in stages if stage.parent is engine and stage.ids and not stage.used]


def _without(stages: Iterable[_Stage], replaced: Sequence[_Stage]) -> list[_Stage]:
    return [stage for stage in stages if stage not in replaced]


def repetitions(runs: Sequence[Run]) -> set[int]:
    """Return the identities of retrievals that found the texts of earlier ones under new ids.

    An evaluator works this way when a query engine asks it whether to retry: it makes an index of the answer's
    passages and queries that with another prompt.
    """
    texts: set[str] = set()
    ids: set[str] = set()
    found = set()
    for run in _in_order(runs):
        nodes = nodes_after(run) if run.kind == "retriever" else None
        if not nodes:
            continue
        new_texts, new_ids = {text for _, _, text in nodes}, node_ids(nodes)
        if new_texts <= texts and not new_ids & ids:
            found.add(id(run))
        else:
            texts |= new_texts
            ids |= new_ids
    return found


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """Return retrievers, rerankers and synthesizers in the order of their effect.

    A synthesizer uses its nodes at its start; the others return theirs at their end.
    """
    found = []
    for position, run in enumerate(runs):
        if is_inside(run, "retriever", "reranker"):
            continue
        if run.kind == "synthesizer" and nodes_before(run):
            found.append((run.started_at, position, run))
        elif run.kind in ("retriever", "reranker") and nodes_after(run) is not None:
            found.append((run.ended_at or run.started_at, position, run))
    return [run for _, _, run in sorted(found, key=lambda item: item[:2])]
