"""Drawing one panel: boxes and bars by file, the overview of all scores, or the histogram of ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rageval_hooks.offline.report.render.panels import Mark, Panel
from rageval_hooks.offline.report.render.plot_canvas import Box, Ink, add_axes, colour_of, draw_swatch, write
from rageval_hooks.offline.report.render.plot_sizes import (
    BAR,
    LABELS,
    LINE,
    NUMBERS,
    POINTS,
    RANK_HEIGHT,
    head_height,
    overview_rows,
    rank_label,
    row_lines,
    rows_height,
    shows_names,
)
from rageval_hooks.offline.report.render.plot_texts import wrapped
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.text.formatting import format_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_panel"]

# Numbers from here on have a unit on the axis ("200k"), and very large ones a power of ten.
_LARGE, _HUGE = 1e5, 1e15


def draw_panel(figure: Figure, panel: Panel, box: Box, ink: Ink) -> None:
    """Draw a panel: its title and subtitle, then its axes."""
    top = box.top
    for line in wrapped(panel.title, box.width, POINTS["title"], "bold"):
        write(figure, box.left, top, line, POINTS["title"], weight="bold")
        top += LINE * 1.15
    if panel.subtitle:
        write(figure, box.left, top, panel.subtitle, POINTS["small"])
    top = box.top + head_height(panel, box.width)
    rest = Box(box.left, top, box.width, box.top + box.height - top)
    draw_kind = _DRAW_BY_KIND.get(panel.kind, _draw_rows)
    draw_kind(figure, panel, rest, ink)


def _draw_rows(figure: Figure, panel: Panel, box: Box, ink: Ink) -> None:
    """Draw one box or bar per file, under its name and numbers."""
    rows = rows_height(panel, box.width)
    axes = add_axes(figure, Box(box.left, box.top, box.width, rows))
    # The axis counts inches from the top, as the texts do.
    axes.set_ylim(rows, 0)
    down = 0.0
    for mark in panel.marks:
        lines = row_lines(panel, mark, box.width)
        for place, line in enumerate(lines):
            is_name = shows_names(panel) and place < len(lines) - 1
            size = POINTS["name"] if is_name else POINTS["small"]
            write(figure, box.left, box.top + down + place * LINE, line, size, behind=ink.paper)
        middle = down + len(lines) * LINE + BAR / 2
        if mark.spread is not None:
            colour = colour_of(mark.file)
            if panel.kind == "share":
                axes.barh(middle, mark.spread.mean, height=0.15, color=colour, edgecolor=ink.text, linewidth=0.8)
            else:
                _draw_box(axes, middle, mark.spread, colour, ink)
            _draw_mean(axes, middle, mark.spread, ink)
        _draw_threshold(axes, panel, middle, ink)
        down += len(lines) * LINE + BAR
    _finish_axis(axes, panel, ink)


def _draw_overview(figure: Figure, panel: Panel, box: Box, ink: Ink) -> None:
    """Draw the means of all scores: names on the left, numbers on the right."""
    heights = overview_rows(panel)
    rows = sum(heights.values())
    left, right = box.left + LABELS, box.left + box.width - NUMBERS
    axes = add_axes(figure, Box(left, box.top, right - left - 0.1, rows))
    axes.set_ylim(rows, 0)
    down = 0.0
    for name, height in heights.items():
        for place, line in enumerate(wrapped(name, LABELS - 0.1, POINTS["name"])):
            write(figure, box.left, box.top + down + 0.03 + place * LINE, line, POINTS["name"])
        marks = [mark for mark in panel.marks if mark.label == name]
        for place, mark in enumerate(marks):
            middle = down + 0.03 + (place + 0.5) * LINE
            colour = colour_of(mark.file)
            _draw_point(axes, middle, mark, colour, ink)
            write(figure, right, box.top + middle - 0.055, _overview_numbers(mark), POINTS["small"])
        axes.axhline(down + height, color=ink.faint, linewidth=0.5)
        down += height
    _finish_axis(axes, panel, ink)


def _overview_numbers(mark: Mark) -> str:
    return mark.numbers.partition(", median")[0].partition(", n =")[0].partition(" ")[2]


def _draw_point(axes: Axes, y: float, mark: Mark, colour: str, ink: Ink) -> None:
    found = mark.spread
    assert found is not None  # noqa: S101 - the overview has only rows with values
    if found.interval is not None:
        ends = [found.interval.low, found.interval.high]
        axes.plot(ends, [y, y], color=colour, linewidth=2.2, solid_capstyle="butt", zorder=3)
    axes.plot([found.mean], [y], marker="D", markersize=5, markerfacecolor=colour, markeredgecolor=ink.text, zorder=4)


def _draw_box(axes: Axes, y: float, found: Spread, colour: str, ink: Ink) -> None:
    width = found.upper_quartile - found.lower_quartile
    axes.plot([found.minimum, found.maximum], [y, y], color=ink.text, linewidth=1, solid_capstyle="butt", zorder=2)
    axes.barh(y, width, left=found.lower_quartile, height=0.18, color=colour, edgecolor=ink.text, linewidth=1, zorder=3)
    # The median line has a light edge, so that it shows on a dark box.
    for line, thick in ((ink.paper, 4.4), (ink.text, 2.0)):
        ends = [y - 0.09, y + 0.09]
        axes.plot([found.median] * 2, ends, color=line, linewidth=thick, solid_capstyle="butt", zorder=4)


def _draw_mean(axes: Axes, y: float, found: Spread, ink: Ink) -> None:
    # Like the median, the interval has a light edge, and the diamond is light: both lie on the box.
    if found.interval is not None:
        ends = [found.interval.low, found.interval.high]
        for line, thick in ((ink.paper, 4.0), (ink.text, 1.8)):
            axes.plot(ends, [y, y], color=line, linewidth=thick, solid_capstyle="butt", zorder=5)
    axes.plot(
        [found.mean], [y], marker="D", markersize=5.5, markerfacecolor=ink.paper, markeredgecolor=ink.text, zorder=7
    )


def _finish_axis(axes: Axes, panel: Panel, ink: Ink) -> None:
    """Set the limits from 0 to the score's bound, or to the largest value."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

    low, high = _limits(panel)
    margin = (high - low) * 0.02
    axes.set_xlim(low - margin, high + margin)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=POINTS["small"])
    # Round steps only: 0.8 and 2.4 are no places where one looks for a count.
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=_is_whole(panel) and high - low > 2))
    axes.grid(axis="x", color=ink.faint, linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.kind == "share":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    elif _LARGE <= max(abs(low), abs(high)) < _HUGE:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _draw_threshold(axes: Axes, panel: Panel, middle: float, ink: Ink) -> None:
    """Draw the threshold across one row's box or bar, and not through the numbers above it."""
    low, high = _limits(panel)
    if panel.threshold is not None and low <= panel.threshold <= high:
        ends = [middle - BAR / 2, middle + BAR / 2]
        axes.plot([panel.threshold] * 2, ends, color=ink.text, linewidth=1.2, linestyle=(0, (4, 2)), zorder=6)


def _is_whole(panel: Panel) -> bool:
    """Return True if the values are whole numbers, such as ranks, as far as their quartiles and ends show."""
    spreads = [mark.spread for mark in panel.marks if mark.spread is not None]
    return all(number.is_integer() for found in spreads for number in (found.minimum, found.median, found.maximum))


def _limits(panel: Panel) -> tuple[float, float]:
    # Values beyond a stated bound are shown all the same: hiding them would hide a faulty metric.
    low = panel.low
    high = 0.0 if panel.high is None else panel.high
    for mark in panel.marks:
        if mark.spread is not None:
            low = min(low, mark.spread.minimum)
            high = max(high, mark.spread.maximum)
    # All values are 0, or so large that their difference is infinite: an axis needs a length.
    if not math.isfinite(high - low) or high <= low:
        return low, low + 1.0
    return low, high


def _draw_ranks(figure: Figure, panel: Panel, box: Box, ink: Ink) -> None:
    """Draw the share of turns by rank, files side by side."""
    from matplotlib.ticker import FuncFormatter

    top = box.top
    for mark in panel.marks:
        colour = colour_of(mark.file)
        draw_swatch(figure, box.left, top + 0.02, 0.1, colour)
        for line in rank_label(panel, mark, box.width):
            write(figure, box.left + 0.18, top, line, POINTS["name"])
            top += LINE
    axes = add_axes(figure, Box(box.left + 0.35, top + 0.1, box.width - 0.35, RANK_HEIGHT))
    thick = 0.8 / len(panel.marks)
    for place, mark in enumerate(panel.marks):
        where = [k - 0.4 + (place + 0.5) * thick for k in range(len(panel.bins))]
        colour = colour_of(mark.file)
        axes.bar(where, mark.shares, width=thick * 0.92, color=colour, edgecolor=ink.text, linewidth=0.6, zorder=3)
        # With several files the bars are too narrow for numbers.
        if len(panel.marks) == 1:
            for x, share in zip(where, mark.shares, strict=True):
                text = format_share(share).replace(".0%", "%")
                axes.text(x, share + 0.02, text, ha="center", va="bottom", size=6, color=ink.text)
    # Room for the number above a bar of 100%.
    axes.set_ylim(0, 1.1 if len(panel.marks) == 1 else 1.0)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.tick_params(axis="both", labelsize=POINTS["small"], length=0)
    axes.set_xticks(range(len(panel.bins)), panel.bins)
    axes.grid(axis="y", color=ink.faint, linewidth=0.6)
    axes.set_axisbelow(True)


_DRAW_BY_KIND = {"overview": _draw_overview, "ranks": _draw_ranks}
"""Every other kind of panel has one row per file."""
