"""Finding documents in the inputs and outputs of chains, nodes, tools and retrievers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from rageval_hooks.integrations.capture.passages import SCORE_KEYS
from rageval_hooks.integrations.capture.values import finite, first_string, is_a, or_else
from rageval_hooks.integrations.langchain.snapshots import DocumentSnapshot, MessageSnapshot, fields_of
from rageval_hooks.turn import Passage

__all__ = ["Found", "document_lists", "new_document_lists", "passage_from", "passages_of"]

_DOCUMENTS = (Document, DocumentSnapshot)
_MESSAGES = (BaseMessage, MessageSnapshot)
_DEPTH = 4
"""Containers within containers: a state, its field, a list of lists."""

_MOST_ITEMS = 1000
"""Of a long list only so many items are searched for documents."""


class Found(NamedTuple):
    """A document, and the score that was next to it."""

    document: Any
    score: Any = None

    @property
    def identity(self) -> tuple[Any, str]:
        """What makes two copies the same document."""
        return self.document.id, self.document.page_content


def document_lists(value: Any) -> list[list[Found]]:
    """Return the lists of documents in a value.

    A retriever's output is one list. A state or a mapping has one list per field with documents; a single document
    counts as a list, and lists of lists are joined. Documents may have a score next to them: ``(document, score)``.
    """
    return [found for found in _lists_in(value, _DEPTH) if found]


def new_document_lists(output: Any, given: Any) -> list[list[Found]]:
    """Return the lists of documents that a function or a graph node made, without those it only passed on.

    Args:
        output: what it returned.
        given: what it received.
    """
    made = document_lists(output)
    if not made:
        return []
    received = [[found.identity for found in documents] for documents in document_lists(given)]
    return [documents for documents in made if [found.identity for found in documents] not in received]


@or_else(())
def _lists_in(value: Any, depth: int) -> Sequence[list[Found]]:
    if value is None or isinstance(value, (str, bytes, int, float)):
        return ()
    found = _as_found(value)
    if found is not None:
        return [[found]]
    if depth == 0:
        return ()
    if is_a(value, _MESSAGES):
        return _lists_in(getattr(value, "artifact", None), depth - 1)
    if is_a(value, (list, tuple)):
        return [_joined(value, depth)]
    return [documents for field in fields_of(value) for documents in _lists_in(field, depth - 1)]


def _joined(items: Sequence[Any], depth: int) -> list[Found]:
    """Return the documents of all items of a list as one list."""
    joined: list[Found] = []
    for item in items[:_MOST_ITEMS]:
        # A conversation has the artifacts of earlier turns. Those that the model saw are read from its prompt.
        if is_a(item, _MESSAGES):
            continue
        for documents in _lists_in(item, depth - 1):
            joined.extend(documents)
    return joined


@or_else(None)
def _as_found(item: Any) -> Found | None:
    if isinstance(item, _DOCUMENTS):
        return Found(item)
    if isinstance(item, tuple) and len(item) == 2:
        first, second = item
        if isinstance(first, _DOCUMENTS) and not isinstance(second, _DOCUMENTS):
            return Found(first, second)
        # Some rerankers return (score, document).
        if isinstance(second, _DOCUMENTS) and isinstance(first, (int, float)):
            return Found(second, first)
    return None


def passages_of(value: Any) -> list[Passage]:
    """Return the documents in a value as passages, with ids, metadata and scores."""
    return [passage_from(found) for found_list in document_lists(value) for found in found_list]


def passage_from(found: Found) -> Passage:
    """Return a document as a passage."""
    document = found.document
    metadata = document.metadata or {}
    score = found.score
    if score is None and type(document) not in _DOCUMENTS:  # subclasses may have a field for it
        score = getattr(document, "score", None)
    if score is None:
        score = next((metadata[key] for key in SCORE_KEYS if key in metadata), None)
    return Passage(
        text=document.page_content,
        id=document.id or first_string(metadata, ("id", "_id")),
        score=finite(score),
        metadata=metadata,
    )
