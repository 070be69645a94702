"""The passages of a turn: the nodes that the answer was written from, and those that were retrieved and dropped.

Nodes are read by attribute names: the classes are not imported, because importing llama-index-core takes seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

from rageval_hooks.integrations.capture import values
from rageval_hooks.integrations.capture.evidence import WRITTEN_BY_MODEL, Evidence
from rageval_hooks.integrations.capture.passages import (
    EarlierPassages,
    mark_dropped,
    mark_seen,
    passage_key,
    passage_of_object,
    results_in_fields,
    text_results,
    unique_passages,
)
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.turns import end_of, of_kind, outside
from rageval_hooks.integrations.capture.values import or_else
from rageval_hooks.integrations.llama_index.model_calls import prompts_of_answer
from rageval_hooks.integrations.llama_index.runs import LlamaIndexRun, Snapshot
from rageval_hooks.integrations.llama_index.values import (
    answer_of,
    arguments_of,
    fields_of,
    messages_of,
    queries_of,
    tool_arguments,
)
from rageval_hooks.runtime.narrowing import is_integer
from rageval_hooks.turn import Passage

_DEPTH = 5
"""Values within values that are searched: a workflow's event, its field, a response, its list."""

_MAX_VALUES = 2_000
"""Values that one search looks into."""

_NOTHING_INSIDE = (str, bytes, int, float, type(None))
"""Classes of values that hold no nodes. Most values of an event are of these, so they are told apart first."""

_CONTAINERS = (dict, list, tuple, set, frozenset)

_DATA_CLASSES = frozenset({"Event", "DictLikeModel", "ToolOutput", "ToolCallResult"})
"""Classes of LlamaIndex whose fields are data."""


@or_else(())
def nodes_in(value: Any) -> Snapshot:
    """Return the nodes inside of a value as they are now: in lists, mappings, events, and results of vector stores."""
    left = _MAX_VALUES  # an application may pass anything through its steps

    def search(value: Any, depth: int) -> Iterator[Passage]:
        nonlocal left
        left -= 1
        if left < 0 or depth > _DEPTH or isinstance(value, _NOTHING_INSIDE):
            return
        passage = None if isinstance(value, _CONTAINERS) else passage_of_object(value)
        if passage is not None:
            yield passage
        elif hasattr(value, "similarities") and isinstance(getattr(value, "nodes", None), (list, tuple)):
            # VectorStoreQueryResult(nodes=[node, …], similarities=[0.83, …]), with fewer similarities in some stores.
            scores = map(values.finite, chain(value.similarities or (), repeat(None)))
            for passage, score in zip(nodes_in(value.nodes), scores, strict=False):
                yield passage.model_copy(update={"score": score})
        else:
            for part in _parts_of(value):
                yield from search(part, depth + 1)

    return tuple(search(value, 0))


