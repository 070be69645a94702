"""Drawing panels with matplotlib, without a display: the same numbers give the same SVG, byte for byte.

The colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart. Sizes are computed
in inches before anything is drawn, so that no label can collide with another: long names wrap and are never cut.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.offline.report.render.panels import Mark, Panel
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.text.formatting import flat, format_share, shown, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Ink", "draw", "to_png", "to_svg"]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_MOST_COLUMNS = 3

# Inches. Sizes are fixed, and the figure grows: a panel looks the same among three others and among thirty.
_WIDTH = 4.4
_GAP = 0.45
_EDGE = 0.25
_BAR = 0.34
_LINE = 0.165
_AXIS = 0.32
_RANK_HEIGHT = 1.7
_LABELS, _NUMBERS = 2.0, 1.75  # of the overview, on the left and right of its axis
_OVERVIEW_WIDTH = 7.5

_SIZES = {"heading": 12, "title": 10, "small": 7.5, "name": 8.5}  # points
_LARGE, _HUGE = 1e5, 1e15

# The parts of a name such as "my_metric.f1": "my_", "metric.", "f1".
_PARTS = re.compile(r"[^_./-]*[_./-]|[^_./-]+")

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "rageval-hooks",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "text.parse_math": False,
}


@dataclass(frozen=True)
class Ink:
    """The colours of everything that is not data."""

    text: str = "#1a1a1a"
    faint: str = "#d0d0d0"
    paper: str = "#ffffff"


@dataclass(frozen=True)
class _Box:
    """A rectangle of a figure in inches: its left and top edges, its width and height."""

    left: float
    top: float
    width: float
    height: float


def draw(panels: Sequence[Panel], level: float, *, heading: bool = True, ink: Ink | None = None) -> Figure:
    """Draw panels into one figure.

    Args:
        panels: at least one.
        level: confidence of the intervals, for the legend.
        heading: say which files they are, and what the marks mean.
        ink: the colours of text and lines.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    ink = ink or Ink()
    with _style(ink):
        from matplotlib.figure import Figure

        width, lines = _layout(panels)
        top = _heading_height(panels, width, level) if heading else 0.0
        # The figure is created with its final size: matplotlib places everything in shares of it.
        heights = [_line_height(line, width) for line in lines]
        total = top + sum(heights) + _GAP * (len(heights) - 1)
        figure = Figure(figsize=(width + 2 * _EDGE, total + 2 * _EDGE))
        if heading:
            _draw_heading(figure, panels, width, level)
        for line, height in zip(lines, heights, strict=True):
            for place, panel in enumerate(line):
                left = _EDGE + place * (_WIDTH + _GAP)
                box = _Box(left, _EDGE + top, _panel_width(panel, width), height)
                _draw_panel(figure, panel, box, ink)
            top += height + _GAP
    return figure


def _layout(panels: Sequence[Panel]) -> tuple[float, list[list[Panel]]]:
    """Return the width of a figure in inches without its edges, and its lines of panels."""
    wide = [panel for panel in panels if panel.kind == "overview"]
    small = [panel for panel in panels if panel.kind != "overview"]
    columns = max(1, min(_MOST_COLUMNS, len(small)))
    width = columns * _WIDTH + (columns - 1) * _GAP
    if wide:
        width = max(width, _OVERVIEW_WIDTH)
    lines = [[panel] for panel in wide]
    lines += [small[start : start + columns] for start in range(0, len(small), columns)]
    return width, lines


def _panel_width(panel: Panel, width: float) -> float:
    return width if panel.kind == "overview" else _WIDTH


def _line_height(line: Sequence[Panel], width: float) -> float:
    return max(_height(panel, _panel_width(panel, width)) for panel in line)


