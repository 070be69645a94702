"""The passages of a turn: the documents in the final prompt, wherever they came from, and those that were retrieved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rageval_hooks.integrations.capture.authorship import ModelCall, contributors
from rageval_hooks.integrations.capture.passages import mark_shown
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import is_a
from rageval_hooks.integrations.langchain.documents import (
    Found,
    document_lists,
    new_document_lists,
    passage_from,
    passages_of,
)
from rageval_hooks.integrations.langchain.model_calls import generated_text, prompt_messages, prompt_of
from rageval_hooks.integrations.langchain.question import query_of
from rageval_hooks.integrations.langchain.rendering import tool_text
from rageval_hooks.turn import Passage

__all__ = ["Context", "context_of", "ended"]

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
        answering: the call that wrote the answer; None if there is none.
        response: the answer.
        earlier: what tools found in earlier turns, by the id of the tool call.
    """
    collected = _Passages()
    found: dict[int, list[Passage]] = {}
    for run in _retrievals(runs):
        found[id(run)] = _passages_found(run)
        collected.add(found[id(run)])
    for run in _functions(runs, answering):
        _follow(run, collected, found)
    if not collected.passages and response:
        # A function that searches and answers returns its documents with the answer.
        for run in _late_functions(runs, answering):
            if _follow(run, collected, found):
                break

    calls = [] if _is_answered_by_tool(runs, response) else _contributing(answering, models)
    prompt = "\n".join(_prompt_text(run) for run in calls) if calls else None
    passages = mark_shown(collected.passages, prompt)
    others = _documents_elsewhere(runs, calls, response, earlier)
    handed_in = mark_shown(collected.unknown(others), prompt)
    return Context(
        passages=(*passages, *(passage for passage in handed_in if _is_extra(passage, passages))),
        searches=[run for run in runs if id(run) in found and not _is_handing_root(run)],
        found=found,
        queries=_queries(runs, found),
    )


def ended(run: Run) -> int:
    """Return when a run ended; if it did not, when it started."""
    return max(run.started_at, run.ended_at if run.ended_at is not None else run.started_at)


def _is_handing_root(run: Run) -> bool:
    return run.parent is None and run.kind == "chain"


# --------------------------------------------------------------------------- retrievers and tools


def _inside(run: Run, kind: str) -> bool:
    return any(ancestor.kind == kind for ancestor in run.ancestors())


def _retrievals(runs: Sequence[Run]) -> list[Run]:
    """Return the outermost retrievers, and the tools that return documents which no retriever inside them found."""
    with_retriever = {id(ancestor) for run in runs if run.kind == "retriever" for ancestor in run.ancestors()}
    return [run for run in runs if _retrieves(run, with_retriever)]


def _retrieves(run: Run, with_retriever: Collection[int]) -> bool:
    if run.kind == "retriever":
        return not _inside(run, "retriever")
    return run.kind == "tool" and id(run) not in with_retriever and bool(_passages_found(run))


def _passages_found(run: Run) -> list[Passage]:
    """Return the documents that a run returned; of a tool that is named in ``search_tools`` its text, if need be."""
    passages = passages_of(run.output)
    if passages or not (run.details or {}).get("returns_search_results"):
        return passages
    text = tool_text(run.output)
    return [Passage(text=text, metadata={"tool": run.name})] if text.strip() else []


# --------------------------------------------------------------------------- functions and graph nodes


def _functions(runs: Sequence[Run], answering: Run | None) -> list[Run]:
    """Return the functions, nodes and tools that ended before the answer was written, by end time."""
    before = [run for run in runs[1:] if _may_hand_over(run) and not _is_late(run, answering)]
    return sorted(before, key=ended)


def _late_functions(runs: Sequence[Run], answering: Run | None) -> list[Run]:
    """Return the other functions and nodes, the root included."""
    late = [run for run in runs if _may_hand_over(run) and (run.parent is None or _is_late(run, answering))]
    return sorted(late, key=ended)


def _may_hand_over(run: Run) -> bool:
    return run.kind in ("chain", "tool") and not _inside(run, "retriever")


def _is_late(run: Run, answering: Run | None) -> bool:
    return answering is not None and ended(run) > answering.started_at


def _follow(run: Run, collected: _Passages, found: dict[int, list[Passage]]) -> bool:
    """Take over what a function did with documents: it found some, chose among them, or scored and ordered them.

    Returns:
        True if it returned documents that it was not given.
    """
    lists = new_document_lists(run.output, run.input)
    for documents in lists:
        passages = [passage_from(document) for document in documents]
        if any(not collected.has(passage) for passage in passages):
            found[id(run)] = [*found.get(id(run), ()), *passages]
        collected.arrange(passages)
    return bool(lists)


