"""Questions that are nested in a row: SQuAD has paragraphs in a document, and questions in each paragraph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rageval_hooks.offline.records.columns import canonical, has_column
from rageval_hooks.offline.records.rows import BadRow, Row

__all__ = ["unnested"]

_MOST_DEPTH = 4
_CHAT_KEYS = frozenset({"role", "content", "type"})


def unnested(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Yield a row for each question of the rows.

    A row without a question of its own, but with a list of objects that have one, becomes a row per object. It keeps
    what stands around it, such as the paragraph.
    """
    number = 0
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        for data in _questions(row.data, _MOST_DEPTH):
            number += 1
            yield Row(row.line, data, number)


def _questions(data: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    name = None if has_column("query", data) or depth == 0 else _nested_list(data, depth)
    if name is None:
        yield data
        return
    around = {key: value for key, value in data.items() if key != name}
    for item in data[name]:
        # The id of a document is not that of each question in it.
        kept = {key: value for key, value in around.items() if canonical(key) != "id"}
        yield from _questions({**kept, **item}, depth - 1)


def _nested_list(data: Mapping[str, Any], depth: int) -> str | None:
    """Return the name of a list of objects in which questions are found."""
    return next((name for name, value in data.items() if _has_questions(value, depth)), None)


def _has_questions(value: Any, depth: int) -> bool:
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        return False
    first = value[0]
    if first.keys() <= _CHAT_KEYS:  # messages of a chat
        return False
    return has_column("query", first) or (depth > 1 and _nested_list(first, depth - 1) is not None)
