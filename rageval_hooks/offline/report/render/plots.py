"""Plots of scored files: box plots with mean, median and interval, questions answered, consistency over repeats.

Drawn without a display; the same numbers give the same SVG, byte for byte. The colours are those of Okabe and Ito,
which people with any kind of colour vision can tell apart; files differ in their place and name, too.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.report.report import Report, ScoreRow
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.text.formatting import cut_to_width, flat, short_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Ink", "Kind", "Panel", "draw", "panels", "to_png", "to_svg"]

Kind = Literal["all", "scores", "consistency"]

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
_MOST_COLUMNS = 3
_PANEL_WIDTH = 4.2  # inches, as all sizes here; wider where names or numbers need it
_MARGIN = 0.45
_ROW_HEIGHT = 0.56
_FRAME_HEIGHT = 0.85
_TITLE, _NAME = 46, 18  # columns of text, of which a wide character takes two
_SIZES = {"heading": 11, "title": 10, "name": 9, "numbers": 7.5}  # points
_LARGE, _HUGE = 1e5, 1e15
_MEASURES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "bertscore": "BERTScore"}
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
class Panel:
    """One small plot: a row per file.

    Attributes:
        title: what it shows.
        shape: ``box`` for distributions, ``bar`` for a share.
        direction: whether higher or lower is better.
        bounded: whether the axis runs from 0 to 1.
        unit: of the values.
        rows: per file its name and numbers; None where a file has none.
    """

    title: str
    shape: Literal["box", "bar"]
    direction: Direction
    bounded: bool
    unit: str
    rows: tuple[tuple[str, Spread | None], ...]

    @property
    def description(self) -> str:
        """The panel in words, for those who do not see it."""
        better = "lower is better" if self.direction == "lower" else "higher is better"
        return f"{self.title} ({better}): " + "; ".join(
            f"{name}: {words(found, self.shape)}" for name, found in self.rows
        )


def words(found: Spread | None, shape: str = "box") -> str:
    """Return the numbers of a row in words."""
    if found is None:
        return "no values"
    text = f"mean {short_value(found.mean)}"
    if found.interval is not None:
        text += f" [{short_value(found.interval.low)}, {short_value(found.interval.high)}]"
    if shape == "box":
        text += f", median {short_value(found.median)}"
    return f"{text}, n = {found.count}"


def panels(report: Report, kind: Kind = "all", *, alike: bool = True) -> list[Panel]:
    """Return the plots of a report: its scores, the questions answered, the variation over repeats.

    Args:
        report: of one or several files.
        kind: ``scores`` for scores and questions answered, ``consistency`` for the coefficient of variation of each
            score between the answers to one question, ``all`` for both.
        alike: whether to plot, with the consistency, how alike the texts of repeated answers are.
    """
    found: list[Panel | None] = []
    names = list(dict.fromkeys(row.name for file in report.files for row in file.scores))
    table = {name: [(file.name, file.score(name)) for file in report.files] for name in names}
    if kind != "consistency":
        found += [_panel(name, rows) for name, rows in table.items() if name != "no_answer"]
        found.append(_panel("questions answered", [(file.name, file.answered) for file in report.files], "bar"))
    if kind != "scores":
        found += [_consistency(name, rows) for name, rows in table.items()]
        found += [_alike(name, report) for name in _MEASURES if alike]
    return [panel for panel in found if panel is not None]


def _panel(
    title: str, rows: Sequence[tuple[str, ScoreRow | None]], shape: Literal["box", "bar"] = "box"
) -> Panel | None:
    there = [row for _, row in rows if row is not None and row.spread is not None]
    if not there:
        return None
    return Panel(
        title=title,
        shape=shape,
        direction=there[0].direction,
        bounded=all(row.bounded for row in there),
        unit=there[0].unit,
        rows=tuple((name, row.spread if row is not None else None) for name, row in rows),
    )


def _alike(name: str, report: Report) -> Panel | None:
    rows = tuple(
        (file.name, next((item.spread for item in file.likeness if item.name == name), None)) for file in report.files
    )
    if not any(found for _, found in rows):
        return None
    title = f"{_MEASURES[name]} between repeated answers"
    return Panel(title=title, shape="box", direction="higher", bounded=name != "bertscore", unit="", rows=rows)


def _consistency(name: str, rows: Sequence[tuple[str, ScoreRow | None]]) -> Panel | None:
    spreads = tuple((file, row.repeats.coefficients if row and row.repeats else None) for file, row in rows)
    if not any(found for _, found in spreads):
        return None
    return Panel(
        title=f"{name}: variation over repeats", shape="box", direction="lower", bounded=False, unit="CV", rows=spreads
    )


# --------------------------------------------------------------------------- drawing


def draw(shown: Sequence[Panel], level: float, *, heading: bool = True, ink: Ink | None = None) -> Figure:
    """Draw panels into one figure.

    Args:
        shown: at least one.
        level: of confidence of the intervals, for the legend.
        heading: whether to say which file it is, and what the marks mean.
        ink: the colours of text and lines.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    ink = ink or Ink()
    with _style(ink):
        from matplotlib.figure import Figure

        columns = min(_MOST_COLUMNS, len(shown))
        lines = math.ceil(len(shown) / columns)
        height = _FRAME_HEIGHT + _ROW_HEIGHT * max(len(panel.rows) for panel in shown)
        legend = 0.6 if heading else 0.0
        name = _fitted(shown[0].rows[0][0], _TITLE) if heading and len(shown[0].rows) == 1 else ""
        width = max(_width(shown) * columns, _inches(name, "heading") + _MARGIN)
        figure = Figure(figsize=(width, height * lines + legend), layout="constrained")
        for place, panel in enumerate(shown, 1):
            _draw_panel(figure.add_subplot(lines, columns, place), panel, ink)
        if heading:
            if name:
                figure.suptitle(name, fontsize=_SIZES["heading"])
            figure.supxlabel(
                f"box: quartiles and median; line: least to greatest;{' ' if columns > 1 else chr(10)}"
                f"diamond: mean with {level:.0%} interval",
                fontsize=8,
                color=ink.text,
            )
    return figure


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
    colours = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink.text)
    style: Any = {**_STYLE, **colours}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names of files in any script
        yield


