"""Passages of a cell: texts, objects of other tools, and lists of these in any nesting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.values import is_missing, is_number, kind_of, unpacked
from rageval_hooks.turn import Passage

__all__ = ["are_no_texts", "may_be_passages", "passages_in"]

# Names of the text in LangChain, LlamaIndex, Ragas, Haystack, search engines and data sets, the most specific first.
_TEXTS = (
    *("text", "content", "page_content", "passage", "chunk", "document", "body", "contents", "snippet", "segment"),
    *("chunk_text", "passage_text", "document_text", "paragraph", "context", "page_text", "quote", "excerpt"),
)

_INNER = ("document", "doc", "node", "chunk", "payload", "kwargs", "fields", "_source")
"""Keys of objects that hold the passage, next to its score: ``{"document": {...}, "score": 0.7}``."""

_IDS = ("id", "passage_id", "chunk_id", "doc_id", "document_id", "docid", "node_id", "id_", "_id")
_SCORES = ("score", "similarity", "relevance_score", "similarity_score")

# "5", "0.7" and addresses without a blank.
_NUMBER_OR_ADDRESS = re.compile(r"[+-]?\d+(?:\.\d+)?|https?://\S+")
# Names of files, also with a place in them: "handbook.pdf", "docs/Annual Report 2023.docx", "notes.md#3".
_FILE = re.compile(
    r"[^#]{1,200}\.(?:pdf|md|txt|rst|docx?|pptx?|xlsx?|html?|csv|jsonl?|epub)(?:#.*)?", re.IGNORECASE | re.DOTALL
)
# Between the sources of one cell: "a.pdf | b.pdf", "a.pdf; b.pdf".
_BETWEEN = re.compile(r"[|;,\n]")
# Keys of objects that say where a passage is from, without its text.
_SOURCE_KEYS = frozenset(
    "title url uri link href source file filename file_name file_path path page page_number section name id doc_id "
    "document_id chunk_id chunk_index index rank score similarity distance relevance type author date".split()
)


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
    found = unpacked(value)
    if isinstance(value, str) and not _is_packed(found, packed):
        return [Passage(text=value)]
    if isinstance(found, Mapping):
        return _from_mapping(found)
    if not isinstance(found, (list, tuple)):
        raise TurnError(f"the passages are {kind_of(found)}: give a list of texts or of objects with a text")
    return [_passage(item, number) for number, item in enumerate(_flat(found), 1)]


def _is_packed(found: Any, packed: bool) -> bool:
    """Return True if what was read out of a text are passages, and not a text that looks like JSON."""
    if isinstance(found, list):
        # "[1, 2]" is a text about numbers.
        return not found or any(isinstance(item, (str, list, Mapping)) for item in found)
    # A passage may be about JSON. Text of an object counts as passages only where objects have to be text.
    if not packed or not isinstance(found, Mapping):
        return False
    return _first(found, _TEXTS, str) is not None or all(isinstance(item, str) for item in found.values())


def _from_mapping(value: Mapping[str, Any]) -> list[Passage]:
    """Return the passages of an object: one passage, a wrapper around a list, or texts by their ids."""
    if _first(value, _TEXTS, str):
        return [_passage(value, 1)]
    items = list(value.values())
    # A wrapper such as {"documents": [...]}.
    if len(items) == 1 and isinstance(items[0], list):
        return passages_in(items[0], packed=False)
    keyed = ({"id": key, **(item if isinstance(item, Mapping) else {"text": item})} for key, item in value.items())
    return [_passage(item, number) for number, item in enumerate(keyed, 1)]


def _flat(items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of nested lists; a pair of passage and score stays together."""
    for item in items:
        if isinstance(item, (list, tuple)) and not _is_scored_pair(item):
            yield from _flat(item)
        else:
            yield item


def _is_scored_pair(item: Any) -> bool:
    """Return True for ``["text", 0.7]``, as ``similarity_search_with_score`` returns it."""
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
    # The passage may be inside, next to its score or id.
    while not (text_key := _first(item, _TEXTS, str)) and (inner := _first(item, _INNER, Mapping)):
        item = {**{key: value for key, value in item.items() if key != inner}, **item[inner]}
    if text_key is None:
        raise TurnError(
            f"passage {number} has no text: accepted are {', '.join(_TEXTS[:8])} …; found: {', '.join(map(str, item))}"
        )
    # The text may be under a name that is also used for ids, such as "document".
    id_key = next((key for key in _IDS if key != text_key and not is_missing(item.get(key))), None)
    score_key = next((key for key in _SCORES if is_number(item.get(key))), None)
    metadata = unpacked(item.get("metadata"))
    if not is_missing(metadata) and not isinstance(metadata, Mapping):
        raise TurnError(f"the metadata is {kind_of(metadata)}, not an object")
    known = {text_key, id_key, score_key, "metadata", "in_prompt", "prompt_share", "from_turn"}
    # What tools write next to the text, such as a page, is metadata.
    rest = {key: value for key, value in item.items() if key not in known}
    return Passage(
        text=item[text_key],
        id=str(item[id_key]) if id_key else None,
        score=float(item[score_key]) if score_key else None,
        metadata={**rest, **metadata} if isinstance(metadata, Mapping) else rest,
        in_prompt=item.get("in_prompt"),
        prompt_share=item.get("prompt_share"),
        from_turn=item.get("from_turn"),
    )


def _first(item: Mapping[str, Any], names: Iterable[str], kind: type) -> str | None:
    """Return the first of some names whose value is of a type."""
    return next((name for name in names if isinstance(item.get(name), kind)), None)


def may_be_passages(value: Any) -> bool:
    """Return False for a cell that certainly holds no texts of passages; True for an empty one.

    A wrong passage is worse than none: an answer would be compared with the number 5 or the name of a file.
    """
    if is_missing(value):
        return True
    if isinstance(value, str):
        listed = unpacked(value)
        return not are_no_texts(value) if isinstance(listed, str) else may_be_passages(listed)
    if isinstance(value, (list, tuple)):
        return not value or any(map(_may_be_passage, value))
    return isinstance(value, Mapping)


def _may_be_passage(item: Any) -> bool:
    if isinstance(item, str):
        return not are_no_texts(item)
    if isinstance(item, Mapping):
        # {"title": "Handbook", "url": "https://…"} says where a passage is from.
        return not _SOURCE_KEYS.issuperset(str(key).lower().replace(" ", "_") for key in item)
    return not isinstance(item, (int, float))


def are_no_texts(text: str) -> bool:
    """Return True for numbers, addresses and names of files, and several of them: ``a.pdf; b.pdf``."""
    parts = filter(None, map(str.strip, _BETWEEN.split(text)))
    return all(_NUMBER_OR_ADDRESS.fullmatch(part) or _FILE.fullmatch(part) for part in parts)