class _Passages:
    """The passages so far, in the order in which the last step that handled them put them."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str | None, str], Passage] = {}
        self._keys_by_text: dict[str, tuple[str | None, str]] = {}

    @property
    def passages(self) -> list[Passage]:
        return list(self._by_key.values())

    def has(self, passage: Passage) -> bool:
        return self._key_of(passage) in self._by_key

    def _key_of(self, passage: Passage) -> tuple[str | None, str]:
        """Return the key of a passage. A copy without an id is the same passage if its text is the same."""
        same_text = self._keys_by_text.get(passage.text)
        if same_text is not None and (passage.id is None or same_text[0] is None):
            return same_text
        return passage.id, passage.text

    def add(self, passages: Iterable[Passage]) -> None:
        for passage in passages:
            key = self._key_of(passage)
            self._by_key.setdefault(key, passage)
            self._keys_by_text.setdefault(passage.text, key)

    def unknown(self, passages: Iterable[Passage]) -> list[Passage]:
        """Return those passages that are not here, each once."""
        new = _Passages()
        new.add(passage for passage in passages if not self.has(passage))
        return new.passages

    def arrange(self, passages: Sequence[Passage]) -> None:
        """Put passages into the order of a list, where the first of them was. Scores of the list replace older ones."""
        self.add(passages)
        moved = {self._key_of(passage): passage for passage in passages}
        arranged: dict[tuple[str | None, str], Passage] = {}
        for key, known in self._by_key.items():
            if key not in moved:
                arranged[key] = known
            elif key not in arranged:
                arranged.update((key, _rescored(self._by_key[key], passage)) for key, passage in moved.items())
        self._by_key = arranged


def _rescored(known: Passage, passage: Passage) -> Passage:
    if passage.score is None or passage.score == known.score:
        return known
    return known.model_copy(update={"score": passage.score, "metadata": {**known.metadata, **passage.metadata}})


# --------------------------------------------------------------------------- what the model saw


def _contributing(answering: Run | None, models: Sequence[Run]) -> list[Run]:
    """Return the answering call and the calls whose text reached its prompt."""
    if answering is None:
        return []
    if len(models) == 1:
        return [answering]
    calls = [_call(run) for run in models]
    answer = next(call for call, run in zip(calls, models, strict=True) if run is answering)
    chosen = {id(call) for call in contributors(answer, calls)}
    return [run for call, run in zip(calls, models, strict=True) if id(call) in chosen]


def _call(run: Run) -> ModelCall:
    return ModelCall(
        prompt=_prompt_text(run), text=generated_text(run.output), started_at=run.started_at, ended_at=ended(run)
    )


def _prompt_text(run: Run) -> str:
    return "\n".join(message.content for message in prompt_of(run))


def _is_answered_by_tool(runs: Sequence[Run], response: str) -> bool:
    """Return True if a tool's text is the answer and no model wrote it (``return_direct``): then there is no prompt."""
    if not response or any(run.kind == "llm" and generated_text(run.output).strip() == response for run in runs):
        return False
    return any(run.kind == "tool" and tool_text(run.output) == response for run in runs)


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
    handed = list(_documents_in_values(runs))[:_MOST_HANDED_IN]
    passages = [passage_from(found) for found in handed]
    for run in calls:
        passages.extend(_in_tool_messages(run, earlier))
    return passages


def _documents_in_values(runs: Sequence[Run]) -> Iterator[Found]:
    for run in runs:
        if run.kind not in ("chain", "prompt") or _inside(run, "retriever"):
            continue
        for value in (run.input, run.output):
            for documents in document_lists(value):
                yield from documents


def _in_tool_messages(call: Run, earlier: Mapping[str, Sequence[Passage]]) -> Iterator[Passage]:
    """Yield what tools found whose results are in a prompt, perhaps in earlier turns of the conversation."""
    for message in prompt_messages(call):
        if message.type == "tool":
            yield from passages_of(message) or earlier.get(message.tool_call_id or "", ())


# --------------------------------------------------------------------------- queries


def _queries(runs: Sequence[Run], found: Mapping[int, Sequence[Passage]]) -> list[str]:
    """Return what was searched for: the inputs of retrievers, of tools that found documents, and of such functions."""
    queries = []
    for run in runs:
        if (run.kind == "retriever" or (id(run) in found and run.parent is not None)) and is_a(run.input, str):
            queries.append(run.input)
        elif run.kind == "tool" and id(run) in found:
            queries.append(query_of(run.input))
    return [query for query in queries if query.strip()]
