"""The documents of a turn: from retrievers, tools and functions, as the functions before the answer left them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from rageval_hooks.integrations.capture.run_facts import detail_of, end_of, is_inside, of_kind, outside
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import new_document_lists, passage_from, passages_of, tool_text
from rageval_hooks.integrations.langchain.reading.collected_passages import CollectedPassages
from rageval_hooks.turn import Passage

__all__ = ["FoundByRun", "collect"]

FoundByRun: TypeAlias = dict[int, list[Passage]]
"""The passages that each search returned, by the identity of its run."""


def collect(runs: Sequence[Run], answering: Run | None, response: str) -> tuple[CollectedPassages, FoundByRun]:
    """Return the passages that were retrieved, as the functions before the answer left them, and who found which.

    Args:
        runs: the records by start time, the root first.
        answering: the call that wrote the answer; None if no model wrote it.
        response: the answer.
    """
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


# --------------------------------------------------------------------------- retrievers and tools


def _retrievals(runs: Sequence[Run]) -> list[Run]:
    """Return the outermost retrievers, and the tools that return documents which no retriever inside them found."""
    with_retriever = {id(ancestor) for run in of_kind(runs, "retriever") for ancestor in run.ancestors()}
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
    # For example the text of a web search: "1. Brighton pier – opened in 1869 …".
    text = tool_text(run.output)
    if not text.strip():
        return []
    return [Passage(text=text, metadata={"tool": run.name})]


# --------------------------------------------------------------------------- functions and graph nodes


def _functions(runs: Sequence[Run], answering: Run | None) -> list[Run]:
    """Return the functions, nodes and tools that ended before the answer was written, by end time."""
    before = [run for run in runs[1:] if not _is_late(run, answering)]
    return _by_end(before)


def _late_functions(runs: Sequence[Run], answering: Run | None) -> list[Run]:
    """Return the other functions and nodes, the root included."""
    late = [run for run in runs if run.parent is None or _is_late(run, answering)]
    return _by_end(late)


def _by_end(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that may pass documents on, by end time. What happens inside a retriever is the retriever's."""
    functions = outside(of_kind(runs, "chain", "tool"), "retriever")
    return sorted(functions, key=_end_or_start)


def _is_late(run: Run, answering: Run | None) -> bool:
    """Return True if a run ended after the answering call had started, so that the prompt has nothing of it."""
    if answering is None:
        return False
    return _end_or_start(run) > answering.started_at


def _end_or_start(run: Run) -> int:
    return end_of(run, run.started_at)


def _follow(run: Run, collected: CollectedPassages, found: FoundByRun) -> bool:
    """Take over what a function did with documents: it found some, chose among them, or scored and ordered them.

    Returns:
        True if it returned documents that it was not given.
    """
    lists = new_document_lists(run.output, run.input)
    for documents in lists:
        passages = list(map(passage_from, documents))
        is_search = not all(map(collected.has, passages))
        if is_search:
            found.setdefault(id(run), []).extend(passages)
        collected.arrange(passages)
    return bool(lists)
