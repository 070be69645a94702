"""Plots of a report, without a display: the same numbers give the same SVG, byte for byte.

:func:`panels` says what is plotted, as data; :func:`draw` draws it with matplotlib. Sizes are computed in inches before
anything is drawn, so that no label can collide with another: long names wrap and are never cut.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from rageval_hooks.errors import requires
from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.report.model import Report, ScoreSummary
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.text.formatting import flat, format_share, short_value, shown, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Ink", "Mark", "Panel", "PlotKind", "colour_of", "draw", "panels", "to_png", "to_svg"]

PlotKind = Literal["all", "scores", "consistency"]

# Names of the measures of similarity in a report, and in the literature.
_MEASURES: Final = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "bertscore": "BERTScore"}

# Retrievers rarely return more; later ranks share a bar.
_MOST_RANKS = 10

# The colours of Okabe and Ito, which people with any kind of colour vision can tell apart.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")

# Inches. A panel looks the same among three others and among thirty: the figure grows.
_WIDTH, _GAP, _EDGE, _OVERVIEW_WIDTH = 4.4, 0.45, 0.25, 7.5
_LINE, _BAR, _AXIS, _RANK_HEIGHT = 0.165, 0.34, 0.32, 1.7
_LABELS, _NUMBERS = 2.0, 1.75  # of the overview, on the left and right of its axis
_MOST_COLUMNS = 3

# Sizes of texts in points.
_HEADING, _TITLE, _NAME, _SMALL = 12.0, 10.0, 8.5, 7.5


# --------------------------------------------------------------------------- what is plotted


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One row of a panel.

    Attributes:
        label: the file, or in the overview the score.
        file: position of the file, which chooses the colour.
        spread: the numbers; None without values.
        as_share: True for a yes-or-no score, which is written and drawn as a share.
        shares: per bin of a rank panel, the share of turns.
        count: number of turns of a rank panel.
    """

    label: str
    file: int
    spread: Spread | None = None
    as_share: bool = False
    shares: tuple[float, ...] = ()
    count: int = 0

    @property
    def numbers(self) -> str:
        """The numbers of the row in words."""
        # A histogram shows its numbers at the bars.
        if self.shares:
            return f"n = {self.count}"
        if self.spread is None:
            return "no values"
        # The median of zeros and ones is 0 or 1, and says less than the share.
        median = "" if self.as_share else f", median {short_value(self.spread.median)}"
        return f"{'share' if self.as_share else 'mean'} {self.mean}{median}, n = {self.spread.count}"

    @property
    def mean(self) -> str:
        """The mean with its interval."""
        if self.spread is None:
            return ""
        show = format_share if self.as_share else short_value
        interval = self.spread.interval
        bounds = "" if interval is None else f" [{show(interval.low)}, {show(interval.high)}]"
        return f"{show(self.spread.mean)}{bounds}"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot.

    Attributes:
        title: what it shows.
        kind: ``overview`` for means side by side, ``box`` for distributions, ``share`` for yes or no, ``ranks`` for
            a histogram.
        direction: whether higher or lower is better; None where that does not apply.
        low: where the axis starts.
        high: where it ends; None for the data's own end.
        unit: of the values.
        marks: the rows.
        bins: names of the bins of a rank panel.
        threshold: a value to mark; None for none.
        files: number and name of each file, where the rows have other labels.
    """

    title: str
    kind: Literal["overview", "box", "share", "ranks"]
    direction: Direction | None = None
    low: float = 0.0
    high: float | None = None
    unit: str = ""
    marks: tuple[Mark, ...] = ()
    bins: tuple[str, ...] = ()
    threshold: float | None = None
    files: tuple[tuple[int, str], ...] = ()

    @property
    def subtitle(self) -> str:
        """The direction, the unit and the threshold, for the reader."""
        parts = [f"{self.direction} is better"] if self.direction else []
        if self.unit:
            parts.append(self.unit)
        if self.threshold is not None:
            limit = "at most" if self.direction == "lower" else "at least"
            parts.append(f"dashed: {limit} {self.threshold:g}")
        return " · ".join(parts)

    @property
    def description(self) -> str:
        """The panel in words, for people who do not see it."""
        rows = []
        for mark in self.marks:
            bars = [f"{name} {format_share(share)}" for name, share in zip(self.bins, mark.shares, strict=False)]
            ranks = f", rank {', '.join(bars)}" if bars else ""
            rows.append(f"{mark.label}: {mark.numbers}{ranks}")
        title = f"{self.title} ({self.subtitle})" if self.subtitle else self.title
        return f"{title}: {'; '.join(rows)}"


def panels(
    report: Report, kind: PlotKind = "all", *, similarity: bool = True, bounds: Mapping[str, float] | None = None
) -> list[Panel]:
    """Return the plots of a report, the overview first.

    Args:
        report: of one or several files.
        kind: ``scores`` for scores and ranks, ``consistency`` for the variation of each score between the answers to
            one question, ``all`` for both.
        similarity: also plot how similar the texts of repeated answers are.
        bounds: values to mark, by score; by default the thresholds that the scores themselves define.
    """
    found: list[Panel] = []
    if kind != "consistency":
        found += _score_panels(report, bounds or {})
        found += _rank_panels(report)
    if kind != "scores":
        found += _consistency_panels(report, similarity=similarity)
    return found


def _by_score(report: Report) -> dict[str, list[ScoreSummary | None]]:
    """Return each score with its row in every file, in the order of the files: None for a file without it."""
    names = dict.fromkeys(row.name for file in report.files for row in file.scores)
    return {name: [file.score(name) for file in report.files] for name in names}


def _score_panels(report: Report, bounds: Mapping[str, float]) -> Iterator[Panel]:
    scores = {
        name: [(place, row) for place, row in enumerate(rows) if row is not None and row.spread is not None]
        for name, rows in _by_score(report).items()
    }
    overview = []
    for name, rows in scores.items():
        for place, row in rows if _is_share_of_one(rows) else ():
            label = f"{flat(name)} ↓" if row.direction == "lower" else flat(name)
            overview.append(Mark(label=label, file=place, spread=row.spread, as_share=row.binary))
    # One mark alone would repeat the plot of its score.
    has_overview = len(overview) > 1
    if has_overview:
        files = tuple((place, flat(file.name)) for place, file in enumerate(report.files))
        yield Panel(title="overview", kind="overview", high=1.0, marks=tuple(overview), files=files)
    for name, rows in scores.items():
        # A single value has no distribution: the overview shows all of it.
        in_overview = has_overview and _is_share_of_one(rows) and all(row.count == 1 for _, row in rows)
        if not rows or in_overview:
            continue
        spreads = {place: row.spread for place, row in rows}
        found = [row for _, row in rows]
        is_share = all(row.binary for row in found)
        high = max(math.inf if row.high is None else row.high for row in found)
        marks = [
            Mark(label=file.name, file=place, spread=spreads.get(place), as_share=is_share)
            for place, file in enumerate(report.files)
        ]
        yield Panel(
            title=flat(name),
            kind="share" if is_share else "box",
            direction=found[0].direction,
            # Axes start at 0, so that a small difference does not look like a large one.
            low=min(found[0].low, 0.0),
            high=high if math.isfinite(high) else None,
            unit=found[0].unit,
            marks=tuple(marks),
            threshold=bounds.get(name, found[0].threshold),
        )


def _is_share_of_one(rows: Sequence[tuple[int, ScoreSummary]]) -> bool:
    # Other scores, such as costs, have no place on the overview's axis from 0 to 1.
    return all(row.low == 0 and row.high == 1 for _, row in rows)


def _rank_panels(report: Report) -> Iterator[Panel]:
    """Yield the share of turns by rank of the target passage, if any rank is known."""
    tables = {place: file.ranks for place, file in enumerate(report.files) if file.ranks is not None}
    if not tables:
        return
    last = max(max(ranks.counts, default=1) for ranks in tables.values())
    named = range(1, min(last, _MOST_RANKS) + 1)
    marks = []
    for place, ranks in tables.items():
        counts = [ranks.counts.get(rank, 0) for rank in named]
        if last > _MOST_RANKS:
            counts.append(ranks.count - ranks.missed - sum(counts))
        shares = tuple(count / ranks.count for count in (*counts, ranks.missed))
        marks.append(Mark(label=report.files[place].name, file=place, shares=shares, count=ranks.count))
    beyond = [f">{_MOST_RANKS}"] if last > _MOST_RANKS else []
    bins = (*map(str, named), *beyond, "none")
    yield Panel(title="rank of the target passage", kind="ranks", high=1.0, marks=tuple(marks), bins=bins)


def _consistency_panels(report: Report, *, similarity: bool) -> Iterator[Panel]:
    for name, rows in _by_score(report).items():
        repeats = [row.repeats.coefficients if row and row.repeats else None for row in rows]
        yield from _repeat_panel(report, f"{flat(name)}: variation over repeats", repeats, "lower", unit="CV")
    for name, title in _MEASURES.items() if similarity else ():
        spreads = [next((item.spread for item in file.similarity if item.name == name), None) for file in report.files]
        # A rescaled BERTScore may be below 0, and a formula cannot bound it.
        high = None if name == "bertscore" else 1.0
        yield from _repeat_panel(report, f"{title} between repeated answers", spreads, "higher", high=high)


def _repeat_panel(
    report: Report,
    title: str,
    spreads: Sequence[Spread | None],
    direction: Direction,
    *,
    high: float | None = None,
    unit: str = "",
) -> Iterator[Panel]:
    if any(spreads):
        pairs = zip(report.files, spreads, strict=True)
        marks = tuple(Mark(label=file.name, file=place, spread=found) for place, (file, found) in enumerate(pairs))
        yield Panel(title=title, kind="box", direction=direction, high=high, unit=unit, marks=marks)


# --------------------------------------------------------------------------- figures


@dataclass(frozen=True)
class Ink:
    """The colours of everything that is not data."""

    text: str = "#1a1a1a"
    faint: str = "#d0d0d0"
    paper: str = "#ffffff"


def colour_of(file: int) -> str:
    """Return the colour of a file by its number; the eighth file has the first colour again."""
    return _COLOURS[file % len(_COLOURS)]


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
    wide = [panel for panel in panels if panel.kind == "overview"]
    small = [panel for panel in panels if panel.kind != "overview"]
    columns = max(1, min(_MOST_COLUMNS, len(small)))
    width = max(columns * _WIDTH + (columns - 1) * _GAP, _OVERVIEW_WIDTH if wide else 0)
    lines = [[panel] for panel in wide]
    lines += [small[start : start + columns] for start in range(0, len(small), columns)]
    head = _heading(panels, width, level) if heading else []
    top = sum(size / 50 for _, size, _ in head) + 0.15 if heading else 0.0
    heights = [max(_height(panel, width if panel in wide else _WIDTH) for panel in line) for line in lines]
    with _style(ink):
        from matplotlib.figure import Figure

        # The figure is created with its final size: matplotlib places everything in shares of it.
        total = top + sum(heights) + _GAP * (len(heights) - 1)
        sketch = _Sketch(Figure(figsize=(width + 2 * _EDGE, total + 2 * _EDGE)), ink)
        down = _EDGE
        for text, size, colour in head:
            sketch.write(_EDGE + (0.22 if colour else 0), down, text, size, bold=size == _HEADING, swatch=colour)
            down += size / 50
        down = _EDGE + top
        for line, height in zip(lines, heights, strict=True):
            for place, panel in enumerate(line):
                left = _EDGE + place * (_WIDTH + _GAP)
                _draw_panel(sketch, panel, left, down, width if panel in wide else _WIDTH)
            down += height + _GAP
    return sketch.figure


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
    with requires("matplotlib", "offline", "a plot"):
        import matplotlib as mpl
    style: Any = {
        "svg.hashsalt": "rageval-hooks",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "text.parse_math": False,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink.text),
    }
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names of files in any script
        yield


def _heading(panels: Sequence[Panel], width: float, level: float) -> list[tuple[str, float, str]]:
    """Return the lines of the heading, each with its size, and the colour of the file that it names."""
    files: dict[int, str] = {}
    for panel in panels:
        files.update(panel.files or {mark.file: mark.label for mark in panel.marks})
    lines = []
    for number, name in sorted(files.items()):
        colour = colour_of(number) if len(files) > 1 else ""
        lines += [(line, _HEADING, colour) for line in _wrapped(name, width - 0.3, _HEADING)]
    legend = f"diamond: mean or share with its {level:.0%} interval · box: quartiles and median"
    return lines + [(line, _SMALL, "") for line in _wrapped(f"{legend} · line: smallest to largest", width, _SMALL)]


class _Sketch:
    """Texts and axes at places that are given in inches from the upper left corner of a figure."""

    def __init__(self, figure: Figure, ink: Ink) -> None:
        self.figure = figure
        self.ink = ink
        self._width, self._height = figure.get_size_inches()

    def write(
        self,
        left: float,
        top: float,
        text: str,
        size: float,
        *,
        bold: bool = False,
        swatch: str = "",
        box: bool = False,
    ) -> None:
        """Write a line, perhaps with a square of a file's colour before it, or with a box to cross grid lines."""
        options: dict[str, Any] = {"weight": "bold" if bold else "normal", "va": "top", "ha": "left"}
        if box:
            options["bbox"] = {"facecolor": self.ink.paper, "edgecolor": "none", "pad": 0.6}
        if swatch:
            from matplotlib.patches import Rectangle

            side = size / 85
            corner = ((left - 0.22) / self._width, 1 - (top + 0.03 + side) / self._height)
            square = Rectangle(corner, side / self._width, side / self._height, color=swatch)
            square.set_transform(self.figure.transFigure)
            self.figure.add_artist(square)
        self.figure.text(left / self._width, 1 - top / self._height, shown(text), size=size, **options)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes that fill a rectangle, and that count inches from the top as the texts do."""
        bottom = 1 - (top + height) / self._height
        axes = self.figure.add_axes((left / self._width, bottom, width / self._width, height / self._height))
        axes.set_ylim(height, 0)
        axes.set_axisbelow(True)
        return axes


# The parts of a text at whose ends it may be broken: "my_", "metric.", "f1", " ".
_PARTS = re.compile(r"\s+|[^\s_./-]*[_./-]|[^\s_./-]+")


def _wrapped(text: str, width: float, size: float) -> list[str]:
    """Return a text in lines that fit into a width in inches, broken at spaces and where parts of a name end."""
    # A character is about two thirds of an em wide, and a Chinese one takes two places.
    most = max(1, int(width * 72 / (size * 0.66)))
    lines = [""]
    for part in _PARTS.findall(flat(text)):
        # A part that is too long by itself is broken between any two characters.
        for piece in [part] if width_of(part) <= most else part:
            if lines[-1] and width_of(lines[-1] + piece.rstrip()) > most:
                lines[-1] = lines[-1].rstrip()
                lines.append("")
            lines[-1] += piece if lines[-1] else piece.lstrip()
    return lines


# --------------------------------------------------------------------------- one panel


def _title_lines(panel: Panel, width: float) -> list[tuple[str, float]]:
    lines = [(line, _TITLE) for line in _wrapped(panel.title, width, _TITLE)]
    return [*lines, (panel.subtitle, _SMALL)] if panel.subtitle else lines


def _row_lines(panel: Panel, mark: Mark, width: float) -> list[tuple[str, float]]:
    """Return the lines above a box or bar: the file's name, unless the heading has it, and the numbers."""
    names = _wrapped(mark.label, width, _NAME) if len(panel.marks) > 1 else []
    return [*((line, _NAME) for line in names), *((line, _SMALL) for line in _wrapped(mark.numbers, width, _SMALL))]