def to_svg(figure: Figure, ink: Ink | None = None) -> str:
    """Return a figure as SVG."""
    buffer = io.StringIO()
    with _style(ink or Ink()):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=ink is not None)
    return buffer.getvalue()


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG, 150 dots per inch."""
    buffer = io.BytesIO()
    with _style(Ink()):
        figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


@contextmanager
def _style(ink: Ink) -> Iterator[None]:
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "offline", "a plot") from error
    parts = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style: Any = {**_STYLE, **dict.fromkeys(parts, ink.text)}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names of files in any script
        yield


# --------------------------------------------------------------------------- room for texts


@cache
def _inches(text: str, size: float, weight: str = "normal") -> float:
    """Return how wide a text is."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text.strip():
        return 0.0
    drawn = TextPath((0, 0), text, size=size, prop=FontProperties(weight=weight))
    # A character that the font lacks is drawn as a narrow box here, but may be wide in a browser.
    least = 0.0 if text.isascii() else size * 0.5 * width_of(text)
    return max(float(drawn.get_extents().width), least) / 72


def _wrapped(text: str, width: float, size: float, weight: str = "normal") -> list[str]:
    """Return a text in lines that fit into a width in inches; words that are too long are broken."""
    lines: list[str] = []
    line = ""
    for word in flat(text).split(" "):
        longer = f"{line} {word}" if line else word
        if _inches(longer, size, weight) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        *whole, line = _broken(word, width, size, weight)
        lines += whole
    return [*lines, line] if line or not lines else lines


def _broken(word: str, width: float, size: float, weight: str) -> list[str]:
    if _inches(word, size, weight) <= width:
        return [word]
    # Names of scores are broken where their parts end, so that a reader still recognizes them.
    pieces = [""]
    for part in _PARTS.findall(word):
        # A part that is too long by itself is broken between any two characters.
        units = [part] if _inches(part, size, weight) <= width else list(part)
        for unit in units:
            if pieces[-1] and _inches(pieces[-1] + unit, size, weight) > width:
                pieces.append("")
            pieces[-1] += unit
    return pieces


def _names(panel: Panel) -> bool:
    """Return True if the rows of a panel show their file's name: with one file the heading has it."""
    return len(panel.marks) > 1


def _row_lines(panel: Panel, mark: Mark, width: float) -> list[str]:
    names = _wrapped(mark.label, width, _SIZES["name"]) if _names(panel) else []
    return [*names, *_wrapped(mark.numbers, width, _SIZES["small"])]


def _head_height(panel: Panel, width: float) -> float:
    titles = _wrapped(panel.title, width, _SIZES["title"], "bold")
    return (len(titles) + bool(panel.subtitle)) * _LINE * 1.15 + 0.05


def _height(panel: Panel, width: float) -> float:
    head = _head_height(panel, width)
    if panel.kind == "overview":
        return head + sum(_overview_rows(panel).values()) + _AXIS
    if panel.kind == "ranks":
        legend = sum(len(_rank_label(panel, mark, width)) for mark in panel.marks) * _LINE
        return head + legend + _RANK_HEIGHT + 2 * _AXIS
    rows = sum(len(_row_lines(panel, mark, width)) * _LINE + _BAR for mark in panel.marks)
    return head + rows + _AXIS


def _overview_rows(panel: Panel) -> dict[str, float]:
    """Return the height of each score's rows: one line per file, or as many as its wrapped name takes."""
    rows: dict[str, float] = {}
    for mark in panel.marks:
        rows[mark.label] = rows.get(mark.label, 0.06) + _LINE
    for name in rows:
        lines = len(_wrapped(name, _LABELS - 0.1, _SIZES["name"]))
        rows[name] = max(rows[name], lines * _LINE + 0.06)
    return rows


# --------------------------------------------------------------------------- heading


def _legend(level: float) -> str:
    return (
        f"diamond: mean or share with its {level:.0%} interval · box: quartiles and median · line: smallest to largest"
    )


def _files(panels: Sequence[Panel]) -> dict[int, str]:
    """Return the names of the files by their number, as far as panels have them."""
    found: dict[int, str] = {}
    for panel in panels:
        if panel.kind != "overview":
            found.update({mark.file: mark.label for mark in panel.marks})
    return dict(sorted(found.items()))


