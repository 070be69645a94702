"""A report as text: for a terminal, for a file or a pipe, and as Markdown. No cell is ever cropped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rageval_hooks.offline.report.model import Report, ReportVerdict
from rageval_hooks.offline.report.render.tables import LONGEST_TEXT, Table, to_tables
from rageval_hooks.text.formatting import flat, width_of

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_tables", "to_markdown", "to_plain_text"]

_GAP = 2

# Text columns wrap down to this width; then number columns are dropped, which the table says.
_LEAST_TEXT = 16

# Names in the first column up to this length are not broken.
_WHOLE_NAME = 32

# Characters of a question or an answer in a file, where no line wraps.
_SHORT_TEXT = 90

# Lines of a question or an answer in a terminal.
_TEXT_LINES = 3

_MARKS = {"good": "+", "bad": "-", "note": " "}

# What Markdown would take for markup: punctuation such as "*" or "|", and "_" at the edge of a word ("_x_", not "a_b").
_MARKUP = re.compile(r"([\\`*{}\[\]<>#|~&!]|(?<!\w)_|_(?!\w))")


def to_markdown(report: Report, verdict: ReportVerdict | None = None) -> str:
    """Return the report as Markdown."""
    lines = ["# RAG evaluation", ""]
    if verdict is not None:
        lines += [f"**{_escaped(verdict.headline)}**", ""]
        lines += [f"- {_escaped(line.strip())}" for line in _verdict_lines(verdict)]
        lines.append("")
    for table in to_tables(report):
        short = table.shortened(_SHORT_TEXT)
        # A rule with a colon at its end aligns numbers to the right.
        rules = ["---" if column in short.texts else "---:" for column in range(len(short.header))]
        lines += [f"## {_escaped(short.title)}", ""]
        lines += [_markdown_row(short.header), f"| {' | '.join(rules)} |", *map(_markdown_row, short.rows), ""]
        lines += [line for note in short.notes for line in (_escaped(note), "")]
    return "\n".join(lines)


def to_plain_text(report: Report, verdict: ReportVerdict | None = None) -> str:
    """Return the report as text without a limit on the width, for a file or a pipe."""
    lines = []
    if verdict is not None:
        lines += [verdict.headline, *map(_flat_line, _verdict_lines(verdict)), ""]
    for table in to_tables(report):
        lines += [table.title, *_aligned(table.shortened(_SHORT_TEXT)), *table.notes, ""]
    return "\n".join(lines) + "\n"


def print_tables(report: Report, console: Console, verdict: ReportVerdict | None = None) -> None:
    """Print the report to a terminal. Texts wrap; number columns that do not fit are dropped, and named."""
    from rich.text import Text

    if verdict is not None:
        style = {"ok": "bold green", "warn": "bold yellow", "fail": "bold red"}[verdict.state]
        console.print(Text(flat(verdict.headline), style=style))
        for line in _verdict_lines(verdict):
            console.print(Text(_flat_line(line)))
        console.print()
    for table in to_tables(report):
        columns, dropped = _fitting(table, console.width)
        console.print(Text(table.title, style="bold"))
        console.print(_rich_table(table.shortened(_text_length(table, columns, console.width)), columns))
        if dropped:
            names = ", ".join(table.header[column] for column in dropped)
            console.print(Text(f"Not shown at this width: {names}. All columns: --output FILE", style="dim"))
        for note in table.notes:
            console.print(Text(note, style="dim"))
        console.print()


def _flat_line(line: str) -> str:
    """Return a line without control characters, with the mark at its beginning."""
    return f"{line[:2]}{flat(line[2:])}"


def _verdict_lines(verdict: ReportVerdict) -> list[str]:
    findings = [*verdict.quality, *verdict.changes]
    lines = [f"{_MARKS[finding.kind]} {finding.text}" for finding in findings]
    return lines + [f"  {line}" for line in verdict.certainty]


def _aligned(table: Table) -> list[str]:
    widths = [_natural_width(table, column) for column in range(len(table.header))]
    lines = []
    for row in (table.header, *table.rows):
        cells = []
        for column, cell in enumerate(row):
            # str.ljust() counts characters, but a Chinese one takes two columns of a terminal.
            room = " " * (widths[column] - width_of(cell))
            cells.append(cell + room if column in table.texts else room + cell)
        lines.append((" " * _GAP).join(cells).rstrip())
    return lines


def _fitting(table: Table, width: int) -> tuple[list[int], list[int]]:
    """Return the columns that fit into a terminal, and those that do not; the last numbers are dropped first."""
    kept = list(range(len(table.header)))
    dropped: list[int] = []
    while _least_width(table, kept) > width:
        numbers = [column for column in kept if column not in table.texts]
        # One number stays even if the terminal has to break the line: a table of names alone says nothing.
        if len(numbers) <= 1:
            break
        kept.remove(numbers[-1])
        dropped.insert(0, numbers[-1])
    return kept, dropped


def _least_width(table: Table, columns: Sequence[int]) -> int:
    return sum(_least_column_width(table, column) for column in columns) + _GAP * len(columns)


def _text_length(table: Table, columns: Sequence[int], width: int) -> int:
    """Return how many characters of a text are three lines of its column, but never fewer than in a file."""
    texts = [column for column in columns if column in table.texts and column != 0]
    numbers = [column for column in columns if column not in texts]
    room = width - sum(_least_column_width(table, column) for column in numbers) - _GAP * len(columns)
    widths = sorted(_natural_width(table, column) for column in texts)
    # A short column leaves room for the longer ones.
    while widths and widths[0] <= room // len(widths):
        room -= widths.pop(0)
    return max(_SHORT_TEXT, _TEXT_LINES * (room // len(widths))) if widths else LONGEST_TEXT


def _natural_width(table: Table, column: int) -> int:
    return max(width_of(row[column]) for row in (table.header, *table.rows))


def _least_column_width(table: Table, column: int) -> int:
    natural = _natural_width(table, column)
    if column not in table.texts:
        return natural
    return min(natural, _WHOLE_NAME if column == 0 else _LEAST_TEXT)


def _rich_table(table: Table, columns: Sequence[int]) -> object:
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for column in columns:
        # Text() keeps rich from reading square brackets in names as its markup.
        shown.add_column(
            Text(table.header[column]),
            justify="left" if column in table.texts else "right",
            overflow="fold",
            min_width=_least_column_width(table, column),
        )
    for row in table.rows:
        shown.add_row(*(Text(row[column]) for column in columns))
    return shown


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(text: str) -> str:
    """Return a text that Markdown shows literally: no markup, no HTML, no end of the cell."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
