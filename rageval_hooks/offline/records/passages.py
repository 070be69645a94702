"""Passages of a cell: texts, objects of other tools, and lists of these in any nesting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.cells import (
    first_key,
    is_missing,
    is_number,
    is_present,
    is_text,
    kind_of,
    metadata_in,
    unpacked,
)
from rageval_hooks.runtime.selecting import entries_except
from rageval_hooks.turn import Passage

__all__ = ["passages_in"]

# Names of the text in LangChain, LlamaIndex, Ragas, Haystack, search engines and data sets, the most specific first.
_TEXTS = (
    *("text", "content", "page_content", "passage", "chunk", "document", "body", "contents", "snippet", "segment"),
    *("chunk_text", "passage_text", "document_text", "paragraph", "context", "page_text", "quote", "excerpt"),
)
_INNER = ("document", "doc", "node", "chunk", "payload", "kwargs", "fields", "_source")
"""Keys of objects that hold the passage, next to its score: ``{"document": {...}, "score": 0.7}``."""

_IDS = ("id", "passage_id", "chunk_id", "doc_id", "document_id", "docid", "node_id", "id_", "_id")
_SCORES = ("score", "similarity", "relevance_score", "similarity_score")
_KNOWN = frozenset({"metadata", "in_prompt", "prompt_share", "from_turn"})
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
        return found if _may_hold_passages(found) else value
    if not isinstance(value, str) or not isinstance(found, Mapping):
        return found
    # A passage may be about JSON. Text of an object counts as passages only where objects have to be text.
    if packed and _holds_passages(found):
        return found
    return value


def _holds_passages(found: Mapping[str, Any]) -> bool:
    """Return True for a passage, and for texts by their ids."""
    return _has_text(found) or all(map(is_text, found.values()))


def _may_hold_passages(items: list[Any]) -> bool:
    """Return True for an empty list, and for one with texts, lists or objects; ``[1, 2]`` is a text about numbers."""
    return not items or any(isinstance(item, (str, list, Mapping)) for item in items)


def _has_text(value: Mapping[str, Any]) -> bool:
    return first_key(value, _TEXTS, is_text) is not None


def _from_mapping(value: Mapping[str, Any]) -> list[Passage]:
    """Return the passages of an object: one passage, a wrapper around a list, or texts by their ids."""
    if _has_text(value):
        return [_passage(value, 1)]
    items = list(value.values())
    # A wrapper such as {"documents": [...]}.
    if len(items) == 1 and isinstance(items[0], list):
        return passages_in(items[0], packed=False)
    return [_keyed_passage(key, item, number) for number, (key, item) in enumerate(value.items(), 1)]


def _keyed_passage(key: str, item: Any, number: int) -> Passage:
    """Return a passage of ``{"d1": "text"}`` or ``{"d1": {"text": "text"}}``."""
    fields = item if isinstance(item, Mapping) else {"text": item}
    return _passage({"id": key, **fields}, number)


def _flat(items: Any) -> Iterator[Any]:
    """Yield the items of nested lists; a pair of passage and score stays together."""
    for item in items:
        if isinstance(item, (list, tuple)) and not _is_scored_pair(item):
            yield from _flat(item)
        else:
            yield item


def _is_scored_pair(item: Any) -> bool:
    """Return True for ``["text", 0.7]``, as ``similarity_search_with_score`` returns it."""
    if len(item) != 2:
        return False
    passage, score = item
    return isinstance(passage, (str, Mapping)) and is_number(score)


def _passage(item: Any, number: int) -> Passage:
    if isinstance(item, str):
        return Passage(text=item)
    if isinstance(item, (list, tuple)):
        passage, score = item
        return _passage(passage, number).model_copy(update={"score": float(score)})
    if isinstance(item, Mapping):
        return _passage_of_object(_unwrapped(item), number)
    raise TurnError(f"passage {number} is {kind_of(item)}: give a text, or an object with text, id, score, metadata")


def _passage_of_object(item: Mapping[str, Any], number: int) -> Passage:
    text_key = first_key(item, _TEXTS, is_text)
    if text_key is None:
        raise _without_text(item, number)
    # The text may be under a name that is also used for ids, such as "document".
    id_key = first_key(item, (name for name in _IDS if name != text_key), is_present)
    score_key = first_key(item, _SCORES, is_number)
    known = {text_key, id_key, score_key, *_KNOWN}
    # What tools write next to the text, such as a page, is metadata.
    metadata = entries_except(item, *known)
    return Passage(
        text=item[text_key],
        id=str(item[id_key]) if id_key else None,
        score=float(item[score_key]) if score_key else None,
        metadata={**metadata, **metadata_in(item.get("metadata"))},
        in_prompt=item.get("in_prompt"),
        prompt_share=item.get("prompt_share"),
        from_turn=item.get("from_turn"),
    )


def _without_text(item: Mapping[str, Any], number: int) -> TurnError:
    accepted = ", ".join(_TEXTS[:_NAMES_IN_MESSAGE])
    found = ", ".join(map(str, item))
    return TurnError(f"passage {number} has no text: accepted are {accepted} …; found: {found}")


def _unwrapped(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a passage's own object merged with the one around it, which has its score or id."""
    if _has_text(item):
        return item
    key = first_key(item, _INNER, _is_object)
    if key is None:
        return item
    around = entries_except(item, key)
    return {**around, **_unwrapped(item[key])}


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)
