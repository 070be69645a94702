"""A report as text: for the terminal, for a pipe, and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rageval_hooks.offline.report.render.tables import to_tables
from rageval_hooks.offline.report.report import Report

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_tables", "to_markdown"]

_WHOLE_NAME = 32
"""A name up to this length stands on one line, whatever is beside it."""


def to_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    lines = ["# RAG evaluation", ""]
    for table in to_tables(report):
        rules = ["---" if table.is_text(column) else "---:" for column in range(len(table.header))]
        lines += [f"## {_escaped(table.title)}", "", _markdown_row(table.header), f"| {' | '.join(rules)} |"]
        lines += [_markdown_row(row) for row in table.rows]
        lines.append("")
        for note in table.notes:
            lines += [_escaped(note), ""]
    return "\n".join(lines)


def print_tables(report: Report, console: Console) -> None:
    """Print the report to a terminal or a pipe."""
    from rich.table import Table as RichTable
    from rich.text import Text

    for table in to_tables(report):
        console.print(Text(table.title, style="bold"))
        shown = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column, name in enumerate(table.header):
            if table.is_text(column):
                longest = max((len(row[column]) for row in table.rows), default=0) if column == 0 else 0
                shown.add_column(Text(name), overflow="fold", min_width=min(longest, _WHOLE_NAME))
            else:
                shown.add_column(Text(name), justify="right", no_wrap=True)
        for row in table.rows:
            shown.add_row(*(Text(cell) for cell in row))
        console.print(shown)
        for note in table.notes:
            console.print(Text(note, style="dim"))
        console.print()


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(text: str) -> str:
    """A text that Markdown shows as it is: no markup, no HTML, no end of the cell."""
    return re.sub(r"([\\`*{}\[\]<>#|~&!]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))
