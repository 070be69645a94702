"""Search results that are text: what tools, functions and fields of a state hold in place of documents."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.host_values import finite, first_string, is_a, or_else
from rageval_hooks.integrations.capture.passages import SCORE_KEYS
from rageval_hooks.turn import Passage

_LEAST_TEXT = 40
"""Shorter texts are acknowledgements, for example "Message sent." In characters."""

_TEXT_KEYS = ("content", "text", "snippet", "page_content")
"""Keys of a result that hold its text, in order."""

_ID_KEYS = ("id", "url", "link")
_ABOUT_KEYS = frozenset({*_ID_KEYS, *SCORE_KEYS, "title", "source", "metadata"})
"""A mapping with a text is a search result if it has one of these keys, too."""


def is_search_tool(tool: str | None, search_tools: Collection[str]) -> bool | None:
    """Return whether a tool searches, according to the setting ``search_tools``; None if the setting does not say."""
    if tool in search_tools or f"!{tool}" in search_tools:
        return tool in search_tools
    # A list that names some tools names all that search.
    return False if any(not name.startswith("!") for name in search_tools) else None


@or_else(())
def text_results(value: Any, about: Mapping[str, Any], *, named: bool = False) -> Sequence[Passage]:
    """Return the passages in a value that is not made of documents; an empty list for an acknowledgement or a number.

    Args:
        value: a text, content blocks (as tools of MCP return them), a result, a list of results, or a mapping with
            such a list. A text may be JSON of any of these.
        about: metadata for the passages, for example ``{"tool": "web_search"}``.
        named: True if the application says that the value is a search result: then a short text is one, too.

    Returns:
        One passage for each result or block. If nothing can be told apart, one passage with the whole text and
        ``whole_output`` in its metadata.
    """
    if isinstance(value, str):
        text = str.__str__(value).strip()
        if not named and len(text) < _LEAST_TEXT:
            return []
        whole = [Passage(text=value, metadata={**about, "whole_output": True})] if text else []
        return _results_in(_parsed(text), about) or whole
    blocks = _texts_of_blocks(value)
    if not blocks:
        return _results_in(value, about)
    if len(blocks) == 1:
        return text_results(blocks[0], about, named=named)
    if not named and sum(map(len, blocks)) < _LEAST_TEXT:
        return []
    found: list[Passage] = []
    for text in blocks:
        found += _results_in(_parsed(text), about) or [Passage(text=text, metadata=dict(about))]
    return found


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


def _parsed(text: str) -> Any:
    """Return the JSON in a text; None if it is not an object or a list."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _results_in(value: Any, about: Mapping[str, Any]) -> list[Passage]:
    """Return the results in a list, in a mapping with a list of results, or in a mapping that is a result."""
    if is_a(value, Mapping):
        single = _result(value, about)
        if single is not None:
            return [single]
        # {"query": "pier", "results": [{"url": …, "content": …}], "response_time": 0.4}
        lists = [_results_in(item, about) for item in value.values() if is_a(item, list)]
        return max(lists, key=len, default=[])
    if not is_a(value, (list, tuple)):
        return []
    results = [_result(item, about) for item in value]
    return [result for result in results if result is not None]


def _result(value: Any, about: Mapping[str, Any]) -> Passage | None:
    """Return {"content": "…", "url": "…", "score": 0.8} as a passage; None for a mapping that is no search result."""
    if not is_a(value, Mapping) or _ABOUT_KEYS.isdisjoint(value):
        return None
    key = next((key for key in _TEXT_KEYS if is_a(value.get(key), str)), None)
    if key is None or not value[key].strip():
        return None
    score = next((value[name] for name in SCORE_KEYS if is_a(value.get(name), (int, float))), None)
    rest = {name: item for name, item in value.items() if name != key}
    return Passage(text=value[key], id=first_string(value, _ID_KEYS), score=finite(score), metadata={**about, **rest})
