"""Passages that an application gives us: texts, mappings, documents of LangChain and nodes of LlamaIndex.

By attribute names: no framework is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rageval_hooks.integrations.capture.host_values import attribute_text, finite, first_string, is_a, or_else
from rageval_hooks.integrations.capture.passages.seen_by_model import SCORE_KEYS
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.runtime.selecting import entries_except
from rageval_hooks.turn import Passage

__all__ = ["TEXT_KEYS", "DocumentLike", "NodeLike", "PassageLike", "is_passage", "passage_of"]

TEXT_KEYS = ("text", "content", "message", "page_content")
"""Keys of a mapping that hold the text, in order."""

_ID_KEYS = ("id", "_id", "node_id", "doc_id")
"""Keys of a mapping, or of a document's metadata, that hold the id, in order."""

_OWN_FIELDS = frozenset({*TEXT_KEYS, "id", "metadata"})
"""Keys of a mapping that become fields of the passage. The others become metadata."""


class DocumentLike(Protocol):
    """A document of LangChain: ``Document``."""

    page_content: str


class NodeLike(Protocol):
    """A node of LlamaIndex, with or without a score: ``TextNode``, ``NodeWithScore``, ``Document``."""

    def get_content(self) -> str:
        """Return the text."""
        ...


PassageLike = str | Passage | Mapping[str, Any] | DocumentLike | NodeLike | tuple[DocumentLike | NodeLike, float]
"""One passage: a text, a mapping with ``text`` and optionally ``id`` and ``score``, a document, or a node.

A document may have its score next to it, as LangChain's ``similarity_search_with_score`` returns it.
"""


def is_passage(value: object) -> bool:
    """Return True if a value is one passage, and not several or something else."""
    return passage_of(value) is not None


@or_else(None)
def passage_of(value: object) -> Passage | None:
    """Return a value as a passage; None if it is not a passage or has no text."""
    if isinstance(value, Passage):
        return value
    if isinstance(value, str):
        return Passage(text=value)
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if isinstance(value, tuple):
        return _from_pair(value)
    return _from_object(value)


def _from_mapping(value: Mapping[str, Any]) -> Passage | None:
    text = _text_in(value)
    if text is None:
        return None
    # {"text": "…", "id": "7", "source": "pier.md", "metadata": {"page": 3}}: whatever is left over is metadata too.
    rest = entries_except(value, *_OWN_FIELDS)
    rest = {**mapping_or_empty(value.get("metadata")), **rest}
    return Passage(text=text, id=first_string(value, _ID_KEYS), score=_score_in(rest), metadata=rest)


def _text_in(value: Mapping[str, Any]) -> str | None:
    for key in TEXT_KEYS:
        text = value.get(key)
        if isinstance(text, str):
            return text
    return None


def _from_pair(value: tuple[object, ...]) -> Passage | None:
    # (Document(page_content="…"), 0.83)
    if len(value) != 2 or not is_a(value[1], (int, float)):
        return None
    passage = passage_of(value[0])
    if passage is None:
        return None
    return passage.model_copy(update={"score": finite(value[1])})


def _from_object(value: Any) -> Passage | None:
    # LlamaIndex's NodeWithScore(node=TextNode(…), score=0.83), or a document or node itself.
    node = getattr(value, "node", value)
    text = _text_of(node)
    if text is None:
        return None
    metadata = getattr(node, "metadata", None)
    known = mapping_or_empty(metadata)
    ids = {"id": getattr(node, "id", None), "node_id": getattr(node, "node_id", None)}
    score = finite(getattr(value, "score", None))
    return Passage(
        text=text,
        id=first_string(ids, ids) or first_string(known, _ID_KEYS),
        score=_score_in(known) if score is None else score,
        metadata=dict(known),
    )


def _text_of(node: Any) -> str | None:
    """Return the text of a document of LangChain (``page_content``) or of a node of LlamaIndex (``get_content()``)."""
    text = attribute_text(node, "page_content")
    if text is not None or not callable(getattr(node, "get_content", None)):
        return text
    content = node.get_content()
    return content if isinstance(content, str) else None


def _score_in(mapping: Mapping[Any, Any]) -> float | None:
    for key in SCORE_KEYS:
        score = mapping.get(key)
        if isinstance(score, (int, float)):
            return finite(score)
    return None
