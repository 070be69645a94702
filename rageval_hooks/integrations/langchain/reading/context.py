"""The passages of a turn: the documents in the final prompt, wherever they came from, and those that were retrieved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from rageval_hooks.integrations.capture.authorship import ModelCall, contributors
from rageval_hooks.integrations.capture.passages import mark_shown
from rageval_hooks.integrations.capture.run_facts import detail_of, end_of, is_inside
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.capture.values import is_a
from rageval_hooks.integrations.langchain.payloads import (
    Found,
    document_lists,
    new_document_lists,
    passage_from,
    passages_of,
    tool_text,
)
from rageval_hooks.integrations.langchain.reading.collected_passages import CollectedPassages
from rageval_hooks.integrations.langchain.reading.model_calls import generated_text, prompt_messages, prompt_of
from rageval_hooks.integrations.langchain.reading.question import query_of
from rageval_hooks.turn import Passage

__all__ = ["Context", "context_of"]

FoundByRun = dict[int, list[Passage]]
"""The passages that each search returned, by the identity of its run."""

_MOST_HANDED_IN = 1000
"""Documents in inputs that are compared with the prompt."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What was retrieved in a turn, and what the model saw.

    Attributes:
        passages: the documents of the final prompt and all that were retrieved, marked with ``in_prompt``.
        searches: the outermost runs that retrieved something: retrievers, tools, and functions that search by
            themselves.
        found: the passages that each search returned, by the identity of its run.
        queries: what was searched for, in order.
    """

    passages: tuple[Passage, ...]
    searches: Sequence[Run]
    found: Mapping[int, Sequence[Passage]]
    queries: Sequence[str]


def context_of(
    runs: Sequence[Run],
    *,
    models: Sequence[Run],
    answering: Run | None,
    response: str,
    earlier: Mapping[str, Sequence[Passage]],
) -> Context:
    """Collect the passages of a turn.

    Args:
        runs: the records by start time, the root first.
        models: the model calls outside of retrievers.
        answering: the call that wrote the answer; None if no model wrote it.
        response: the answer.
        earlier: what tools found in earlier turns, by the id of the tool call.
    """
    collected, found = _collect(runs, answering, response)
    calls = _prompting_calls(runs, models, answering, response)
    prompt = "\n".join(map(_prompt_text, calls)) if calls else None
    passages = mark_shown(collected.passages, prompt)
    others = _documents_elsewhere(runs, calls, response, earlier)
    handed_in = mark_shown(collected.unknown(others), prompt)
    extra = [passage for passage in handed_in if _is_extra(passage, passages)]
    return Context(
        passages=(*passages, *extra),
        searches=[run for run in runs if _is_search(run, found)],
        found=found,
        queries=_queries(runs, found),
    )


def _collect(runs: Sequence[Run], answering: Run | None, response: str) -> tuple[CollectedPassages, FoundByRun]:
    """Return the passages that were retrieved, as the functions before the answer left them, and who found which."""
    collected = CollectedPassages()
    found: FoundByRun = {}
    for run in _retrievals(runs):
        found[id(run)] = _passages_found(run)
        collected.add(found[id(run)])
    for run in _functions(runs, answering):
        _follow(run, collected, found)
    if collected.passages or not response:
        return collected, found

    # A function that searches and answers returns its documents with the answer.
    for run in _late_functions(runs, answering):
        if _follow(run, collected, found):
            break
    return collected, found


def _is_search(run: Run, found: FoundByRun) -> bool:
    # A chain that is the root has its whole turn around the search, so its duration says nothing about searching.
    is_root_chain = run.parent is None and run.kind == "chain"
    return id(run) in found and not is_root_chain


# --------------------------------------------------------------------------- retrievers and tools


def _retrievals(runs: Sequence[Run]) -> list[Run]:
    """Return the outermost retrievers, and the tools that return documents which no retriever inside them found."""
    with_retriever = {id(ancestor) for run in runs if run.kind == "retriever" for ancestor in run.ancestors()}
    return [run for run in runs if _retrieves(run, with_retriever)]


def _retrieves(run: Run, with_retriever: Collection[int]) -> bool:
    if run.kind == "retriever":
        # An ensemble or a compressor is a retriever around others, and its result is what the application gets.
        return not is_inside(run, "retriever")
    if run.kind != "tool" or id(run) in with_retriever:
        return False
    return bool(_passages_found(run))


def _passages_found(run: Run) -> list[Passage]:
    """Return the documents that a run returned. A tool that is named in ``search_tools`` may return only a text."""
    passages = passages_of(run.output)
    if passages or not detail_of(run, "returns_search_results"):
        return passages
    text = tool_text(run.output)
    if not text.strip():
        return []
    return [Passage(text=text, metadata={"tool": run.name})]


# --------------------------------------------------------------------------- functions and graph nodes


def _functions(runs: Sequence[Run], answering: Run | None) -> list[Run]:
    """Return the functions, nodes and tools that ended before the answer was written, by end time."""
    before = [run for run in runs[1:] if _may_hand_over(run) and not _is_late(run, answering)]
    return sorted(before, key=_end_or_start)


def _late_functions(runs: Sequence[Run], answering: Run | None) -> list[Run]:
    """Return the other functions and nodes, the root included."""
    late = [run for run in runs if _may_hand_over(run) and (run.parent is None or _is_late(run, answering))]
    return sorted(late, key=_end_or_start)


def _end_or_start(run: Run) -> int:
    return end_of(run, run.started_at)


def _may_hand_over(run: Run) -> bool:
    return run.kind in ("chain", "tool") and not is_inside(run, "retriever")


def _is_late(run: Run, answering: Run | None) -> bool:
    return answering is not None and _end_or_start(run) > answering.started_at


def _follow(run: Run, collected: CollectedPassages, found: FoundByRun) -> bool:
    """Take over what a function did with documents: it found some, chose among them, or scored and ordered them.

    Returns:
        True if it returned documents that it was not given.
    """
    lists = new_document_lists(run.output, run.input)
    for documents in lists:
        passages = [passage_from(document) for document in documents]
        if not all(map(collected.has, passages)):
            found[id(run)] = [*found.get(id(run), ()), *passages]
        collected.arrange(passages)
    return bool(lists)


# --------------------------------------------------------------------------- what the model saw


def _prompting_calls(runs: Sequence[Run], models: Sequence[Run], answering: Run | None, response: str) -> Sequence[Run]:
    """Return the answering call and the calls whose text reached its prompt; none if no model wrote the answer."""
    if answering is None or _is_answered_by_tool(runs, response):
        return ()
    if len(models) == 1:
        return models  # saves building the call, which formats its prompt
    calls = [_call(run) for run in models]
    position = next(position for position, run in enumerate(models) if run is answering)
    chosen = set(map(id, contributors(calls[position], calls)))
    return [run for call, run in zip(calls, models, strict=True) if id(call) in chosen]


def _call(run: Run) -> ModelCall:
    return ModelCall(
        prompt=_prompt_text(run),
        text=generated_text(run.output),
        started_at=run.started_at,
        ended_at=_end_or_start(run),
    )


def _prompt_text(run: Run) -> str:
    return "\n".join(message.content for message in prompt_of(run))


def _is_answered_by_tool(runs: Sequence[Run], response: str) -> bool:
    """Return True if a tool's text is the answer and no model wrote it (``return_direct``): then there is no prompt."""
    if not response:
        return False
    written = [generated_text(run.output).strip() for run in runs if run.kind == "llm"]
    if response in written:
        return False
    return response in [tool_text(run.output) for run in runs if run.kind == "tool"]


