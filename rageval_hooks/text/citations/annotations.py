"""Read the citation annotations of a chat message, with positions in its whole text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rageval_hooks.runtime.narrowing import items_or_empty, mapping_or_empty, mappings_in

__all__ = ["annotations_from_blocks"]


def annotations_from_blocks(content: Any) -> list[dict[str, Any]]:
    """Return the citation annotations of a chat message for ``metadata["citations"]``.

    Args:
        content: the message's content blocks in LangChain's form: mappings with ``text`` and ``annotations`` (or
            ``citations`` in the form of Anthropic's API). Anything else has no annotations.

    Returns:
        The annotations, with positions in the whole text of the message.
    """
    found: list[dict[str, Any]] = []
    offset = 0
    for item in items_or_empty(content):
        # A bare string is a block of text without annotations.
        block = {"text": item} if isinstance(item, str) else mapping_or_empty(item)
        text = block.get("text")
        if not isinstance(text, str):
            continue
        found += [{**annotation, **_moved(annotation, offset, len(text))} for annotation in _annotations(block)]
        offset += len(text)
    return found


def _annotations(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the citations of a block: LangChain's annotations, and the citations of Anthropic's API."""
    # LangChain has annotations of other types, too.
    annotations = mappings_in(block.get("annotations"))
    citing = [item for item in annotations if "citation" in str(item.get("type", "citation"))]
    return citing + mappings_in(block.get("citations"))


def _moved(annotation: Mapping[str, Any], offset: int, length: int) -> dict[str, int]:
    """Return an annotation's position in the message. An annotation without a position covers its block."""
    start, end = annotation.get("start_index"), annotation.get("end_index")
    if isinstance(start, int) and isinstance(end, int):
        return {"start_index": offset + start, "end_index": offset + end}
    return {"start_index": offset, "end_index": offset + length}
