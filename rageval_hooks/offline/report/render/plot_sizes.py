"""The sizes of a plot's parts in inches, computed before anything is drawn.

Sizes are fixed, and the figure grows: a panel looks the same among three others and among thirty.
"""

from __future__ import annotations

from collections.abc import Sequence

from rageval_hooks.offline.report.render.panels import Mark, Panel
from rageval_hooks.offline.report.render.plot_texts import wrapped

__all__ = [
    "BAR",
    "EDGE",
    "GAP",
    "LABELS",
    "LINE",
    "NUMBERS",
    "POINTS",
    "RANK_HEIGHT",
    "WIDTH",
    "head_height",
    "layout",
    "line_height",
    "overview_rows",
    "panel_width",
    "rank_label",
    "row_lines",
    "rows_height",
    "shows_names",
]

_MOST_COLUMNS = 3

# Inches.
WIDTH = 4.4
GAP = 0.45
EDGE = 0.25
BAR = 0.34
LINE = 0.165
_AXIS = 0.32
RANK_HEIGHT = 1.7
LABELS, NUMBERS = 2.0, 1.75  # of the overview, on the left and right of its axis
_OVERVIEW_WIDTH = 7.5

POINTS = {"heading": 12, "title": 10, "small": 7.5, "name": 8.5}
"""Sizes of texts."""


def layout(panels: Sequence[Panel]) -> tuple[float, list[list[Panel]]]:
    """Return the width of a figure in inches without its edges, and its lines of panels."""
    wide = [panel for panel in panels if panel.kind == "overview"]
    small = [panel for panel in panels if panel.kind != "overview"]
    columns = max(1, min(_MOST_COLUMNS, len(small)))
    width = columns * WIDTH + (columns - 1) * GAP
    if wide:
        width = max(width, _OVERVIEW_WIDTH)
    lines = [[panel] for panel in wide]
    lines += [small[start : start + columns] for start in range(0, len(small), columns)]
    return width, lines


def panel_width(panel: Panel, width: float) -> float:
    """Return the width of a panel in a figure: only the overview fills its line."""
    return width if panel.kind == "overview" else WIDTH


def line_height(line: Sequence[Panel], width: float) -> float:
    """Return the height of the highest panel of a line."""
    return max(_height(panel, panel_width(panel, width)) for panel in line)


def shows_names(panel: Panel) -> bool:
    """Return True if the rows of a panel show their file's name: with one file the heading has it."""
    return len(panel.marks) > 1


def row_lines(panel: Panel, mark: Mark, width: float) -> list[str]:
    """Return the name and the numbers of a row in lines."""
    names = wrapped(mark.label, width, POINTS["name"]) if shows_names(panel) else []
    return [*names, *wrapped(mark.numbers, width, POINTS["small"])]


def head_height(panel: Panel, width: float) -> float:
    """Return the height of a panel's title and subtitle."""
    titles = wrapped(panel.title, width, POINTS["title"], "bold")
    return (len(titles) + bool(panel.subtitle)) * LINE * 1.15 + 0.05


def _height(panel: Panel, width: float) -> float:
    head = head_height(panel, width)
    if panel.kind == "overview":
        return head + sum(overview_rows(panel).values()) + _AXIS
    if panel.kind == "ranks":
        legend = sum(len(rank_label(panel, mark, width)) for mark in panel.marks) * LINE
        return head + legend + RANK_HEIGHT + 2 * _AXIS
    return head + rows_height(panel, width) + _AXIS


def rows_height(panel: Panel, width: float) -> float:
    """Return the height of all rows: under its name and numbers, each has a box or a bar."""
    lines = sum(len(row_lines(panel, mark, width)) for mark in panel.marks)
    return lines * LINE + len(panel.marks) * BAR


def overview_rows(panel: Panel) -> dict[str, float]:
    """Return the height of each score's rows: one line per file, or as many as its wrapped name takes."""
    rows: dict[str, float] = {}
    for mark in panel.marks:
        rows[mark.label] = rows.get(mark.label, 0.06) + LINE
    for name in rows:
        lines = len(wrapped(name, LABELS - 0.1, POINTS["name"]))
        rows[name] = max(rows[name], lines * LINE + 0.06)
    return rows


def rank_label(panel: Panel, mark: Mark, width: float) -> list[str]:
    """Return the legend of a file in a histogram of ranks, in lines."""
    text = f"{mark.label}, {mark.numbers}" if shows_names(panel) else mark.numbers
    return wrapped(text, width - 0.2, POINTS["name"])
