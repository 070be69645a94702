"""Citation annotations of a chat message, as frameworks and providers have them, with places in its whole text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["annotations_from_blocks"]


def annotations_from_blocks(content: Any) -> list[dict[str, Any]]:
    """Return the citation annotations of a chat message, with places in its whole text: for ``metadata["citations"]``.

    Args:
        content: a message's content blocks, as LangChain has them: mappings with ``text`` and ``annotations`` (or
            ``citations``, as Anthropic's API has them); anything else has none.
    """
    found: list[dict[str, Any]] = []
    offset = 0
    for block in content if isinstance(content, (list, tuple)) else ():
        text = block if isinstance(block, str) else block.get("text") if isinstance(block, Mapping) else None
        if not isinstance(text, str):
            continue
        annotations = _annotations(block) if isinstance(block, Mapping) else []
        found += [{**annotation, **_moved(annotation, offset, len(text))} for annotation in annotations]
        offset += len(text)
    return found


def _annotations(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the citations of a block: among LangChain's annotations, or as Anthropic's API has them."""
    annotations, citations = block.get("annotations"), block.get("citations")
    found = [
        item
        for item in (annotations if isinstance(annotations, (list, tuple)) else ())
        if isinstance(item, Mapping) and "citation" in str(item.get("type", "citation"))
    ]
    return [*found, *(c for c in (citations if isinstance(citations, (list, tuple)) else ()) if isinstance(c, Mapping))]


def _moved(annotation: Mapping[str, Any], offset: int, length: int) -> dict[str, int]:
    """Return an annotation's place in the message; without one of its own, it is for its whole block."""
    start, end = annotation.get("start_index"), annotation.get("end_index")
    if isinstance(start, int) and isinstance(end, int):
        return {"start_index": offset + start, "end_index": offset + end}
    return {"start_index": offset, "end_index": offset + length}
