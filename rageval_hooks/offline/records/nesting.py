"""Questions that are nested in a row: SQuAD has paragraphs in a document, and questions in each paragraph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from rageval_hooks.offline.records.columns import canonical, has_column
from rageval_hooks.offline.records.rows import BadRow, Row, split_rows
from rageval_hooks.runtime.narrowing import mappings_in

__all__ = ["unnested"]

_MOST_DEPTH = 4
_CHAT_KEYS = frozenset({"role", "content", "type"})


def unnested(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Yield a row for each question of the rows.

    A row that has no question, but a list of objects with questions, becomes a row per object. Each row keeps what is
    around the list, such as the paragraph.
    """
    return split_rows(rows, partial(_questions, depth=_MOST_DEPTH))


def _questions(data: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    name = None if has_column("query", data) else _nested_list(data, depth)
    if name is None:
        yield data
        return
    # The id of a document is not that of each question in it.
    around = {key: value for key, value in data.items() if key != name and canonical(key) != "id"}
    for item in data[name]:
        yield from _questions({**around, **item}, depth - 1)


def _nested_list(data: Mapping[str, Any], depth: int) -> str | None:
    """Return the name of a list of objects in which questions are found, at most so many levels below."""
    if not depth:
        return None
    names = (name for name, value in data.items() if _has_questions(value, depth))
    return next(names, None)


def _has_questions(value: Any, depth: int) -> bool:
    items = mappings_in(value)
    if not items or len(items) < len(value):
        return False
    # All objects of a list have the same names, so the first stands for the others.
    first = items[0]
    # Messages of a chat have "content", which is a name of the question elsewhere.
    if first.keys() <= _CHAT_KEYS:
        return False
    return has_column("query", first) or _nested_list(first, depth - 1) is not None
