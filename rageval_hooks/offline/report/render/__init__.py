"""Reports as text, tables, pictures and pages."""

from rageval_hooks.offline.report.render.html import to_html
from rageval_hooks.offline.report.render.plots import Ink, Panel, PlotKind, draw, panels, to_png, to_svg
from rageval_hooks.offline.report.render.tables import Table, to_tables
from rageval_hooks.offline.report.render.text import print_tables, to_markdown, to_plain_text

__all__ = [
    "Ink",
    "Panel",
    "PlotKind",
    "Table",
    "draw",
    "panels",
    "print_tables",
    "to_html",
    "to_markdown",
    "to_plain_text",
    "to_png",
    "to_svg",
    "to_tables",
]