def _is_extra(passage: Passage, retrieved: Sequence[Passage]) -> bool:
    """Return True if a passage may be in the prompt, and is not just what is left of a retrieved one."""
    if passage.in_prompt is False and not passage.prompt_share:
        return False
    return not any(known.seen_by_model and passage.text in known.text for known in retrieved)


def _documents_elsewhere(
    runs: Sequence[Run],
    calls: Sequence[Run],
    response: str,
    earlier: Mapping[str, Sequence[Passage]],
) -> list[Passage]:
    """Return documents that may be in the prompt although nothing retrieved them in this turn.

    They are handed in with the question, lie in the state of a graph, come with the answer, or are in tool messages of
    earlier turns.
    """
    if not response and not calls:
        return []  # for example a prompt template that is used without a model
    handed = islice(_documents_in_values(runs), _MOST_HANDED_IN)
    passages = list(map(passage_from, handed))
    for run in calls:
        passages.extend(_in_tool_messages(run, earlier))
    return passages


def _documents_in_values(runs: Sequence[Run]) -> Iterator[Found]:
    for run in runs:
        if run.kind in ("chain", "prompt") and not is_inside(run, "retriever"):
            yield from chain.from_iterable(document_lists(run.input))
            yield from chain.from_iterable(document_lists(run.output))


def _in_tool_messages(call: Run, earlier: Mapping[str, Sequence[Passage]]) -> Iterator[Passage]:
    """Yield what tools found whose results are in a prompt, perhaps in earlier turns of the conversation."""
    for message in prompt_messages(call):
        if message.type == "tool":
            yield from passages_of(message) or earlier.get(message.tool_call_id or "", ())


# --------------------------------------------------------------------------- queries


def _queries(runs: Sequence[Run], found: FoundByRun) -> list[str]:
    """Return what was searched for: the inputs of retrievers, of tools that found documents, and of such functions."""
    queries = [_query(run, id(run) in found) for run in runs]
    return [query for query in queries if query.strip()]


def _query(run: Run, found_documents: bool) -> str:
    """Return what a run searched for; empty if it did not search, or if its input does not say for what."""
    # The input of the root is the question.
    searches = run.kind == "retriever" or (found_documents and run.parent is not None)
    if searches and is_a(run.input, str):
        query: str = run.input
        return query
    # A tool's input is a mapping of its arguments, for example {"query": "opening hours"}.
    return query_of(run.input) if run.kind == "tool" and found_documents else ""