def _heading_lines(panels: Sequence[Panel], width: float, level: float) -> list[tuple[str, str, str]]:
    """Return the lines of the heading, each with its size and colour; a colour only where it stands for a file."""
    files = _files(panels)
    lines = []
    for number, name in files.items():
        colour = COLOURS[number % len(COLOURS)] if len(files) > 1 else ""
        lines += [(line, "heading", colour) for line in _wrapped(name, width - 0.3, _SIZES["heading"], "bold")]
    lines += [(line, "small", "") for line in _wrapped(_legend(level), width, _SIZES["small"])]
    return lines


def _heading_height(panels: Sequence[Panel], width: float, level: float) -> float:
    return sum(_SIZES[size] / 50 for _, size, _ in _heading_lines(panels, width, level)) + 0.15


def _draw_heading(figure: Figure, panels: Sequence[Panel], width: float, level: float) -> None:
    top = _EDGE
    for text, size, colour in _heading_lines(panels, width, level):
        left = _EDGE
        if colour:
            _draw_swatch(figure, left, top + 0.03, 0.14, colour)
            left += 0.22
        _write(figure, left, top, text, _SIZES[size], weight="bold" if size == "heading" else "normal")
        top += _SIZES[size] / 50


# --------------------------------------------------------------------------- panels


def _write(
    figure: Figure,
    left: float,
    top: float,
    text: str,
    size: float,
    *,
    weight: str = "normal",
    behind: str | None = None,
) -> None:
    """Write a line at a place that is given in inches from the upper left corner.

    Args:
        figure: the figure.
        left: inches from the left.
        top: inches from the top.
        text: one line.
        size: in points.
        weight: ``normal`` or ``bold``.
        behind: colour of the background, for a text that crosses grid lines.
    """
    width, height = figure.get_size_inches()
    options: dict[str, Any] = {}
    if behind is not None:
        options["bbox"] = {"facecolor": behind, "edgecolor": "none", "pad": 0.6}
    figure.text(left / width, 1 - top / height, shown(text), size=size, weight=weight, va="top", ha="left", **options)


def _draw_swatch(figure: Figure, left: float, top: float, size: float, colour: str) -> None:
    """Draw the square of a file's colour; as a shape, because a text would have too little contrast."""
    from matplotlib.patches import Rectangle

    width, height = figure.get_size_inches()
    corner = (left / width, 1 - (top + size) / height)
    square = Rectangle(corner, size / width, size / height, color=colour, transform=figure.transFigure)
    figure.add_artist(square)


def _add_axes(figure: Figure, box: _Box) -> Axes:
    width, height = figure.get_size_inches()
    bottom = 1 - (box.top + box.height) / height
    return figure.add_axes((box.left / width, bottom, box.width / width, box.height / height))


def _draw_panel(figure: Figure, panel: Panel, box: _Box, ink: Ink) -> None:
    top = box.top
    for line in _wrapped(panel.title, box.width, _SIZES["title"], "bold"):
        _write(figure, box.left, top, line, _SIZES["title"], weight="bold")
        top += _LINE * 1.15
    if panel.subtitle:
        _write(figure, box.left, top, panel.subtitle, _SIZES["small"])
    top = box.top + _head_height(panel, box.width)
    rest = _Box(box.left, top, box.width, box.top + box.height - top)
    if panel.kind == "overview":
        _draw_overview(figure, panel, rest, ink)
    elif panel.kind == "ranks":
        _draw_ranks(figure, panel, rest, ink)
    else:
        _draw_rows(figure, panel, rest, ink)


