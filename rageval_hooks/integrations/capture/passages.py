"""Passages of all integrations: how values become passages, which ones the model saw, what earlier turns found.

Documents of LangChain and nodes of LlamaIndex are read by attribute names: no framework is imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Protocol
from xml.sax.saxutils import escape

from rageval_hooks.integrations.capture.values import (
    data_fields,
    finite,
    first_key,
    first_string,
    is_a,
    names_search_results,
    or_else,
    parsed_json,
)
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.narrowing import is_missing, mapping_or_empty
from rageval_hooks.turn import Passage, Turn

SCORE_KEYS = ("relevance_score", "score", "_score", "similarity_score", "similarity", "rerank_score", "@search.score")
"""Where stores and rerankers put their score in a document's metadata, the most specific first."""

TEXT_KEYS = (
    *("text", "content", "page_content", "passage", "chunk", "document", "body", "contents", "snippet", "segment"),
    *("chunk_text", "passage_text", "document_text", "paragraph", "context", "page_text", "quote", "excerpt"),
    "message",
)
"""Keys of the text in LangChain, LlamaIndex, Ragas, Haystack, search engines and data sets, the most specific first."""

_INNER_KEYS = ("document", "doc", "node", "chunk", "payload", "kwargs", "fields", "_source", "metadata")
"""Keys of mappings that hold the passage, next to its score: ``{"document": {...}, "score": 0.7}``."""

_ID_KEYS = ("id", "passage_id", "chunk_id", "doc_id", "document_id", "docid", "node_id", "id_", "_id")
"""Keys of mappings that hold a passage's id, in order."""

_METADATA_ID_KEYS = ("id", "_id", "node_id", "doc_id")
"""Keys of a document's metadata that hold its id, in order."""

_VECTORS = ("embedding", "vector", "values")
"""Fields of stores and of pgvector's and Pinecone's matches that say nothing to a reader."""

_DEPTH = 4
"""Values within values of a search's result."""

_NO_FIELDS: Mapping[str, Any] = {}

_OUR_FIELDS = ("in_prompt", "prompt_share", "from_turn")
"""Fields that only passages of this package have."""


class DocumentLike(Protocol):
    """A document of LangChain: ``Document``."""

    page_content: str


class NodeLike(Protocol):
    """A node of LlamaIndex, with or without a score: ``TextNode``, ``NodeWithScore``, ``Document``."""

    def get_content(self) -> str:
        """Return the text."""
        ...


class TextLike(Protocol):
    """An object of the application with its text under ``text``; other names, such as ``content``, are read, too."""

    text: str


PassageLike = (
    str
    | Passage
    | Mapping[str, Any]
    | DocumentLike
    | NodeLike
    | TextLike
    | tuple[str | Mapping[str, Any] | DocumentLike | NodeLike | TextLike, float]
)
"""One passage: a text, a mapping with ``text`` and optionally ``id`` and ``score``, a document, or a node.

An object of the application's own counts like a mapping of its fields: a dataclass, a pydantic model, a named tuple or
any other object with a field such as ``text``. Each may have its score next to it, as LangChain's
``similarity_search_with_score`` returns it.
"""


