"""Finding documents in the inputs and outputs of chains, nodes, tools and retrievers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage

from rageval_hooks.integrations.capture.host_values import finite, first_of, first_string, is_a, or_else
from rageval_hooks.integrations.capture.passages import SCORE_KEYS
from rageval_hooks.integrations.langchain.payloads.copying import DocumentSnapshot, MessageSnapshot
from rageval_hooks.integrations.langchain.payloads.states import fields_of
from rageval_hooks.turn import Passage

__all__ = ["Found", "document_lists", "new_document_lists", "passage_from", "passages_of"]

_DOCUMENTS = (Document, DocumentSnapshot)
_MESSAGES = (BaseMessage, MessageSnapshot)
_NOTHING_INSIDE = (str, bytes, int, float, type(None))
"""Classes of values that hold no documents. Most values of a state are of these, so they are told apart first."""

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
        """Equal for two copies of the same document."""
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
    received = list(map(_identities, document_lists(given)))
    return [documents for documents in made if _identities(documents) not in received]


def _identities(documents: Sequence[Found]) -> list[tuple[Any, str]]:
    return [found.identity for found in documents]


@or_else(())
def _lists_in(value: Any, depth: int) -> Sequence[list[Found]]:
    if isinstance(value, _NOTHING_INSIDE):
        return ()
    found = _as_found(value)
    if found is not None:
        return [[found]]
    if depth == 0:
        return ()
    if is_a(value, _MESSAGES):
        # A tool with response_format="content_and_artifact" returns its documents as the artifact of its message.
        return _lists_in(getattr(value, "artifact", None), depth - 1)
    if is_a(value, (list, tuple)):
        return [_joined(value, depth)]
    # A state, for example {"question": "…", "context": [Document(…), …]}.
    lists = [_lists_in(field, depth - 1) for field in fields_of(value)]
    return list(chain.from_iterable(lists))


def _joined(items: Sequence[Any], depth: int) -> list[Found]:
    """Return the documents of all items of a list as one list."""
    joined: list[Found] = []
    for item in items[:_MOST_ITEMS]:
        # A conversation has the artifacts of earlier turns. Those that the model saw are read from its prompt.
        if not is_a(item, _MESSAGES):
            joined.extend(chain.from_iterable(_lists_in(item, depth - 1)))
    return joined


@or_else(None)
def _as_found(item: Any) -> Found | None:
    if isinstance(item, _DOCUMENTS):
        return Found(item)
    if isinstance(item, tuple) and len(item) == 2:
        return _scored(*item)
    return None


def _scored(first: Any, second: Any) -> Found | None:
    """Return a document with its score, from a pair that has both."""
    is_first, is_second = isinstance(first, _DOCUMENTS), isinstance(second, _DOCUMENTS)
    # Vector stores return (document, score). Two documents are a list of two.
    if is_first and not is_second:
        return Found(first, second)
    # Some rerankers return (score, document).
    if is_second and isinstance(first, (int, float)):
        return Found(second, first)
    return None


def passages_of(value: Any) -> list[Passage]:
    """Return the documents in a value as passages, with ids, metadata and scores."""
    return list(map(passage_from, chain.from_iterable(document_lists(value))))


def passage_from(found: Found) -> Passage:
    """Return a document as a passage."""
    document = found.document
    metadata = document.metadata or {}
    return Passage(
        text=document.page_content,
        # Some stores put the id into the metadata only, for example MongoDB under "_id".
        id=document.id or first_string(metadata, ("id", "_id")),
        score=finite(_score_of(found, metadata)),
        metadata=metadata,
    )


def _score_of(found: Found, metadata: Mapping[Any, Any]) -> Any:
    """Return a document's score: next to it, else in a field of a subclass, else in its metadata."""
    if found.score is not None:
        return found.score
    # pydantic takes microseconds to say that a document of LangChain's own class has no such field.
    is_subclass = type(found.document) not in _DOCUMENTS
    own = getattr(found.document, "score", None) if is_subclass else None
    return first_of(metadata, SCORE_KEYS) if own is None else own