def _rank_lines(panel: Panel, mark: Mark, width: float) -> list[str]:
    text = f"{mark.label}, {mark.numbers}" if len(panel.marks) > 1 else mark.numbers
    return _wrapped(text, width - 0.25, _NAME)


def _overview_heights(panel: Panel) -> dict[str, float]:
    """Return the height of each score's rows: one line per file, or as many as its wrapped name takes."""
    files: dict[str, int] = {}
    for mark in panel.marks:
        files[mark.label] = files.get(mark.label, 0) + 1
    return {n: max(k, len(_wrapped(n, _LABELS - 0.1, _NAME))) * _LINE + 0.06 for n, k in files.items()}


def _height(panel: Panel, width: float) -> float:
    head = len(_title_lines(panel, width)) * _LINE * 1.15 + 0.05
    if panel.kind == "overview":
        return head + sum(_overview_heights(panel).values()) + _AXIS
    if panel.kind == "ranks":
        legend = sum(len(_rank_lines(panel, mark, width)) for mark in panel.marks) * _LINE
        return head + legend + _RANK_HEIGHT + 2 * _AXIS
    return head + sum(len(_row_lines(panel, mark, width)) * _LINE + _BAR for mark in panel.marks) + _AXIS


def _draw_panel(sketch: _Sketch, panel: Panel, left: float, top: float, width: float) -> None:
    for line, size in _title_lines(panel, width):
        sketch.write(left, top, line, size, bold=size == _TITLE)
        top += _LINE * 1.15
    top += 0.05
    if panel.kind == "overview":
        _draw_overview(sketch, panel, left, top, width)
    elif panel.kind == "ranks":
        _draw_ranks(sketch, panel, left, top, width)
    else:
        _draw_rows(sketch, panel, left, top, width)


