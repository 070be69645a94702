"""A table of a report, and the columns that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rageval_hooks.offline.report.statistics import Interval
from rageval_hooks.text.formatting import MISSING, flat, format_interval, truncate

__all__ = ["LONGEST_TEXT", "Column", "Table", "make_table", "show_interval", "with_arrow"]

LONGEST_TEXT = 400
"""Characters of a question or an answer in any table. The page and the JSON have the whole text."""

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table.

    Attributes:
        title: what it shows.
        header: names of the columns.
        rows: texts, one per column.
        notes: sentences under it.
        texts: positions of the columns that hold texts; the others hold numbers, and are aligned to the right.
        is_detail: True for tables of single turns, which the page shows in another way.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    texts: frozenset[int] = frozenset((0,))
    is_detail: bool = False

    def shortened(self, length: int) -> Table:
        """Return the table with texts of at most ``length`` characters. Names in the first column stay whole."""
        texts = self.texts - {0}
        return replace(self, rows=tuple(_shortened(row, texts, length) for row in self.rows))


def _shortened(row: Sequence[str], texts: Container[int], length: int) -> tuple[str, ...]:
    return tuple(truncate(cell, length) if column in texts else cell for column, cell in enumerate(row))


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table.

    Attributes:
        title: its header.
        cell: returns the text of a row.
        is_text: True if it holds texts and not numbers.
        only_if_any: omit the column if all of its cells are empty.
    """

    title: str
    cell: Callable[[Row], str]
    is_text: bool = False
    only_if_any: bool = False


def make_table(
    title: str,
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    notes: Sequence[str] = (),
    *,
    is_detail: bool = False,
) -> Table:
    """Return the table of some rows.

    Args:
        title: what it shows.
        columns: its columns.
        rows: what its lines are about, one each.
        notes: sentences under it.
        is_detail: True for a table of single turns.
    """
    kept: list[Column[Row]] = []
    cells: list[list[str]] = []
    for column in columns:
        # Names of files, questions and answers may hold line breaks and control characters, which break a table.
        texts = [flat(column.cell(row)) for row in rows]
        if any(texts) or not column.only_if_any:
            kept.append(column)
            cells.append(texts)
    return Table(
        title=flat(title),
        header=tuple(flat(column.title) for column in kept),
        rows=tuple(zip(*cells, strict=True)),
        notes=tuple(map(flat, notes)),
        texts=frozenset(place for place, column in enumerate(kept) if column.is_text),
        is_detail=is_detail,
    )


def with_arrow(name: str, direction: str) -> str:
    """Return the name of a score, with an arrow if lower is better."""
    return f"{name} ↓" if direction == "lower" else name


def show_interval(interval: Interval | None, style: str = "value") -> str:
    """Return an interval, or a dash without one."""
    return MISSING if interval is None else format_interval(interval.low, interval.high, style=style)