def _width(shown: Sequence[Panel]) -> float:
    """How wide a panel has to be: as its names and, beside them, its title or numbers."""
    names = max(_inches(name, "name") for panel in shown for name in _names(panel))
    titles = [_inches(_title(panel), "title", "bold") for panel in shown]
    numbers = [_inches(words(found, panel.shape), "numbers") for panel in shown for _, found in panel.rows]
    return max(_PANEL_WIDTH, names + max(titles + numbers) + _MARGIN)


def _inches(text: str, part: str, weight: str = "normal") -> float:
    """How wide a text is."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text:
        return 0.0
    drawn = TextPath((0, 0), text, size=_SIZES[part], prop=FontProperties(weight=weight))
    return max(0.0, float(drawn.get_extents().width)) / 72


def _names(panel: Panel) -> list[str]:
    return [_fitted(name, _NAME) if len(panel.rows) > 1 else "" for name, _ in panel.rows]


def _title(panel: Panel) -> str:
    known = not panel.unit or panel.unit in panel.title
    return _fitted(panel.title if known else f"{panel.title} ({panel.unit})", _TITLE)


def _draw_panel(axes: Axes, panel: Panel, ink: Ink) -> None:
    from matplotlib.ticker import EngFormatter

    number = len(panel.rows)
    for place, (_, found) in enumerate(panel.rows):
        colour = _COLOURS[place % len(_COLOURS)]
        y = number - 1 - place
        if found is not None:
            (_draw_box if panel.shape == "box" else _draw_bar)(axes, y, found, colour, ink)
        numbers = axes.annotate(
            words(found, panel.shape),
            (0, y),
            xycoords=axes.get_yaxis_transform(),
            xytext=(0, 11),
            textcoords="offset points",
            fontsize=_SIZES["numbers"],
            va="bottom",
        )
        numbers.set_in_layout(False)  # the panel is as wide as they are
    axes.set_yticks(range(number), list(reversed(_names(panel))), fontsize=_SIZES["name"])
    axes.set_ylim(-0.5, number - 0.15)
    axes.tick_params(axis="y", length=0)
    if panel.bounded:
        axes.set_xlim(-0.02, 1.02)
    axes.grid(axis="x", color=ink.faint, linewidth=0.6)
    axes.set_axisbelow(True)
    if _LARGE <= max(map(abs, axes.get_xlim())) < _HUGE:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_title(_title(panel), loc="left", fontsize=_SIZES["title"], fontweight="bold")
    if panel.direction == "lower":
        axes.set_xlabel("← lower is better", fontsize=7.5, loc="left")


def _fitted(name: str, width: int) -> str:
    return cut_to_width(flat(name), width)


def _draw_box(axes: Axes, y: float, found: Spread, colour: str, ink: Ink) -> None:
    box = found.upper_quartile - found.lower_quartile
    axes.plot([found.minimum, found.maximum], [y, y], color=ink.text, linewidth=1, solid_capstyle="butt", zorder=2)
    axes.barh(y, box, left=found.lower_quartile, height=0.3, color=colour, edgecolor=ink.text, linewidth=1, zorder=3)
    for line, width in ((ink.paper, 5.0), (ink.text, 2.4)):
        axes.plot(
            [found.median] * 2, [y - 0.15, y + 0.15], color=line, linewidth=width, solid_capstyle="butt", zorder=4
        )
    _draw_mean(axes, y, found, ink)


def _draw_bar(axes: Axes, y: float, found: Spread, colour: str, ink: Ink) -> None:
    axes.barh(y, found.mean, height=0.3, color=colour, edgecolor=ink.text, linewidth=1, zorder=3)
    _draw_mean(axes, y, found, ink)


def _draw_mean(axes: Axes, y: float, found: Spread, ink: Ink) -> None:
    if found.interval is not None:
        ends: Iterable[float] = (found.interval.low, found.interval.high)
        axes.plot(list(ends), [y, y], color=ink.paper, linewidth=4.4, solid_capstyle="butt", zorder=5)
        axes.plot(list(ends), [y, y], color=ink.text, linewidth=2, solid_capstyle="butt", zorder=6)
    axes.plot(
        [found.mean], [y], marker="D", markersize=6, markerfacecolor=ink.paper, markeredgecolor=ink.text, zorder=7
    )
