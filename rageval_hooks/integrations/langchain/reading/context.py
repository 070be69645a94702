"""The passages of a turn: the documents in the final prompt, wherever they came from, and those that were retrieved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from rageval_hooks.integrations.capture.host_values import is_a
from rageval_hooks.integrations.capture.passages import mark_seen
from rageval_hooks.integrations.capture.run_facts import is_inside
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import Found, document_lists, passage_from, passages_of
from rageval_hooks.integrations.langchain.reading.contributing_calls import prompt_of_answer, prompting_calls
from rageval_hooks.integrations.langchain.reading.model_calls import prompt_messages
from rageval_hooks.integrations.langchain.reading.question import query_of
from rageval_hooks.integrations.langchain.reading.searches import FoundByRun, collect
from rageval_hooks.turn import Passage

__all__ = ["Context", "context_of"]

_MOST_HANDED_IN = 1000
"""Documents in inputs that are compared with the prompt."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """The documents that a turn retrieved, and those that the model saw.

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
    collected, found = collect(runs, answering, response)
    calls = prompting_calls(runs, models, answering, response)
    prompt = prompt_of_answer(calls)
    retrieved = mark_seen(collected.passages, prompt)
    # Documents that nothing retrieved count only if the model saw them.
    others = _documents_elsewhere(runs, calls, response, earlier)
    handed_in = mark_seen(collected.unknown(others), prompt)
    seen_texts = [passage.text for passage in retrieved if passage.seen_by_model]
    extra = [passage for passage in handed_in if _is_extra(passage, seen_texts)]
    return Context(
        passages=(*retrieved, *extra),
        searches=[run for run in runs if _is_search(run, found)],
        found=found,
        queries=_queries(runs, found),
    )


def _is_search(run: Run, found: FoundByRun) -> bool:
    # A chain that is the root has its whole turn around the search, so its duration says nothing about searching.
    is_root_chain = run.parent is None and run.kind == "chain"
    return id(run) in found and not is_root_chain


# --------------------------------------------------------------------------- documents that nothing retrieved


def _is_extra(passage: Passage, seen_texts: Iterable[str]) -> bool:
    """Return True if a passage may be in the prompt, and is not just what is left of a retrieved one."""
    if passage.in_prompt is False and not passage.prompt_share:
        return False
    # A function that cuts documents passes on new ones with a part of the text.
    return not any(passage.text in text for text in seen_texts)


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
    handed_in = islice(_documents_in_values(runs), _MOST_HANDED_IN)
    in_tool_messages = (passage for call in calls for passage in _in_tool_messages(call, earlier))
    return [*map(passage_from, handed_in), *in_tool_messages]


def _documents_in_values(runs: Iterable[Run]) -> Iterator[Found]:
    """Yield the documents in the inputs and outputs of functions, graph nodes and prompt templates."""
    for run in runs:
        if run.kind not in ("chain", "prompt") or is_inside(run, "retriever"):
            continue
        for value in (run.input, run.output):
            yield from chain.from_iterable(document_lists(value))


def _in_tool_messages(call: Run, earlier: Mapping[str, Sequence[Passage]]) -> Iterator[Passage]:
    """Yield what tools found whose results are in a prompt, perhaps in earlier turns of the conversation."""
    for message in prompt_messages(call):
        if message.type != "tool":
            continue
        # The message has the documents as its artifact if the tool has response_format="content_and_artifact".
        yield from passages_of(message) or earlier.get(message.tool_call_id or "", ())


# --------------------------------------------------------------------------- queries


def _queries(runs: Sequence[Run], found: FoundByRun) -> list[str]:
    """Return what was searched for: the inputs of retrievers, of tools that found documents, and of such functions."""
    queries = [_query(run, id(run) in found) for run in runs]
    return list(filter(str.strip, queries))


def _query(run: Run, found_documents: bool) -> str:
    """Return what a run searched for; empty if it did not search, or if its input does not say for what."""
    if run.kind == "retriever":
        return _text(run.input)
    if not found_documents:
        return ""
    # A tool's input may be a mapping of its arguments, for example {"query": "opening hours"}.
    if run.kind == "tool":
        return query_of(run.input)
    # The input of the root is the question.
    if run.parent is None:
        return ""
    return _text(run.input)


def _text(value: Any) -> str:
    text: str = value if is_a(value, str) else ""
    return text
