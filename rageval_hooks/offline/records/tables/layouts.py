"""The layouts in which records are written as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from rageval_hooks.errors import UnknownNameError
from rageval_hooks.offline.records.record import Record

__all__ = ["LAYOUTS", "Closeness", "Layout", "Records", "Table", "layout_of"]

Closeness = Callable[[Sequence[str]], Sequence[float]]
"""Returns how close each pair of some answers is, for example by BERTScore."""

Table = tuple[list[str], Iterator[Mapping[str, Any]]]
"""The header and the rows."""


class Records(Protocol):
    """Returns the records each time it is called: a table needs to know its columns before its rows."""

    def __call__(self, order: Sequence[int] | None = None, /) -> Iterator[Record]:
        """Return all records, or those at some positions, in that order."""


def _native(records: Records, _: Closeness | None) -> Table:
    from rageval_hooks.offline.records.tables.native import native_rows

    return native_rows(records)


def _open_rag_eval(records: Records, closeness: Closeness | None) -> Table:
    from rageval_hooks.offline.records.tables.open_rag_eval import open_rag_eval_rows

    return open_rag_eval_rows(records, closeness)


Layout = Callable[[Records, Closeness | None], Table]

LAYOUTS: dict[str, Layout] = {"native": _native, "open-rag-eval": _open_rag_eval}
"""Name of a layout → makes the table. The second argument compares repeated answers; None leaves that out."""


def layout_of(name: str) -> Layout:
    """Return a layout by its name.

    Raises:
        UnknownNameError: there is no such layout.
    """
    if name not in LAYOUTS:
        raise UnknownNameError("kind of columns", name, LAYOUTS)
    return LAYOUTS[name]
