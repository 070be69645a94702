"""Passages of a cell: texts, objects of other tools, and lists of these in any nesting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.cells import is_missing, is_number, kind_of, metadata_in, unpacked
from rageval_hooks.turn import Passage

__all__ = ["passages_in"]

_TEXTS = (
    *("text", "content", "page_content", "passage", "chunk", "document", "body", "contents", "snippet", "segment"),
    *("chunk_text", "passage_text", "document_text", "paragraph", "context", "page_text"),
)
_INNER = ("document", "doc", "node", "chunk", "payload", "kwargs", "fields", "_source")
"""Keys of objects that hold the passage, next to its score: ``{"document": {...}, "score": 0.7}``."""

_IDS = ("id", "passage_id", "chunk_id", "doc_id", "document_id", "docid", "node_id", "id_", "_id")
_SCORES = ("score", "similarity", "relevance_score", "similarity_score")
_KNOWN = frozenset({"metadata", "in_prompt", "prompt_share"})
_NAMES_IN_MESSAGE = 8


def passages_in(value: Any, packed: bool) -> list[Passage]:
    """Return the passages of a cell.

    Args:
        value: a text, a list, or an object by id.
        packed: True if objects may be written as text; lists always may.

    Raises:
        TurnError: a passage has no text; the message says which keys are accepted.
    """
    if is_missing(value):
        return []
    value = _unpacked(value, packed)
    if isinstance(value, str):
        return [Passage(text=value)]
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if not isinstance(value, (list, tuple)):
        raise TurnError(f"the passages are {kind_of(value)}: give a list of texts or of objects with a text")
    return [_passage(item, number) for number, item in enumerate(_flat(value), 1)]


def _unpacked(value: Any, packed: bool) -> Any:
    """Return the passages that a text holds; the text itself if it only looks like a list or an object."""
    found = unpacked(value)
    if isinstance(found, list):
        return found if not found or any(isinstance(item, (str, list, Mapping)) for item in found) else value
    if not isinstance(value, str) or not isinstance(found, Mapping):
        return found
    by_id = all(isinstance(text, str) for text in found.values())
    return found if packed and (by_id or _has_text(found)) else value


def _has_text(value: Mapping[str, Any]) -> bool:
    return any(isinstance(value.get(key), str) for key in _TEXTS)


def _from_mapping(value: Mapping[str, Any]) -> list[Passage]:
    """Return the passages of an object: one passage, a wrapper around a list, or texts by their ids."""
    if _has_text(value):
        return [_passage(value, 1)]
    if len(value) == 1 and isinstance(inner := next(iter(value.values())), list):
        return passages_in(inner, packed=False)
    return [_keyed_passage(key, item, number) for number, (key, item) in enumerate(value.items(), 1)]


def _keyed_passage(key: str, item: Any, number: int) -> Passage:
    if isinstance(item, Mapping):
        return _passage({"id": key, **item}, number)
    return _passage({"id": key, "text": item}, number)


def _flat(items: Any) -> Iterator[Any]:
    """Yield the items of nested lists; a pair of passage and score stays together."""
    for item in items:
        if isinstance(item, (list, tuple)) and not _is_scored_pair(item):
            yield from _flat(item)
        else:
            yield item


def _is_scored_pair(item: Any) -> bool:
    return len(item) == 2 and isinstance(item[0], (str, Mapping)) and is_number(item[1])


def _passage(item: Any, number: int) -> Passage:
    if isinstance(item, str):
        return Passage(text=item)
    if isinstance(item, (list, tuple)):
        return _passage(item[0], number).model_copy(update={"score": float(item[1])})
    if not isinstance(item, Mapping):
        raise TurnError(
            f"passage {number} is {kind_of(item)}: give a text, or an object with text, id, score, metadata"
        )
    item = _unwrapped(item)
    text_key = next((key for key in _TEXTS if isinstance(item.get(key), str)), None)
    if text_key is None:
        accepted = ", ".join(_TEXTS[:_NAMES_IN_MESSAGE])
        raise TurnError(f"passage {number} has no text: accepted are {accepted} …; found: {', '.join(map(str, item))}")
    id_key = next((key for key in _IDS if key != text_key and not is_missing(item.get(key))), None)
    score_key = next((key for key in _SCORES if is_number(item.get(key))), None)
    known = {text_key, id_key, score_key, *_KNOWN}
    metadata = {name: part for name, part in item.items() if name not in known}
    return Passage(
        text=item[text_key],
        id=None if id_key is None else str(item[id_key]),
        score=None if score_key is None else float(item[score_key]),
        metadata={**metadata, **metadata_in(item.get("metadata"))},
        in_prompt=item.get("in_prompt"),
        prompt_share=item.get("prompt_share"),
    )


def _unwrapped(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a passage's own object merged with the one around it, which has its score or id."""
    for key in _INNER:
        inner = item.get(key)
        if isinstance(inner, Mapping) and not _has_text(item):
            around = {name: value for name, value in item.items() if name != key}
            return {**around, **_unwrapped(inner)}
    return item
