"""Drawing panels with matplotlib, without a display: the same numbers give the same SVG, byte for byte.

Sizes are computed in inches before anything is drawn, so that no label can collide with another: long names wrap and
are never cut.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rageval_hooks.errors import requires
from rageval_hooks.offline.report.render.panels import Panel
from rageval_hooks.offline.report.render.plot_canvas import Box, Ink, colour_of, draw_swatch, write
from rageval_hooks.offline.report.render.plot_panels import draw_panel
from rageval_hooks.offline.report.render.plot_sizes import EDGE, GAP, POINTS, WIDTH, layout, line_height, panel_width
from rageval_hooks.offline.report.render.plot_texts import wrapped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Ink", "draw", "to_png", "to_svg"]

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

        width, lines = layout(panels)
        top = _heading_height(panels, width, level) if heading else 0.0
        # The figure is created with its final size: matplotlib places everything in shares of it.
        heights = [line_height(line, width) for line in lines]
        total = top + sum(heights) + GAP * (len(heights) - 1)
        figure = Figure(figsize=(width + 2 * EDGE, total + 2 * EDGE))
        if heading:
            _draw_heading(figure, panels, width, level)
        for line, height in zip(lines, heights, strict=True):
            for place, panel in enumerate(line):
                left = EDGE + place * (WIDTH + GAP)
                box = Box(left, EDGE + top, panel_width(panel, width), height)
                draw_panel(figure, panel, box, ink)
            top += height + GAP
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
    with requires("matplotlib", "offline", "a plot"):
        import matplotlib as mpl
    parts = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style: Any = {**_STYLE, **dict.fromkeys(parts, ink.text)}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names of files in any script
        yield


# --------------------------------------------------------------------------- heading


def _legend(level: float) -> str:
    return (
        f"diamond: mean or share with its {level:.0%} interval · box: quartiles and median · line: smallest to largest"
    )


def _files(panels: Sequence[Panel]) -> dict[int, str]:
    """Return the names of the files by their number, as far as panels have them."""
    found: dict[int, str] = {}
    for panel in panels:
        found.update(panel.files or {mark.file: mark.label for mark in panel.marks})
    return dict(sorted(found.items()))


def _heading_lines(panels: Sequence[Panel], width: float, level: float) -> list[tuple[str, str, str]]:
    """Return the lines of the heading, each with its size and colour; a colour only where it stands for a file."""
    files = _files(panels)
    lines = []
    for number, name in files.items():
        colour = colour_of(number) if len(files) > 1 else ""
        lines += [(line, "heading", colour) for line in wrapped(name, width - 0.3, POINTS["heading"], "bold")]
    lines += [(line, "small", "") for line in wrapped(_legend(level), width, POINTS["small"])]
    return lines


def _heading_height(panels: Sequence[Panel], width: float, level: float) -> float:
    return sum(POINTS[size] / 50 for _, size, _ in _heading_lines(panels, width, level)) + 0.15


def _draw_heading(figure: Figure, panels: Sequence[Panel], width: float, level: float) -> None:
    top = EDGE
    for text, size, colour in _heading_lines(panels, width, level):
        left = EDGE
        if colour:
            draw_swatch(figure, left, top + 0.03, 0.14, colour)
            left += 0.22
        write(figure, left, top, text, POINTS[size], weight="bold" if size == "heading" else "normal")
        top += POINTS[size] / 50