def _draw_rows(figure: Figure, panel: Panel, box: _Box, ink: Ink) -> None:
    """Draw one box or bar per file, under its name and numbers."""
    rows = sum(len(_row_lines(panel, mark, box.width)) * _LINE + _BAR for mark in panel.marks)
    axes = _add_axes(figure, _Box(box.left, box.top, box.width, rows))
    # The axis counts inches from the top, as the texts do.
    axes.set_ylim(rows, 0)
    down = 0.0
    for mark in panel.marks:
        lines = _row_lines(panel, mark, box.width)
        for place, line in enumerate(lines):
            is_name = _names(panel) and place < len(lines) - 1
            size = _SIZES["name"] if is_name else _SIZES["small"]
            _write(figure, box.left, box.top + down + place * _LINE, line, size, behind=ink.paper)
        middle = down + len(lines) * _LINE + _BAR / 2
        if mark.spread is not None:
            colour = COLOURS[mark.file % len(COLOURS)]
            if panel.kind == "share":
                axes.barh(middle, mark.spread.mean, height=0.15, color=colour, edgecolor=ink.text, linewidth=0.8)
            else:
                _draw_box(axes, middle, mark.spread, colour, ink)
            _draw_mean(axes, middle, mark.spread, ink)
        down += len(lines) * _LINE + _BAR
    _finish_axis(axes, panel, ink)


def _draw_overview(figure: Figure, panel: Panel, box: _Box, ink: Ink) -> None:
    """Draw the means of all scores: names on the left, numbers on the right."""
    heights = _overview_rows(panel)
    rows = sum(heights.values())
    left, right = box.left + _LABELS, box.left + box.width - _NUMBERS
    axes = _add_axes(figure, _Box(left, box.top, right - left - 0.1, rows))
    axes.set_ylim(rows, 0)
    down = 0.0
    for name, height in heights.items():
        for place, line in enumerate(_wrapped(name, _LABELS - 0.1, _SIZES["name"])):
            _write(figure, box.left, box.top + down + 0.03 + place * _LINE, line, _SIZES["name"])
        marks = [mark for mark in panel.marks if mark.label == name]
        for place, mark in enumerate(marks):
            middle = down + 0.03 + (place + 0.5) * _LINE
            colour = COLOURS[mark.file % len(COLOURS)]
            _draw_point(axes, middle, mark, colour, ink)
            _write(figure, right, box.top + middle - 0.055, _overview_numbers(mark), _SIZES["small"])
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
    """Set the limits from 0 to the score's bound, or to the largest value, and draw the threshold."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

    low, high = _limits(panel)
    margin = (high - low) * 0.02
    axes.set_xlim(low - margin, high + margin)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=_SIZES["small"])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="x", color=ink.faint, linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.kind == "share":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    elif _LARGE <= max(abs(low), abs(high)) < _HUGE:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if panel.threshold is not None and low <= panel.threshold <= high:
        axes.axvline(panel.threshold, color=ink.text, linewidth=1, linestyle=(0, (4, 3)), zorder=1)


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


def _rank_label(panel: Panel, mark: Mark, width: float) -> list[str]:
    text = f"{mark.label}, {mark.numbers}" if _names(panel) else mark.numbers
    return _wrapped(text, width - 0.2, _SIZES["name"])


def _draw_ranks(figure: Figure, panel: Panel, box: _Box, ink: Ink) -> None:
    """Draw the share of turns by rank, files side by side."""
    from matplotlib.ticker import FuncFormatter

    top = box.top
    for mark in panel.marks:
        colour = COLOURS[mark.file % len(COLOURS)]
        _draw_swatch(figure, box.left, top + 0.02, 0.1, colour)
        for line in _rank_label(panel, mark, box.width):
            _write(figure, box.left + 0.18, top, line, _SIZES["name"])
            top += _LINE
    axes = _add_axes(figure, _Box(box.left + 0.35, top + 0.1, box.width - 0.35, _RANK_HEIGHT))
    thick = 0.8 / len(panel.marks)
    for place, mark in enumerate(panel.marks):
        where = [k - 0.4 + (place + 0.5) * thick for k in range(len(panel.bins))]
        colour = COLOURS[mark.file % len(COLOURS)]
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
    axes.tick_params(axis="both", labelsize=_SIZES["small"], length=0)
    axes.set_xticks(range(len(panel.bins)), panel.bins)
    axes.grid(axis="y", color=ink.faint, linewidth=0.6)
    axes.set_axisbelow(True)