def _draw_rows(sketch: _Sketch, panel: Panel, left: float, top: float, width: float) -> None:
    """Draw one box or bar per file, under its name and numbers."""
    ink = sketch.ink
    rows = [(mark, _row_lines(panel, mark, width)) for mark in panel.marks]
    axes = sketch.axes(left, top, width, sum(len(lines) * _LINE + _BAR for _, lines in rows))
    low, high = _finish_axis(axes, panel, ink)
    down = 0.0
    for mark, lines in rows:
        for line, size in lines:
            sketch.write(left, top + down, line, size, box=True)
            down += _LINE
        y = down + _BAR / 2
        down += _BAR
        if panel.threshold is not None and low <= panel.threshold <= high:
            ends = [y - _BAR / 2, y + _BAR / 2]
            axes.plot([panel.threshold] * 2, ends, color=ink.text, linewidth=1.2, linestyle=(0, (4, 2)), zorder=6)
        found, style = mark.spread, {"color": colour_of(mark.file), "edgecolor": ink.text}
        if found is None:
            continue
        if panel.kind == "share":
            axes.barh(y, found.mean, height=0.15, linewidth=0.8, **style)  # type: ignore[arg-type]
        else:
            _line(axes, [found.minimum, found.maximum], [y, y], ink.text, 1, zorder=2)
            box = found.upper_quartile - found.lower_quartile
            axes.barh(y, box, left=found.lower_quartile, height=0.18, linewidth=1, zorder=3, **style)  # type: ignore[arg-type]
            # Median and interval have a light edge, so that they show on a dark box.
            _line(axes, [found.median] * 2, [y - 0.09, y + 0.09], ink.paper, 4.4, zorder=4)
            _line(axes, [found.median] * 2, [y - 0.09, y + 0.09], ink.text, 2.0, zorder=4)
        if found.interval is not None:
            ends = [found.interval.low, found.interval.high]
            _line(axes, ends, [y, y], ink.paper, 4.0, zorder=5)
            _line(axes, ends, [y, y], ink.text, 1.8, zorder=5)
        axes.plot([found.mean], [y], "D", markersize=5.5, mfc=ink.paper, mec=ink.text, zorder=7)


