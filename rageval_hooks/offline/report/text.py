"""A report as text: for a terminal, for a file or a pipe, and as Markdown. No cell is ever cropped."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rageval_hooks.offline.report.model import Conclusion, Report
from rageval_hooks.offline.report.tables import Table, to_tables
from rageval_hooks.text.formatting import flat, width_of

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_tables", "to_markdown", "to_plain_text"]

_GAP = 2

# In a terminal text columns wrap, down to this width; then number columns are dropped, which the table says.
_LEAST_TEXT = 16

# Names in the first column up to this length are not broken.
_WHOLE_NAME = 32

# Characters of a question or an answer in a file, where no line wraps, and at least in a terminal.
_SHORT_TEXT = 90

# Lines of a question or an answer in a terminal.
_TEXT_LINES = 3

# Columns of a file: rich wraps no line.
_UNLIMITED = 100_000

_MARKS = {"good": "+", "bad": "-", "note": " "}

# What Markdown would take for markup: punctuation such as "*" or "|", and "_" at the edge of a word ("_x_", not "a_b").
_MARKUP = re.compile(r"([\\`*{}\[\]<>#|~&!]|(?<!\w)_|_(?!\w))")


def to_markdown(report: Report, conclusion: Conclusion | None = None) -> str:
    """Return the report as Markdown."""
    lines = ["# RAG evaluation", ""]
    if conclusion is not None:
        lines += [f"**{_escaped(conclusion.headline)}**", ""]
        lines += [f"- {_escaped(line.strip())}" for line in _conclusion_lines(conclusion)]
        lines.append("")
    for table in to_tables(report):
        short = table.shortened(_SHORT_TEXT)
        # A rule with a colon at its end aligns numbers to the right.
        rules = ["---" if column in short.texts else "---:" for column in range(len(short.header))]
        lines += [f"## {_escaped(short.title)}", ""]
        lines += [_markdown_row(short.header), f"| {' | '.join(rules)} |", *map(_markdown_row, short.rows), ""]
        lines += [line for note in short.notes for line in (_escaped(note), "")]
    return "\n".join(lines)


def to_plain_text(report: Report, conclusion: Conclusion | None = None) -> str:
    """Return the report as text without a limit on the width, for a file or a pipe."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(), width=_UNLIMITED, color_system=None, force_terminal=False, legacy_windows=False
    )
    with console.capture() as captured:
        print_tables(report, console, conclusion)
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))


def print_tables(report: Report, console: Console, conclusion: Conclusion | None = None) -> None:
    """Print the report to a terminal. Texts wrap; number columns that do not fit are dropped, and named."""
    from rich.text import Text

    if conclusion is not None:
        style = {"ok": "bold green", "warn": "bold yellow", "fail": "bold red"}[conclusion.state]
        console.print(Text(flat(conclusion.headline), style=style))
        for line in _conclusion_lines(conclusion):
            # Without control characters, and with the mark at its beginning.
            console.print(Text(f"{line[:2]}{flat(line[2:])}"))
        console.print()
    for table in to_tables(report):
        console.print(Text(table.title, style="bold"))
        _print_table(table, console)
        for note in table.notes:
            console.print(Text(note, style="dim"))
        console.print()


def _conclusion_lines(conclusion: Conclusion) -> list[str]:
    lines = [f"{_MARKS[finding.kind]} {finding.text}" for finding in (*conclusion.quality, *conclusion.changes)]
    return lines + [f"  {line}" for line in conclusion.certainty]


def _print_table(table: Table, console: Console) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    natural = [max(map(width_of, column)) for column in zip(table.header, *table.rows, strict=True)]
    # Numbers do not wrap, names only if they are very long.
    least = {
        column: min(width, _LEAST_TEXT) if column in table.texts else width for column, width in enumerate(natural)
    }
    least[0] = min(natural[0], _WHOLE_NAME)
    kept = list(least)

    def room() -> int:
        return console.width - sum(least[column] + _GAP for column in kept)

    dropped: list[str] = []
    # One number stays even if the terminal has to break the line: a table of names alone says nothing.
    while room() < 0 and len(numbers := [column for column in kept if column not in table.texts]) > 1:
        kept.remove(numbers[-1])
        dropped.insert(0, table.header[numbers[-1]])
    long = [column for column in kept if natural[column] > least[column]]
    # Three lines of a text, if the columns that wrap share the rest of the width.
    length = _TEXT_LINES * (_LEAST_TEXT + max(0, room()) // max(1, len(long)))
    table = table.shortened(_SHORT_TEXT if console.width == _UNLIMITED else max(_SHORT_TEXT, length))
    shown = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for column in kept:
        # Text() keeps rich from reading square brackets in names as its markup.
        justify = "left" if column in table.texts else "right"
        shown.add_column(Text(table.header[column]), justify=justify, overflow="fold", min_width=least[column])  # type: ignore[arg-type]
    for row in table.rows:
        shown.add_row(*(Text(row[column]) for column in kept))
    console.print(shown)
    if dropped:
        console.print(Text(f"Not shown at this width: {', '.join(dropped)}. All columns: --output FILE", style="dim"))


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(text: str) -> str:
    """Return a text that Markdown shows literally: no markup, no HTML, no end of the cell."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
