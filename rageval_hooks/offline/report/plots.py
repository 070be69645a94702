"""Plots of a report by matplotlib, without a display: the same numbers give the same SVG, byte for byte.

:func:`panels` says what is plotted, as data; :func:`draw` draws it. Every panel has one row per mark. The figure grows
with the number of panels and with the lines of their labels: long names wrap and are never cut.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.cells import cell_len

from rageval_hooks.errors import requires
from rageval_hooks.offline.report.build import MAX_RANKS, FileReport, Report, ScoreSummary
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.score import VERDICT
from rageval_hooks.text.formatting import flat, format_share, short_value

with requires("matplotlib", "offline", "a plot"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import EngFormatter, PercentFormatter


# The colours of texts, grid lines and the background. A page replaces them by its own.
INK, FAINT, PAPER = "#1a1a1b", "#d0d0d1", "#fffffe"

# The colours of Okabe and Ito, which people with any kind of colour vision can tell apart.
_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")

_VERDICT_COLOURS: Final = {
    "good": "#009E73",
    "doubtful": "#F0E442",
    "bad": "#D55E00",
    "declined": "#56B4E9",
    "not_evaluable": "#B0B0B1",
}

# On bars of any colour, also on a dark page.
_BAR_TEXT: Final = "#000001"

# Segments of a bar that are narrower have no room for their name.
_MIN_NAMED_SHARE = 0.12

# Names of the measures of similarity in a report, and in the literature.
_MEASURES: Final = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "bertscore": "BERTScore"}

_MAX_COLUMNS = 3

# Inches: of a panel, and of a line of text.
_WIDTH, _LINE = 5.6, 0.17

# Columns of a label, in which a Chinese character takes two.
_LABEL = 34

# The hash in the name of a clip path: 'id="p2a136c9808"' or 'url(#p2a136c9808)'.
_CLIP = re.compile(r'(?<=id="p|rl\(#p)[0-9a-f]{10}(?=["\)])')

_STYLE: Final[Any] = {
    "svg.hashsalt": "rageval-hooks",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "grid.color": FAINT,
    "text.parse_math": False,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), PAPER),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


# --------------------------------------------------------------------------- what is plotted


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One row of a panel.

    Attributes:
        label: the file, or in the overview the score, or the rank.
        file: position of the file, which chooses the colour.
        mean: where the diamond is, or how long the bar is; None without values.
        spread: the interval and the quartiles; None for a rank.
        numbers: the numbers in words, in one line or two.
        parts: the verdicts with their shares, which are one bar.
    """

    label: str
    file: int
    mean: float | None = None
    spread: Spread | None = None
    numbers: tuple[str, ...] = ("no values",)
    parts: tuple[tuple[str, float], ...] = ()