def _draw_overview(sketch: _Sketch, panel: Panel, left: float, top: float, width: float) -> None:
    """Draw the means of all scores: names on the left, numbers on the right."""
    heights = _overview_heights(panel)
    right = left + width - _NUMBERS
    axes = sketch.axes(left + _LABELS, top, width - _LABELS - _NUMBERS - 0.1, sum(heights.values()))
    _finish_axis(axes, panel, sketch.ink)
    down = 0.0
    for name, height in heights.items():
        for place, line in enumerate(_wrapped(name, _LABELS - 0.1, _NAME)):
            sketch.write(left, top + down + 0.03 + place * _LINE, line, _NAME)
        marks = [mark for mark in panel.marks if mark.label == name]
        for place, mark in enumerate(marks):
            y, colour, found = down + 0.03 + (place + 0.5) * _LINE, colour_of(mark.file), mark.spread
            if found is not None:
                if found.interval is not None:
                    _line(axes, [found.interval.low, found.interval.high], [y, y], colour, 2.2, zorder=3)
                axes.plot([found.mean], [y], "D", markersize=5, mfc=colour, mec=sketch.ink.text, zorder=4)
                sketch.write(right, top + y - 0.055, mark.mean, _SMALL)
        down += height
        axes.axhline(down, color=sketch.ink.faint, linewidth=0.5)


