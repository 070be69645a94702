"""A report as one self-contained page: style, script, plots and all questions are inside, and it loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path
from typing import Any

from rageval_hooks.errors import requires
from rageval_hooks.offline.report.build import Analysis
from rageval_hooks.offline.report.details import check_trace_url
from rageval_hooks.offline.report.model import Verdict
from rageval_hooks.offline.report.render.page_data import page_chunks, page_index
from rageval_hooks.offline.report.render.panels import Panel, panels
from rageval_hooks.offline.report.render.plot_canvas import colour_of
from rageval_hooks.offline.report.render.plots import Ink, draw, to_svg
from rageval_hooks.offline.report.render.tables import Table, comparison_tables, file_tables
from rageval_hooks.text.formatting import shown
from rageval_hooks.version import __version__

__all__ = ["to_html"]

_TEMPLATES = Path(__file__).parent / "templates"

# Colours that nothing else has, and the page's own colours that take their place: plots follow light and dark.
_INK = Ink(text="#010203", faint="#040506", paper="#070809")
_ON_PAGE = {_INK.text: "currentColor", _INK.faint: "var(--line)", _INK.paper: "var(--paper)"}

# Parts of an SVG that a page must not have: "<metadata>…</metadata>", "<style …>…</style>", "<!-- … -->".
_NOT_INLINE = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)

# Where an SVG names an id: 'id="a"', 'xlink:href="#a"', 'url(#a)'.
_ID = re.compile(r'\b(id="|xlink:href="#|url\(#)')


def to_html(
    analysis: Analysis,
    verdict: Verdict,
    *,
    bounds: dict[str, float] | None = None,
    trace_url: str | None = None,
    title: str = "RAG evaluation",
) -> str:
    """Return the report as a page.

    Args:
        analysis: the report and its turns.
        verdict: what the page says first.
        bounds: required means, which the plots mark.
        trace_url: address of a trace, with ``{trace_id}`` in it.
        title: the page's heading.

    Raises:
        ConfigurationError: the address of traces is not one.
        MissingDependencyError: jinja2 or matplotlib is not installed.
    """
    check_trace_url(trace_url)
    with requires("jinja2", "offline", "a page of a report"):
        from jinja2 import Environment, FileSystemLoader
        from markupsafe import Markup
    report, level = analysis.report, analysis.report.resampling.level
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, finalize=_clean)
    script = (_TEMPLATES / "report.js").read_text("utf-8")
    plots = [(panel, _inline(panel, level, number)) for number, panel in enumerate(panels(report, bounds=bounds), 1)]
    return environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        style=Markup((_TEMPLATES / "report.css").read_text("utf-8")),  # noqa: S704 - a file of this package
        script=Markup(script),  # noqa: S704 - a file of this package
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        verdict=verdict,
        level=f"{level:.0%}",
        plots=[{"svg": Markup(svg), "wide": panel.kind == "overview"} for panel, svg in plots],  # noqa: S704 - escaped by matplotlib and _inline
        colours=[colour_of(place) for place in range(len(report.files))],
        files=[{"report": file, "tables": _split(file_tables(file))} for file in report.files],
        comparisons=[{"comparison": item, "tables": _split(comparison_tables(item))} for item in report.comparisons],
        index=Markup(_json(page_index(analysis, trace_url))),  # noqa: S704 - _json escapes markup
        chunks=page_chunks(analysis),
    )


def _split(tables: list[Table]) -> dict[str, list[Table]]:
    """Return the tables of numbers, and those of single turns, which only readers without a script see."""
    return {
        "numbers": [table for table in tables if not table.is_detail],
        "details": [table for table in tables if table.is_detail],
    }


def _clean(value: Any) -> Any:
    """Return a text of a file without control characters; markup of our own is kept."""
    return shown(value) if type(value) is str else value


def _json(value: Any) -> str:
    """Return JSON without the characters that could end the script element it is in."""
    return json.dumps(value).replace("<", "\\u003c").replace("&", "\\u0026")


def _inline(panel: Panel, level: float, number: int) -> str:
    """Return a plot as an SVG element for a page: with ids that no other plot has, and the page's colours."""
    svg = to_svg(draw([panel], level, heading=False, ink=_INK), _INK)
    svg = _NOT_INLINE.sub("", svg[svg.index("<svg") :])
    head, end, body = svg.partition(">")
    [box] = re.findall(r'viewBox="[^"]*"', head)
    body = _ID.sub(rf"\g<1>p{number}-", body)
    for colour, on_page in _ON_PAGE.items():
        body = body.replace(colour, on_page)
    return f'<svg {box} role="img" aria-label="{escape(shown(panel.description))}"{end}{body}'