@or_else(None)
def passage_of(value: object) -> Passage | None:
    """Return a value as a passage; None if it is not a passage or has no text. Runs no code of the application."""
    if isinstance(value, Passage):
        return value
    if isinstance(value, str):
        return Passage(text=value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        # (Document(page_content="…"), 0.83), ({"content": "…"}, 0.83) or, of some rerankers, (0.83, "…")
        item, score = value if finite(value[0]) is None else value[::-1]
        passage = None if isinstance(score, str) or finite(score) is None else passage_of(item)
        return None if passage is None else passage.model_copy(update={"score": finite(score)})
    if isinstance(value, Mapping):
        return passage_of_mapping(value)
    return passage_of_object(value) or passage_of_mapping(data_fields(value))


def passage_of_mapping(
    value: Mapping[str, Any], metadata_of: Callable[[object], Mapping[str, Any]] = mapping_or_empty
) -> Passage | None:
    """Return a mapping as a passage; None if it has no text.

    Args:
        value: ``{"text": "…", "id": "7", "score": 0.8, "source": "pier.md", "metadata": {"page": 3}}``, or a mapping
            with such a one inside, next to the score. What is left over is metadata, too.
        metadata_of: reads the value under ``metadata``.
    """
    if "additional_kwargs" in value:
        return None  # a message of LangChain or LlamaIndex
    text_key = first_key(value, TEXT_KEYS, str)
    if text_key is None:
        # {"payload": {"text": "…"}, "score": 0.8}, or Hit(chunk=Chunk(text="…"), score=0.8)
        inner = next((key for key in _INNER_KEYS if data_fields(value.get(key))), None)
        around = {key: item for key, item in value.items() if key != inner}
        return None if inner is None else passage_of_mapping({**around, **data_fields(value[inner])}, metadata_of)
    id_key = next((key for key in _ID_KEYS if not is_missing(value.get(key))), None)
    score_key = next((key for key in SCORE_KEYS if finite(value.get(key)) is not None), None)
    metadata = metadata_of(value.get("metadata"))
    known = {text_key, id_key, score_key, "metadata", *_VECTORS, *_OUR_FIELDS}
    return Passage(
        text=value[text_key],
        id=None if id_key is None else str(value[id_key]),
        score=_score_in(metadata) if score_key is None else finite(value[score_key]),
        metadata={**{key: item for key, item in value.items() if key not in known}, **metadata},
        **{name: value.get(name) for name in _OUR_FIELDS},
    )


@or_else(None)
def passage_of_object(value: Any) -> Passage | None:
    """Return a document of LangChain, a node of LlamaIndex, or ``NodeWithScore(node=…, score=0.83)`` as a passage."""
    # Fields of pydantic: a property of the application may load a page. Most values are asked for that have none, and
    # an exception takes long.
    around = getattr(value, "__dict__", _NO_FIELDS)
    node = around.get("node", value)
    fields = getattr(node, "__dict__", _NO_FIELDS)
    text = fields.get("page_content")
    if text is None and callable(getattr(type(node), "get_content", None)) and "id_" in fields:
        text = node.get_content()
    if not isinstance(text, str):
        return None
    known = mapping_or_empty(fields.get("metadata"))
    identity = first_string(fields, ("id", "id_"))
    score = finite(around.get("score"))
    return Passage(
        text=text,
        id=identity or first_string(known, _METADATA_ID_KEYS),
        score=_score_in(known) if score is None else score,
        metadata=dict(known),
    )


def _score_in(mapping: Mapping[Any, Any]) -> float | None:
    scores = (finite(mapping[key]) for key in SCORE_KEYS if key in mapping)
    return next((score for score in scores if score is not None), None)


# --------------------------------------------------------------------------- which passages the model saw

MIN_PART = 24
"""Shorter parts of a text are found elsewhere by chance. In characters."""

_MAX_WORK = 50_000_000
"""Characters of the prompt times passages; beyond it nothing is looked for."""

# Runs of white space, also as JSON and Python write it: "\n", "  \t" or the two characters backslash and n.
_SPACE = re.compile(r"(?:\s|\\[nrt])+")


class PromptText:
    """The text of a prompt, in which other texts are looked for.

    Runs of white space count as one space. A text is also found as Python's ``repr``, JSON and XML write it, because
    applications format whole documents into their prompts.

    Args:
        text: all text of the prompt.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def flat(self) -> str:
        """The text with single spaces."""
        return _flatten(self.text)

    def contains(self, text: str) -> bool:
        """Return True if the whole text is in the prompt."""
        stripped = text.strip()
        # The usual case first: the application has put the text into the prompt unchanged.
        if stripped in self.text:
            return True
        return any(form in self.flat for form in _forms(stripped))

    def share_of(self, text: str) -> float:
        """Return the share of a text that is in the prompt: 1 for all of it, else its longest beginning or ending."""
        if self.contains(text):
            return 1.0
        return max(self._share_of_form(form) for form in _forms(text.strip()))

    def _share_of_form(self, text: str) -> float:
        size = len(text)
        beginning = _longest(size, lambda length: text[:length] in self.flat)
        ending = _longest(size, lambda length: text[size - length :] in self.flat)
        return max(beginning, ending) / size if size else 0.0


def _flatten(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def _forms(text: str) -> Iterator[str]:
    """Yield the ways in which a text may be written in a prompt, each once."""
    yield (plain := _flatten(text))
    as_python, as_json = repr(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
    others = (as_python, as_json, json.dumps(text)[1:-1], escape(text))
    yield from {flat for flat in map(_flatten, others) if flat != plain}


def _longest(size: int, is_there: Callable[[int], bool]) -> int:
    """Return the greatest length that is there, by bisection: if one length is there, every shorter one is too."""
    # Looking for every length would take quadratic time: passages may have thousands of characters.
    low = min(MIN_PART, size)
    if not is_there(low):
        return 0
    high = size
    while low < high:
        middle = (low + high + 1) // 2
        if is_there(middle):
            low = middle
        else:
            high = middle - 1
    return low


def mark_seen(passages: Sequence[Passage], prompt: str | None) -> tuple[Passage, ...]:
    """Mark which passages are in the prompt that the model received.

    Args:
        passages: the passages.
        prompt: all text of the prompt; None if there was no prompt: then the passages stay unmarked.
    """
    if prompt is None or not passages or len(prompt) * len(passages) > _MAX_WORK:
        return tuple(passages)
    text = PromptText(prompt)
    marked = []
    for passage in passages:
        if passage.text.strip():  # every prompt contains an empty text
            share = text.share_of(passage.text)
            passage = passage.model_copy(update={"in_prompt": share == 1.0, "prompt_share": share})
        marked.append(passage)
    return tuple(marked)


def mark_dropped(passage: Passage) -> Passage:
    """Mark a passage that did not reach the prompt."""
    return passage.model_copy(update={"in_prompt": False, "prompt_share": 0.0})


def passage_key(passage: Passage) -> tuple[str | None, str]:
    """Return what two copies of a passage have in common: the id and the text."""
    return passage.id, passage.text


def unique_passages(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """Drop repetitions of a passage with the same id and text: an agent may retrieve it several times."""
    seen: dict[tuple[str | None, str], Passage] = {}
    for passage in passages:
        seen.setdefault(passage_key(passage), passage)
    return tuple(seen.values())


# --------------------------------------------------------------------------- earlier turns

EARLIER = "earlier"
"""Stands for the id of an earlier turn that is not known: it ran in another process, or long ago."""

_MAX_KEYS = 2000
"""Calls or outputs of tools that are remembered."""


class EarlierPassages:
    """The passages that tools found, by what leads to them from a later prompt. The oldest are forgotten.

    Safe to use from any thread: each operation on the dictionary is atomic.
    """

    def __init__(self) -> None:
        self._passages: dict[str, tuple[Passage, ...]] = {}

    def get(self, key: str) -> Sequence[Passage]:
        """Return what a tool found; nothing for an unknown key."""
        return self._passages.get(key, ())

    def add(self, key: str, passages: Sequence[Passage], turn_id: str) -> None:
        """Remember passages of a turn, in addition to those that are known for a key."""
        if not key or not passages:
            return
        known = self._passages.pop(key, ())
        # Marks belong to the turn in which the tool ran.
        of_later_turns = {"in_prompt": None, "prompt_share": None, "from_turn": turn_id}
        copies = [passage.model_copy(update=of_later_turns) for passage in passages]
        self._passages[key] = (*known, *(copy for copy in copies if copy not in known))
        # Another thread may remove the same key, which does not matter.
        while len(self._passages) > _MAX_KEYS:
            self._passages.pop(next(iter(list(self._passages))), None)

    def add_tools(self, runs: Iterable[Any], turn: Turn, key_of: Callable[[Any], str]) -> None:
        """Remember what the tools of a turn found.

        Args:
            runs: the runs of the turn.
            turn: the turn that was built from them.
            key_of: returns what leads to the passages from a later prompt, for the output of a tool.
        """
        found = {step.id: step.passages for step in turn.steps if step.passages}
        for run in runs if any(step.kind == "tool" for step in turn.steps) else ():
            # A retriever may be inside a tool, and that tool an agent inside another tool.
            for tool in (run, *run.ancestors()) if run.text_id in found else ():
                if tool.kind == "tool":
                    self.add(key_of(tool.output), found[run.text_id], turn.id)


_ADDRESS_KEYS = ("url", "link")
_RESULT_KEYS = frozenset({*_ADDRESS_KEYS, *_ID_KEYS, *SCORE_KEYS, "distance", "title", "source", "metadata"})
"""Of what a tool returns, a mapping with a text is a result only if it has one of these keys, too."""


@or_else(())
def text_results(value: Any, about: Mapping[str, Any], *, is_field: bool = False) -> Sequence[Passage]:
    """Return the passages in what a search returned, if it is not made of documents of a framework.

    Args:
        value: a text, which may be JSON, content blocks, or whatever :func:`passage_of` reads, in lists and mappings.
        about: metadata of every passage.
        is_field: True for a field that is named like search results. Then each item with a text is one.

    Returns:
        One passage for each result or block. If nothing can be told apart, one passage with the whole text and
        ``whole_output`` in its metadata.
    """
    if isinstance(value, str):
        text = str.__str__(value).strip()
        whole = [Passage(text=value, metadata={**about, "whole_output": True})] if text else []
        parsed = parsed_json(text)
        # Some frameworks write a list of texts as JSON. Names have no spaces.
        several = _texts_of_blocks(parsed)
        if len(several) > 1 and all(" " in one for one in several):
            return [Passage(text=one, metadata=dict(about)) for one in several]
        return _results_in(parsed, about, is_field) or whole
    blocks = _texts_of_blocks(value)
    if len(blocks) == 1:
        return text_results(blocks[0], about, is_field=is_field)
    found: list[Passage] = []
    for text in blocks:
        found += _results_in(parsed_json(text), about, is_field) or [Passage(text=text, metadata=dict(about))]
    return found or _results_in(value, about, is_field)


def results_in_fields(fields: Mapping[Any, Any], given: Mapping[Any, Any]) -> list[Passage]:
    """Return the search results in the fields of a mapping or a state, by their names.

    Args:
        fields: what a function or a step returned.
        given: what it was given: that, it has not found.
    """
    results: list[Passage] = []
    for key, item in fields.items():
        if names_search_results(key) and not _is_same(item, given.get(key)):
            results += text_results(item, {"field": key}, is_field=True)
    # A text without a space is a label, for example "vectorstore".
    return [result for result in results if " " in result.text.strip()]


@or_else(False)
def _is_same(item: Any, other: Any) -> bool:
    return item is other or bool(item == other)  # arrays have no truth value


def _texts_of_blocks(value: Any) -> list[str]:
    """Return the texts of content blocks, or of a list of texts; an empty list for anything else."""
    # [{"type": "text", "text": "The pier was opened in 2019.", "id": "lc_1"}, {"type": "image", …}]
    if not is_a(value, (list, tuple)):
        return []
    is_blocks = all(is_a(item, str) or (is_a(item, Mapping) and is_a(item.get("type"), str)) for item in value)
    if not is_blocks:
        return []
    texts = [item if is_a(item, str) else item.get("text") for item in value]
    return [text for text in texts if is_a(text, str) and text.strip()]


def _results_in(value: Any, about: Mapping[str, Any], is_field: bool, depth: int = _DEPTH) -> list[Passage]:
    """Return the results in a list, in an object or mapping with a list of results, or in one that is a result."""
    if not depth or is_a(value, str):
        return []
    single = _result(value, about, is_field)
    if single is not None:
        return [single]
    read = partial(_results_in, about=about, is_field=is_field, depth=depth - 1)
    if is_a(value, (list, tuple)):
        return list(chain.from_iterable(map(read, value)))
    # {"query": "pier", "results": [{"url": …, "content": …}], "response_time": 0.4}, {"hits": {"hits": […]}} of
    # Elasticsearch, or QueryResponse(points=[…]) of Qdrant
    inside = [read(item) for key, item in data_fields(value).items() if is_a(item, list) or names_search_results(key)]
    return max(inside, key=len, default=[])


def _result(value: Any, about: Mapping[str, Any], is_field: bool) -> Passage | None:
    """Return {"content": "…", "url": "…", "score": 0.8} as a passage; None for anything that is no search result."""
    # Rows of a database are pairs, too: ("lamp", 129.0).
    is_pair = is_a(value, tuple) and not hasattr(value, "_fields")
    fields = {} if is_pair else data_fields(value)
    passage = passage_of(value) if is_field or not _RESULT_KEYS.isdisjoint(fields) else None
    if passage is None or not passage.text.strip():
        return None
    identity = passage.id or first_string(fields, _ADDRESS_KEYS)
    return passage.model_copy(update={"id": identity, "metadata": {**about, **passage.metadata}})