def _draw_ranks(sketch: _Sketch, panel: Panel, left: float, top: float, width: float) -> None:
    """Draw the share of turns by rank, files side by side."""
    from matplotlib.ticker import PercentFormatter

    ink, alone = sketch.ink, len(panel.marks) == 1
    for mark in panel.marks:
        for place, line in enumerate(_rank_lines(panel, mark, width)):
            sketch.write(left + 0.22, top, line, _NAME, swatch=colour_of(mark.file) if place == 0 else "")
            top += _LINE
    axes = sketch.axes(left + 0.35, top + 0.1, width - 0.35, _RANK_HEIGHT)
    thick = 0.8 / len(panel.marks)
    for place, mark in enumerate(panel.marks):
        where = [k - 0.4 + (place + 0.5) * thick for k in range(len(panel.bins))]
        style = {"color": colour_of(mark.file), "edgecolor": ink.text, "linewidth": 0.6}
        axes.bar(where, mark.shares, width=thick * 0.92, zorder=3, **style)  # type: ignore[arg-type]
        # With several files the bars are too narrow for numbers.
        for x, share in zip(where, mark.shares, strict=True) if alone else ():
            text = format_share(share).replace(".0%", "%")
            axes.text(x, share + 0.02, text, ha="center", va="bottom", size=6, color=ink.text)
    # Room for the number above a bar of 100%.
    axes.set_ylim(0, 1.1 if alone else 1.0)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.tick_params(axis="both", labelsize=_SMALL, length=0)
    axes.set_xticks(range(len(panel.bins)), panel.bins)
    axes.grid(axis="y", color=ink.faint, linewidth=0.6)


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, width: float, *, zorder: int) -> None:
    axes.plot(x, y, color=colour, linewidth=width, solid_capstyle="butt", zorder=zorder)