def _mark(label: str, file: int, spread: Spread | None, *, as_share: bool = False, is_brief: bool = False) -> Mark:
    if spread is None:
        return Mark(label=label, file=file)
    show = format_share if as_share else short_value
    interval = spread.interval
    mean = show(spread.mean) + ("" if interval is None else f" [{show(interval.low)}, {show(interval.high)}]")
    # The median of zeros and ones is 0 or 1, and says less than the share.
    median = "" if as_share else f"median {short_value(spread.median)}, "
    numbers = (mean,) if is_brief else (f"{'share' if as_share else 'mean'} {mean}", f"{median}n = {spread.count}")
    return Mark(label=label, file=file, mean=spread.mean, spread=spread, numbers=numbers)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot.

    Attributes:
        title: what it shows.
        kind: ``overview`` for means side by side, ``box`` for distributions, ``share`` for bars of shares,
            ``stack`` for bars of several shares.
        subtitle: the direction, the unit and the threshold, for the reader.
        low: where the axis starts.
        high: where it ends; None for the data's own end.
        marks: the rows.
        threshold: a value to mark; None for none.
    """

    title: str
    kind: Literal["overview", "box", "share", "stack"]
    subtitle: str = ""
    low: float = 0.0
    high: float | None = None
    marks: tuple[Mark, ...] = ()
    threshold: float | None = None

    @property
    def description(self) -> str:
        """The panel in words, for people who do not see it."""
        title = f"{self.title} ({self.subtitle})" if self.subtitle else self.title
        rows = [f"{mark.label}: {', '.join(mark.numbers)}" for mark in self.marks]
        return f"{title}: {'; '.join(rows)}"

    def labels(self) -> list[str]:
        """Return what is left of each row: its name, unless the row above has it or there is only one, and numbers."""
        found = []
        above = self.marks[0].label if len(self.marks) == 1 else None
        for mark in self.marks:
            names = [_wrapped(mark.label)] if mark.label != above else []
            found.append("\n".join([*names, *mark.numbers]))
            above = mark.label
        return found


def panels(
    report: Report, kind: str = "all", *, similarity: bool = True, bounds: Mapping[str, float] | None = None
) -> list[Panel]:
    """Return the plots of a report, the overview first.

    Args:
        report: of one or several files.
        kind: ``scores`` for scores and ranks, ``consistency`` for the variation of each score between the answers to
            one question, ``all`` for both.
        similarity: also plot how similar the texts of repeated answers are.
        bounds: values to mark, by score; by default the thresholds that the scores themselves define.
    """
    # Each score with its row in every file, in the order of the files: None for a file without it.
    names = dict.fromkeys(row.name for file in report.files for row in file.scores)
    scores = {name: [file.score(name) for file in report.files] for name in names}
    found: list[Panel] = []
    if kind != "consistency":
        found += _score_panels(report, scores, bounds or {})
        found += _rank_panels(report)
    if kind == "scores":
        return found
    boxes: list[tuple[str, str, float | None, list[Spread | None]]] = []
    for name, rows in scores.items():
        coefficients = [row.repeats.coefficients if row and row.repeats else None for row in rows]
        boxes.append((f"{flat(name)}: variation over repeats", "lower is better · CV", None, coefficients))
    for name, title in _MEASURES.items() if similarity else ():
        spreads = [next((x.spread for x in file.similarity if x.name == name), None) for file in report.files]
        boxes.append((f"{title} between repeated answers", "higher is better", 1.0, spreads))
    for title, subtitle, high, spreads in boxes:
        if any(spreads):
            marks = [_mark(report.files[place].name, place, spread) for place, spread in enumerate(spreads)]
            found.append(Panel(title=title, kind="box", subtitle=subtitle, high=high, marks=tuple(marks)))
    return found


def _score_panels(
    report: Report, scores: Mapping[str, Sequence[ScoreSummary | None]], bounds: Mapping[str, float]
) -> Iterator[Panel]:
    # Other scores, such as costs, have no place on the overview's axis from 0 to 1. The files of a score follow each
    # other, in their colours, under one name.
    overview = tuple(
        _mark(row.shown_name, place, row.spread, as_share=row.binary, is_brief=True)
        for name, rows in scores.items()
        for place, row in enumerate(rows)
        if row and row.spread and row.low == 0 and row.high == 1 and name != VERDICT
    )
    # One mark alone would repeat the plot of its score.
    if len(overview) > 1:
        yield Panel(title="overview", kind="overview", high=1.0, marks=overview)
    for name, rows in scores.items():
        found = [row for row in rows if row and row.spread]
        if name == VERDICT:
            marks = tuple(_verdicts(place, file) for place, file in enumerate(report.files))
            yield Panel(title=VERDICT, kind="stack", high=1.0, marks=marks)
            continue
        if not found:
            continue
        first = found[0]
        is_share = all(row.binary for row in found)
        threshold = bounds.get(name, first.threshold)
        parts = [f"{first.direction} is better", first.unit]
        if threshold is not None:
            parts.append(f"dashed: at {'most' if first.direction == 'lower' else 'least'} {threshold:g}")
        yield Panel(
            title=flat(name),
            kind="share" if is_share else "box",
            subtitle=" · ".join(filter(None, parts)),
            # Axes start at 0, so that a small difference does not look like a large one.
            low=min(first.low, 0.0),
            high=None if any(row.high is None for row in found) else max(row.high or 0.0 for row in found),
            marks=tuple(
                _mark(file.name, place, row.spread if row else None, as_share=is_share)
                for place, (file, row) in enumerate(zip(report.files, rows, strict=True))
            ),
            threshold=threshold,
        )


def _verdicts(place: int, file: FileReport) -> Mark:
    """Return the verdicts of a file as one bar."""
    counts = {label.replace("_", " "): (label, count) for label, count in file.verdicts.items() if count}
    total = sum(file.verdicts.values())
    parts = tuple((label, count / total) for label, count in counts.values())
    numbers = ", ".join(f"{count} {name} ({count / total:.0%})" for name, (_, count) in counts.items())
    return Mark(label=file.name, file=place, numbers=(_wrapped(numbers),) if numbers else ("no values",), parts=parts)


def _rank_panels(report: Report) -> Iterator[Panel]:
    """Yield the share of turns by rank of the target passage, if any rank is known; files side by side."""
    tables = {place: file.ranks for place, file in enumerate(report.files) if file.ranks is not None}
    if not tables:
        return
    last = min(MAX_RANKS, max(max(ranks.counts, default=1) for ranks in tables.values()))
    rows = {place: ranks.rows(last) for place, ranks in tables.items()}
    marks = [
        Mark(label=label, file=place, mean=share, numbers=(format_share(share),))
        for label in max(rows.values(), key=len)
        for place, found in rows.items()
        for share in [found.get(label, 0) / tables[place].count]
    ]
    counts = ", ".join(f"n = {ranks.count}" for ranks in tables.values())
    yield Panel(title="rank of the target passage", kind="share", subtitle=counts, high=1.0, marks=tuple(marks))


# --------------------------------------------------------------------------- figures


def colour_of(file: int) -> str:
    """Return the colour of a file by its number; the eighth file has the first colour again."""
    return _COLOURS[file % len(_COLOURS)]


def draw(panels: Sequence[Panel], heading: str = "", files: Sequence[str] = ()) -> Figure:
    """Draw panels into one figure.

    Args:
        panels: at least one.
        heading: a line above the legend.
        files: names for the legend of the colours; no legend without them.
    """
    # The overview has many rows, and a line for itself.
    small = [panel for panel in panels if panel.kind != "overview"]
    columns = max(1, min(_MAX_COLUMNS, len(small)))
    lines = [[panel] for panel in panels if panel.kind == "overview"]
    lines += [small[start : start + columns] for start in range(0, len(small), columns)]
    heights = [max((sum(map(_row_height, panel.labels())) + 5) * _LINE for panel in line) for line in lines]
    legend = [_wrapped(name, 70) for name in files]
    top = sum(line.count("\n") + 1 for line in (heading, *legend) if line) * 1.7 * _LINE
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(max(2, columns) * _WIDTH, top + sum(heights)), layout="constrained")
        grid = figure.add_gridspec(len(lines), columns, height_ratios=heights)
        for row, line in enumerate(lines):
            for column, panel in enumerate(line):
                place = grid[row, :] if panel.kind == "overview" else grid[row, column]
                _draw_panel(figure.add_subplot(place), panel)
        if files:
            patches = [Patch(color=colour_of(place), label=name) for place, name in enumerate(legend)]
            options: Any = {"loc": "outside upper left", "frameon": False, "fontsize": 10, "alignment": "left"}
            figure.legend(handles=patches, title=heading, title_fontsize=9, **options)
    return figure


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG."""
    svg = _saved(figure, format="svg", metadata={"Date": None}).decode()
    # matplotlib names clip paths by their exact size, whose last digit differs from run to run.
    numbers = {name: f"{number}" for number, name in enumerate(dict.fromkeys(_CLIP.findall(svg)))}
    return _CLIP.sub(lambda found: numbers[found[0]], svg)


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG, 150 dots per inch."""
    return _saved(figure, format="png", dpi=150, metadata={"Software": None})


def _saved(figure: Figure, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names of files in any script
        figure.savefig(buffer, **options)
    return buffer.getvalue()


def _wrapped(text: str, width: int = _LABEL) -> str:
    # A Chinese character takes two columns, and textwrap counts characters.
    return textwrap.fill(text, width * len(text) // max(1, cell_len(text)))


def _row_height(label: str) -> float:
    """Return the height of a row in lines of text: that of its label, with a gap."""
    return label.count("\n") + 1.7


def _draw_panel(axes: Axes, panel: Panel) -> None:
    axes.set_title("\n".join(_wrapped(line, 60) for line in (panel.title, panel.subtitle) if line), size=9)
    axes.tick_params(length=0)
    low, high = _set_limits(axes, panel)
    labels, places = panel.labels(), []
    # A light edge lets a line show on a dark box.
    edge = withStroke(linewidth=4.2, foreground=PAPER)
    line: Any = {"color": INK, "linewidth": 1.9, "solid_capstyle": "butt", "zorder": 5, "path_effects": [edge]}
    down = 0.0
    for mark, label in zip(panel.marks, labels, strict=True):
        y = down + _row_height(label) / 2
        down += _row_height(label)
        places.append(y)
        left = 0.0
        for name, share in mark.parts:
            axes.barh(y, share, left=left, color=_VERDICT_COLOURS[name], edgecolor=INK, linewidth=0.8, height=1.0)
            if share >= _MIN_NAMED_SHARE:
                axes.text(left + share / 2, y, name.replace("_", " "), ha="center", va="center", color=_BAR_TEXT)
            left += share
        if mark.mean is None:
            continue
        found, colour = mark.spread, colour_of(mark.file)
        bar: Any = {"color": colour, "edgecolor": INK, "linewidth": 0.8, "height": 1.0}
        if panel.kind == "share":
            axes.barh(y, mark.mean, **bar)
        if found is None:
            continue
        if panel.kind == "box":
            axes.hlines(y, found.minimum, found.maximum, color=INK, linewidth=1)
            axes.barh(y, found.upper_quartile - found.lower_quartile, left=found.lower_quartile, zorder=3, **bar)
            axes.plot([found.median] * 2, [y - 0.5, y + 0.5], **line)
        ends = (found.interval.low, found.interval.high) if found.interval else (found.mean, found.mean)
        diamond = PAPER
        if panel.kind == "overview":
            axes.hlines(y, *ends, color=colour, linewidth=2.2)
            diamond = colour
        else:
            axes.plot(ends, [y, y], **line)
        axes.plot(found.mean, y, "D", markersize=5, mfc=diamond, mec=INK, zorder=7)
    if panel.threshold is not None and low <= panel.threshold <= high:
        axes.axvline(panel.threshold, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=6)
    axes.set_ylim(down, 0)
    axes.set_yticks(places, labels)
    axes.grid(axis="x", linewidth=0.6)


def _set_limits(axes: Axes, panel: Panel) -> tuple[float, float]:
    """Set the limits from 0 to the score's bound, or to the largest value, and return them."""
    spreads = [mark.spread for mark in panel.marks if mark.spread is not None]
    # Values beyond a stated bound are shown all the same: hiding them would hide a faulty metric.
    low = min([panel.low, *(found.minimum for found in spreads)])
    high = max([panel.high or 0.0, *(found.maximum for found in spreads)])
    # All values are 0, and an axis needs a length.
    if high <= low:
        high = low + 1.0
    margin = (high - low) * 0.02
    axes.set_xlim(low - margin, high + margin)
    if panel.kind in ("share", "stack"):
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    elif high >= 1e5:
        # With a unit on the axis, such as "200k".
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    return low, high
