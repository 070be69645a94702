"""Texts, shapes and axes at places that are given in inches from the upper left corner of a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rageval_hooks.text.formatting import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Box", "Ink", "add_axes", "colour_of", "draw_swatch", "write"]

# The colours of Okabe and Ito, which people with any kind of colour vision can tell apart.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")


@dataclass(frozen=True)
class Ink:
    """The colours of everything that is not data."""

    text: str = "#1a1a1a"
    faint: str = "#d0d0d0"
    paper: str = "#ffffff"


@dataclass(frozen=True)
class Box:
    """A rectangle of a figure in inches: its left and top edges, its width and height."""

    left: float
    top: float
    width: float
    height: float


def colour_of(file: int) -> str:
    """Return the colour of a file by its number; the eighth file has the first colour again."""
    return _COLOURS[file % len(_COLOURS)]


def write(
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


def draw_swatch(figure: Figure, left: float, top: float, size: float, colour: str) -> None:
    """Draw the square of a file's colour; as a shape, because a text would have too little contrast."""
    from matplotlib.patches import Rectangle

    width, height = figure.get_size_inches()
    corner = (left / width, 1 - (top + size) / height)
    square = Rectangle(corner, size / width, size / height, color=colour, transform=figure.transFigure)
    figure.add_artist(square)


def add_axes(figure: Figure, box: Box) -> Axes:
    """Add axes that fill a rectangle."""
    width, height = figure.get_size_inches()
    bottom = 1 - (box.top + box.height) / height
    return figure.add_axes((box.left / width, bottom, box.width / width, box.height / height))
