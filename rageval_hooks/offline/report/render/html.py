"""A report as one self-contained page: its style and plots are inside of it, it has no script and loads nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.offline.report.render.plots import Ink, Panel, draw, panels, to_svg
from rageval_hooks.offline.report.render.tables import Table, comparison_tables, file_tables
from rageval_hooks.offline.report.report import Report
from rageval_hooks.text.formatting import show_value, shown
from rageval_hooks.version import __version__

__all__ = ["to_html"]

_TEMPLATES = Path(__file__).parent / "templates"

_INK = Ink(text="#010203", faint="#040506", paper="#070809")
_ON_PAGE = {_INK.text: "currentColor", _INK.faint: "var(--line)", _INK.paper: "var(--paper)"}
"""Colours that nothing else has, and what they become on the page: so plots follow light and dark."""


def to_html(report: Report, title: str = "RAG evaluation") -> str:
    """Return the report as a page.

    Args:
        report: what it shows.
        title: its heading.

    Raises:
        MissingDependencyError: jinja2 or matplotlib is not installed.
    """
    try:
        from jinja2 import Environment, FileSystemLoader
        from markupsafe import Markup
    except ImportError as error:
        raise MissingDependencyError("jinja2", "offline", "a page of a report") from error
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, finalize=_clean)
    environment.filters["number"] = show_value
    level = report.resampling.level
    return environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        style=Markup((_TEMPLATES / "report.css").read_text("utf-8")),  # noqa: S704 - a file of ours
        level=f"{level:.0%}",
        plots=[{"svg": Markup(_inline(panel, level, number))} for number, panel in enumerate(panels(report), 1)],  # noqa: S704 - escaped below, and by matplotlib
        files=[
            {"report": file, "tables": [_named(table, file.name) for table in file_tables(file, level)]}
            for file in report.files
        ],
        comparisons=[
            {"comparison": item, "tables": [_named(table) for table in comparison_tables(item, level)]}
            for item in report.comparisons
        ],
    )


def _clean(value: Any) -> Any:
    """A text of a file, as one that a page may hold; markup of ours is one already."""
    return shown(value) if type(value) is str else value


def _named(table: Table, file: str = "") -> Any:
    """Shorten a table's title under the heading of its file."""
    return replace(table, title=table.title.removeprefix(f"{file}: ").capitalize() if file else table.title)


def _inline(panel: Panel, level: float, number: int) -> str:
    """Return a plot as an SVG element for the middle of a page: its ids are its own, its colours follow the page's."""
    svg = to_svg(draw([panel], level, heading=False, ink=_INK), _INK)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    head, end, body = svg.partition(">")
    [box] = re.findall(r'viewBox="[^"]*"', head)
    body = re.sub(r'\b(id="|xlink:href="#|url\(#)', rf"\g<1>p{number}-", body)
    for colour, meant in _ON_PAGE.items():
        body = body.replace(colour, meant)
    return f'<svg {box} role="img" aria-label="{escape(shown(panel.description))}"{end}{body}'