def _parts_of(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return dict.values(value)
    if isinstance(value, _CONTAINERS):
        return value
    if hasattr(value, "source_nodes"):
        return ()  # a response of an engine, whose retrievers are known
    # Only data is searched, that is dataclasses, events of workflows and outputs of tools: components (engines, models,
    # contexts) hold whole indexes.
    names = {base.__name__ for base in type(value).__mro__}
    is_data = hasattr(value, "__dataclass_fields__") or not names.isdisjoint(_DATA_CLASSES)
    return fields_of(value).values() if is_data else ()


# --------------------------------------------------------------------------- what a retriever asks its store for


_TOP_K = ("_similarity_top_k", "similarity_top_k", "top_n", "_top_k")
_STORES = ("_vector_store", "vector_store", "_store")


def _field(value: Any, names: Iterable[str]) -> Any:
    """Return the first field that an object has and that is set; None without one."""
    fields = values.own_fields(value)
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def top_k_of(retriever: Any) -> int | None:
    """Return how many passages a retriever or reranker is to return; None if it has no such field."""
    found = _field(retriever, _TOP_K)
    return found if is_integer(found) else None


def collection_of(retriever: Any) -> str | None:
    """Return the collection that a retriever searches, else the class of its store; None without a store."""
    store = _field(retriever, _STORES)
    return None if store is None else values.collection_name(store)


OfTool = list[Passage] | str
"""What a tool found as text, or why its result is no passage."""

_STEPS = ("chain", "tool", "workflow", "agent")
"""Kinds that are an application's own code: workflow steps, functions and tools, and what receives its arguments."""

_FINDERS = ("retriever", "reranker")


def retrievals_of(runs: Iterable[LlamaIndexRun]) -> list[LlamaIndexRun]:
    """Return the outermost retrievers and rerankers."""
    return outside(of_kind(runs, *_FINDERS), *_FINDERS)


class TurnPassages:
    """The passages of a turn: what the answer was written from, and what was retrieved and dropped.

    Args:
        runs: the runs by start time.
        calls: the model calls outside of retrievers.
        answering: the call that wrote the answer; None if no model wrote it.
        evidence: tells what is evidence. What a model of the turn wrote is no passage.

    Attributes:
        passages: those of the answer's prompt first.
        of_tools: what tools found as text, or why that is no passage, by the identity of the tool's run.
    """

    def __init__(
        self,
        *,
        runs: Sequence[LlamaIndexRun],
        calls: Sequence[LlamaIndexRun],
        answering: LlamaIndexRun | None,
        evidence: Evidence,
    ) -> None:
        self._runs, self._evidence = runs, evidence
        self._prompt = prompts_of_answer(calls, answering, evidence)
        self._queries = [query for run in of_kind(runs, "retriever", "tool") for query in queries_of(run)]
        answered_at = end_of(runs[0], runs[0].started_at) if answering is None else answering.started_at
        nodes, rebuilt = _context_of(runs)
        context = self._unwritten(nodes, answered_at)
        retrieved = {run: self._unwritten(run.nodes_after or (), answered_at) for run in retrievals_of(runs)}
        # An application's steps, tools and functions may call a vector store themselves, search the web, or receive
        # documents from their caller. LlamaIndex's engines pass nodes with model output around, for example the answers
        # to sub-questions, so what is inside of them does not count.
        self._steps = outside(of_kind(runs, *_STEPS), "query", "chat")
        passed = [node for run in self._steps for node in self._passed_through(run)]
        candidates = unique_passages([*context, *chain.from_iterable(retrieved.values()), *passed])
        self._marks = {passage_key(passage): passage for passage in mark_seen(candidates, self._prompt)}

        self._found = [self.marked(passage) for passage in unique_passages(context)]
        for run, found in retrieved.items():
            if run.kind == "retriever":
                self._add_retrieved(found, rebuilt)
        # Steps pass many nodes around, whole documents too. Only the prompt tells which of them were used.
        self._add_used(map(self.marked, passed))
        self.of_tools: dict[int, OfTool] = {}
        # A tool may be an agent with tools of its own, so the inner ones come first.
        for tool in reversed(of_kind(runs, "tool")):
            # Of a search with a retriever or with nodes, these are the passages. Its text has the same ones.
            if not evidence.has_search_inside(tool) and not any(tool in run.ancestors() for run in retrieved):
                self.of_tools[id(tool)] = self._of_tool(tool)
        for tool in of_kind(runs, "tool"):
            results = [one for one in self.of_tools.get(id(tool), ()) if isinstance(one, Passage)]
            self._found += [one for one in results if one not in self._found and one.in_prompt]
        if not self._found and self._prompt is not None:
            self._add_own_classes()
        self.passages = tuple(self._found)

    def marked(self, passage: Passage) -> Passage:
        """Add how much of a passage was in the prompt. The score of its stage stays."""
        mark = self._marks.get(passage_key(passage))
        if mark is None:
            return passage
        if mark.score == passage.score and mark.metadata == passage.metadata:
            return mark
        return passage.model_copy(update={"in_prompt": mark.in_prompt, "prompt_share": mark.prompt_share})

    def _unwritten(self, found: Iterable[Passage], at: int) -> list[Passage]:
        return self._evidence.among(found, at, lambda: self._queries)

    def _passed_through(self, step: LlamaIndexRun) -> Iterator[Passage]:
        yield from self._unwritten(nodes_in(arguments_of(step.input)), step.started_at)
        yield from self._unwritten(nodes_in(step.output), self._evidence.found_at(step))

    def _add_retrieved(self, found: Iterable[Passage], rebuilt: Collection[str | None]) -> None:
        """Add what a retriever found, with the scores that it gave, and what did not reach the prompt."""
        for passage in map(self.marked, found):
            # A node that was cut into citations is in the prompt as these.
            is_rebuilt = passage.id in rebuilt and bool(passage.prompt_share)
            if not is_rebuilt and not _is_among(passage, self._found):
                # Without a mark no model was called: a reranker or the engine dropped the passage before.
                self._found.append(mark_dropped(passage) if passage.in_prompt is None else passage)

    def _add_used(self, passages: Iterable[Passage]) -> None:
        for passage in passages:
            if passage.in_prompt and not _is_among(passage, self._found):
                self._found.append(passage)

    def _of_tool(self, tool: LlamaIndexRun) -> OfTool:
        """Return what a tool found, as nodes or as text, or why that is no passage."""
        found_at = self._evidence.found_at(tool)
        if nodes := nodes_in(tool.output):  # passed through, so they are among the passages
            return [self.marked(passage) for passage in self._unwritten(nodes, found_at)]
        is_search, reason = self._evidence.tool_searches(
            tool.name,
            description=values.attribute_text(getattr(tool.instance, "metadata", None), "description"),
            arguments=tool_arguments(tool.input)[1],
            result=answer_of(tool.output),
        )
        if not is_search:
            return reason
        results = _text_results_of(tool)
        own = self._unwritten(results, found_at)
        found = [result for result in mark_seen(own, self._prompt) if result.in_prompt]
        if found:  # a tool's "call" is inside its "__call__"
            around = of_kind(tool.ancestors(), "tool")
            self._evidence.note_search_inside(outer for outer in around if outer.name != tool.name)
        return WRITTEN_BY_MODEL if results and not own else found

    def _add_own_classes(self) -> None:
        """Add what the steps of a workflow found that search by themselves, and pass on chunks of their own classes."""
        for run in outside(of_kind(self._steps, "chain"), "tool"):
            inputs = [fields_of(value) for value in arguments_of(run.input).values()]
            given = {key: item for fields in inputs for key, item in fields.items()}
            results = results_in_fields(fields_of(run.output), given)
            self._add_used(mark_seen(self._unwritten(results, self._evidence.found_at(run)), self._prompt))


def _text_results_of(tool: Run) -> Sequence[Passage]:
    """Return the search results that a tool returned as text; none if it failed."""
    if getattr(tool.output, "is_error", False):
        return ()
    raw = getattr(tool.output, "raw_output", None)
    structured = text_results(raw, {"tool": tool.name}) if isinstance(raw, (list, dict)) else ()
    return structured or text_results(answer_of(tool.output), {"tool": tool.name})


def _is_among(passage: Passage, others: Iterable[Passage]) -> bool:
    """Return True if one of some passages is this one, or was made from it: cut, extended or rewritten in place."""
    text = passage.text.strip()
    for other in others:
        if passage.id is not None and passage.id == other.id:
            return True
        theirs = other.text.strip()
        if theirs and (text in theirs or theirs in text):  # an empty text is in every other one
            return True
    return False


# --------------------------------------------------------------------------- stages: retriever, reranker, synthesizer


def _context_of(runs: Sequence[LlamaIndexRun]) -> tuple[Snapshot, set[str | None]]:
    """Return the nodes that the answer was written from, in the order in which they were retrieved.

    The output of a reranker replaces its input. So do the nodes that a synthesizer was given: they may be fewer, cut
    into citations, or have new scores. Nodes that no retriever found count only if nothing was retrieved.

    Returns:
        The nodes, and the ids of retrieved nodes from which an engine made nodes with new ids: citations.
    """
    stages = _in_order(runs)
    found = {id(run): _ids(run.nodes_after or ()) for run in stages if run.kind in _FINDERS}
    context: list[Passage] = []
    given: list[Passage] = []
    replaced: set[str | None] = set()
    rebuilt: set[str | None] = set()
    for run in reversed(stages):
        if run.kind == "synthesizer":
            nodes: Iterable[Passage] = run.nodes_before
            if _ids(nodes).isdisjoint(chain.from_iterable(found.values())):
                # No retriever found these ids. A citation engine makes such nodes from what its retriever found: the
                # node "d1" becomes "Source 1: …" and "Source 2: …" with new ids.
                siblings = [found[id(one)] for one in stages if one.parent is run.parent and id(one) in found]
                if not any(siblings):
                    given = [*nodes, *given]  # for example the answers to sub-questions
                    continue
                rebuilt.update(*siblings)
                replaced |= rebuilt
        else:
            nodes = [node for node in run.nodes_after or () if node.id not in replaced]
        context = [*nodes, *context]
        if run.kind != "retriever":
            replaced |= _ids(nodes) | _ids(run.nodes_before)
    context = context or given
    # An evaluator that a query engine asks whether to retry makes an index of the answer's passages, and queries that:
    # it finds the same texts under new ids.
    first = {node.text: node for node in reversed(context)}
    return tuple(node for node in context if first[node.text] is node), rebuilt


def _ids(nodes: Iterable[Passage]) -> set[str | None]:
    return {node.id for node in nodes}


def _in_order(runs: Sequence[LlamaIndexRun]) -> list[LlamaIndexRun]:
    """Return retrievers, rerankers and synthesizers in the order in which they took or returned nodes."""
    timed = []
    for run in outside(runs, *_FINDERS):
        if run.kind == "synthesizer" and run.nodes_before:
            timed.append((run.started_at, run))  # it uses its nodes at its start
        elif run.kind in _FINDERS and run.nodes_after is not None:
            timed.append((run.ended_at or run.started_at, run))
    return [run for _, run in sorted(timed, key=itemgetter(0))]


# --------------------------------------------------------------------------- earlier turns


class EarlierTools(EarlierPassages):
    """The passages that tools found, by the text that the tool returned.

    The span of a tool does not have the id of the call, so the text of the tool message is what leads to the passages.
    """

    def passages_in(self, answering: Run | None, runs: Sequence[Run]) -> list[Passage]:
        """Return the passages of earlier tool messages in the prompt of the answer.

        Args:
            answering: the call that wrote the answer.
            runs: the runs of the turn. Its own tools are not earlier ones.
        """
        if answering is None:
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
