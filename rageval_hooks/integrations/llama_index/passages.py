"""The passages of a turn: the nodes that the answer was written from, and those that were retrieved and dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

from rageval_hooks.integrations.capture.authorship import carries
from rageval_hooks.integrations.capture.passages import (
    EarlierPassages,
    mark_dropped,
    mark_seen,
    passage_key,
    unique_passages,
)
from rageval_hooks.integrations.capture.run_facts import of_kind, outside
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.capture.text_results import text_results
from rageval_hooks.integrations.llama_index.messages import arguments_of, messages_of
from rageval_hooks.integrations.llama_index.model_calls import generated_text, prompts_of_answer
from rageval_hooks.integrations.llama_index.nodes import Made, Snapshot, node_ids, nodes_in, passages_of
from rageval_hooks.integrations.llama_index.values import answer_of
from rageval_hooks.turn import Passage

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
    context_nodes, rebuilt_ids = _context_of(runs)
    context = passages_of(context_nodes, made)
    retrievals = retrievals_of(runs)
    # An application's steps, tools and functions may call a vector store themselves, search the web, or receive
    # documents from their caller. LlamaIndex's engines pass nodes with model output around, for example the answers
    # to sub-questions, so what is inside of them does not count.
    steps = outside(of_kind(runs, *_STEPS), "query", "chat")
    values = chain.from_iterable((arguments_of(run.input), run.output) for run in steps)
    passed = passages_of(chain.from_iterable(map(nodes_in, values)), made)
    candidates = unique_passages(
        [*context, *(passage for run in retrievals for passage in passages_found(run, made)), *passed]
    )
    prompt = prompts_of_answer(runs, calls, answering)
    marks = {passage_key(passage): passage for passage in mark_seen(candidates, prompt)}
    passages = [with_mark(passage, marks) for passage in unique_passages(context)]

    # What the outermost retrievers found, with the scores that they gave, and what did not reach the prompt.
    repeated = repetitions(runs)
    for run in retrievals:
        if run.kind != "retriever" or id(run) in repeated:
            continue
        for found in passages_found(run, made):
            marked = with_mark(found, marks)
            # A node that was cut into citations is in the prompt as these.
            is_rebuilt = found.id in rebuilt_ids and bool(marked.prompt_share)
            if not is_rebuilt and not _is_among(marked, passages):
                # Without a mark no model was called: a reranker or the engine dropped the passage before.
                passages.append(mark_dropped(marked) if marked.in_prompt is None else marked)

    # Steps pass many nodes around, whole documents too. Only the prompt tells which of them were used.
    for passage in passed:
        marked = with_mark(passage, marks)
        if marked.in_prompt and not _is_among(marked, passages):
            passages.append(marked)

    for tool in of_kind(runs, "tool"):
        # Next to nodes, other texts are more likely something else, unless the application names the tool.
        is_search = tool.details.get("is_search")
        if is_search or (is_search is None and not candidates):
            results = _text_results_of(tool, calls, named=bool(is_search))
            passages += [found for found in mark_seen(results, prompt) if found.in_prompt]
    return tuple(passages), marks


def _text_results_of(tool: Run, calls: Sequence[Run], named: bool) -> Sequence[Passage]:
    """Return the search results that a tool returned as text; none if it failed or if a model of the turn wrote it."""
    output = answer_of(tool.output)
    is_error = getattr(tool.output, "is_error", False)
    if is_error or any(carries(output, generated_text(call)) for call in calls if tool in call.ancestors()):
        return ()
    raw = getattr(tool.output, "raw_output", None)
    structured = text_results(raw, {"tool": tool.name}, named=named) if isinstance(raw, (list, dict)) else ()
    return structured or text_results(output, {"tool": tool.name}, named=named)


def _is_among(passage: Passage, others: Iterable[Passage]) -> bool:
    """Return True if one of some passages is this one, or was made from it: cut, extended or rewritten in place."""
    text = passage.text.strip()
    if not text:
        return True  # an empty passage has nothing to add
    for other in others:
        if passage.id is not None and passage.id == other.id:
            return True
        if text in other.text or other.text.strip() in text:
            return True
    return False


def with_mark(passage: Passage, marks: Marks) -> Passage:
    """Add how much of a passage was in the prompt. The score of its stage stays."""
    mark = marks.get(passage_key(passage))
    if mark is None:
        return passage
    if mark.score == passage.score and mark.metadata == passage.metadata:
        return mark
    return passage.model_copy(update={"in_prompt": mark.in_prompt, "prompt_share": mark.prompt_share})


# --------------------------------------------------------------------------- stages: retriever, reranker, synthesizer


def nodes_before(run: Run) -> Snapshot:
    """Return the nodes that a reranker or a synthesizer was given."""
    return run.details.get("nodes_before") or ()


def nodes_after(run: Run) -> Snapshot | None:
    """Return the nodes that a retriever or a reranker returned; None if it failed."""
    nodes: Snapshot | None = run.details.get("nodes_after")
    return nodes


@dataclass(frozen=True, eq=False)
class _Stage:
    """Nodes on their way from the retriever to the prompt.

    Attributes:
        nodes: the nodes.
        parent: the run around the retriever, reranker or synthesizer.
        used: True if a synthesizer has put them into a prompt.
    """

    nodes: Snapshot
    parent: Run | None
    used: bool

    @property
    def ids(self) -> frozenset[str]:
        return node_ids(self.nodes)


def _context_of(runs: Sequence[Run]) -> tuple[Snapshot, frozenset[str]]:
    """Return the nodes that the answer was written from, in the order in which they were retrieved.

    The output of a reranker replaces its input. So do the nodes that a synthesizer was given: they may be fewer, cut
    into citations, or have new scores. A synthesizer over the answers to sub-questions was given nodes that no
    retriever found; they count only if nothing was retrieved.

    Returns:
        The nodes, and the ids of retrieved nodes from which an engine made nodes with new ids: citations.
    """
    stages: list[_Stage] = []
    given: list[_Stage] = []
    retrieved_ids: set[str] = set()
    repeated_ids: set[str] = set()
    rebuilt_ids: set[str] = set()
    repeated = repetitions(runs)
    for run in _in_order(runs):
        if id(run) in repeated:
            repeated_ids |= node_ids(nodes_after(run) or ())
            continue
        is_synthesizer = run.kind == "synthesizer"
        stage = _Stage(nodes_before(run) if is_synthesizer else nodes_after(run) or (), run.parent, is_synthesizer)
        # The evaluator's own query engine has a synthesizer too.
        if is_synthesizer and stage.ids <= repeated_ids:
            continue
        unused = [known for known in stages if not known.used]
        # A reranker and a synthesizer were given nodes of earlier stages, a retriever none.
        given_ids = node_ids(nodes_before(run))
        replaced = [known for known in unused if known.ids & given_ids]
        if is_synthesizer and not replaced and not stage.ids & retrieved_ids:
            # No retriever found these ids. A citation engine makes such nodes from what its retriever found: the node
            # "d1" becomes "Source 1: …" and "Source 2: …" with new ids.
            replaced = [known for known in unused if known.ids and known.parent is run.parent]
            if not replaced:
                given.append(stage)
                continue
            rebuilt_ids.update(*(known.ids for known in replaced))
        stages = [*(known for known in stages if known not in replaced), stage]
        if not is_synthesizer:
            retrieved_ids |= stage.ids
    nodes = chain.from_iterable(stage.nodes for stage in stages or given)
    return tuple(nodes), frozenset(rebuilt_ids)


def repetitions(runs: Sequence[Run]) -> set[int]:
    """Return the identities of retrievals that found the texts of earlier ones under new ids.

    An evaluator works this way when a query engine asks it whether to retry: it makes an index of the answer's
    passages and queries that with another prompt.
    """
    texts: set[str] = set()
    ids: set[str] = set()
    found = set()
    for run in of_kind(_in_order(runs), "retriever"):
        nodes = nodes_after(run) or ()
        new_texts = {text for _, _, text in nodes}
        new_ids = node_ids(nodes)
        if nodes and new_texts <= texts and ids.isdisjoint(new_ids):
            found.add(id(run))
        else:
            texts |= new_texts
            ids |= new_ids
    return found


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """Return retrievers, rerankers and synthesizers in the order in which they took or returned nodes."""
    timed = []
    for run in outside(runs, *_FINDERS):
        if run.kind == "synthesizer" and nodes_before(run):
            timed.append((run.started_at, run))  # it uses its nodes at its start
        elif run.kind in _FINDERS and nodes_after(run) is not None:
            timed.append((run.ended_at or run.started_at, run))
    return [run for _, run in sorted(timed, key=itemgetter(0))]


# --------------------------------------------------------------------------- earlier turns


class EarlierTools(EarlierPassages):
    """The passages that tools found, by the text that the tool returned.

    The span of a tool does not have the id of the call, so the text of the tool message is what leads to the passages.
    """

    def remember(self, runs: Sequence[Run]) -> None:
        """Remember what the tools of a turn found."""
        for run in retrievals_of(runs):
            for tool in of_kind(run.ancestors(), "tool"):
                self.add(answer_of(tool.output), passages_found(run), runs[0].text_id)
        # A tool may search without a retriever, and return the nodes.
        for tool in of_kind(runs, "tool"):
            self.add(answer_of(tool.output), passages_of(nodes_in(tool.output)), runs[0].text_id)

    def passages_in(self, answering: Run | None, runs: Sequence[Run]) -> list[Passage]:
        """Return the passages of earlier tool messages in the prompt of the answer.

        Args:
            answering: the call that wrote the answer.
            runs: the runs of the turn. Its own tools are not earlier ones.
        """
        if answering is None or not self:
            return []
        own = {answer_of(tool.output) for tool in of_kind(runs, "tool")}
        found: list[Passage] = []
        for message in messages_of(answering.input):
            if message.role != "tool" or message.content in own:
                continue
            passages = self.get(message.content)
            if passages:
                shown = [passage for passage in mark_seen(passages, message.content) if passage.in_prompt]
                # The tool may have returned a summary of what it found: then the summary is the passage.
                summary = Passage(
                    text=message.content, in_prompt=True, prompt_share=1.0, from_turn=passages[0].from_turn
                )
                found.extend(shown or [summary])
        return found