def _finish_axis(axes: Axes, panel: Panel, ink: Ink) -> tuple[float, float]:
    """Set the limits from 0 to the score's bound, or to the largest value, and return them."""
    from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

    spreads = [mark.spread for mark in panel.marks if mark.spread is not None]
    # Values beyond a stated bound are shown all the same: hiding them would hide a faulty metric.
    low = min([panel.low, *(found.minimum for found in spreads)])
    high = max([panel.high or 0.0, *(found.maximum for found in spreads)])
    # All values are 0, or so large that their difference is infinite: an axis needs a length.
    if not math.isfinite(high - low) or high <= low:
        high = low + 1.0
    margin = (high - low) * 0.02
    axes.set_xlim(low - margin, high + margin)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=_SMALL)
    # Round steps only: 0.8 and 2.4 are no places where one looks for a count.
    numbers = [number for found in spreads for number in (found.minimum, found.median, found.maximum)]
    is_whole = high - low > 2 and all(number.is_integer() for number in numbers)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=is_whole))
    axes.grid(axis="x", color=ink.faint, linewidth=0.6)
    largest = max(abs(low), abs(high))
    if panel.kind == "share":
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    # Such numbers have a unit on the axis ("200k"), and still larger ones a power of ten.
    elif 1e5 <= largest < 1e15:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return low, high
