"""A report as one self-contained page: style, script, plots and all questions are inside, and it loads nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from rageval_hooks.errors import ConfigurationError, requires
from rageval_hooks.offline.report.build import Report, ScoreSummary
from rageval_hooks.offline.report.plots import FAINT, INK, PAPER, Panel, colour_of, draw, panels, to_svg
from rageval_hooks.offline.report.scored_file import ScoredFile
from rageval_hooks.offline.report.tables import comparison_tables, file_tables
from rageval_hooks.offline.report.turns import ShownTurn, show_turn
from rageval_hooks.score import VERDICT
from rageval_hooks.text.formatting import shorten, shown
from rageval_hooks.version import __version__

with requires("jinja2", "offline", "a page of a report"):
    from jinja2 import Environment, FileSystemLoader

_TEMPLATES = Path(__file__).parent / "templates"

# The page's own colours take the place of those of plots, which follow light and dark.
_ON_PAGE = {INK: "currentColor", FAINT: "var(--line)", PAPER: "var(--paper)"}

# Parts of an SVG that a page must not have: "<metadata>…</metadata>", "<style …>…</style>", "<!-- … -->".
_NOT_INLINE = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)

# Where an SVG names an id: 'id="a"', 'xlink:href="#a"', 'url(#a)'.
_ID = re.compile(r'\b(id="|xlink:href="#|url\(#)')

# Characters. The list of questions cuts them anyway; their details have the whole text.
_MAX_QUERY_LENGTH: Final = 200

# More columns of scores do not fit on a laptop; a reader can add them.
_SHOWN_COLUMNS: Final = 4


def check_trace_url(url: str | None) -> None:
    """Check the address of traces.

    Raises:
        ConfigurationError: it is not an http address with ``{trace_id}`` in it.
    """
    # The page makes it a link: an address such as "javascript:…" must not get there.
    if url is not None and not (url.startswith(("http://", "https://")) and "{trace_id}" in url):
        raise ConfigurationError(
            f"--trace-url is {url[:200]!r}: give an http address with {{trace_id}} in it, such as"
            " http://localhost:6006/redirects/traces/{trace_id}"
        )


def to_html(
    report: Report,
    files: Sequence[ScoredFile],
    *,
    bounds: Mapping[str, float] | None = None,
    trace_url: str | None = None,
) -> str:
    """Return the report as a page.

    Args:
        report: the report, with its conclusion.
        files: what it is about.
        bounds: required means, which the plots mark.
        trace_url: address of a trace, as :func:`check_trace_url` accepts it.
    """
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, finalize=_clean)
    # Escapes what could end the script element that the JSON is in.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    script = (_TEMPLATES / "report.js").read_text("utf-8")
    scores: dict[str, ScoreSummary] = {}
    for row in (row for file in report.files for row in file.scores if row.spread):
        scores.setdefault(row.name, row)
    return environment.get_template("report.html.j2").render(
        version=__version__,
        style=(_TEMPLATES / "report.css").read_text("utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        conclusion=report.conclusion,
        level=f"{report.resampling.level:.0%}",
        plots=[(panel, _inline(panel, number)) for number, panel in enumerate(panels(report, bounds=bounds), 1)],
        files=[(file, file_tables(file)) for file in report.files],
        comparisons=[comparison_tables(comparison) for comparison in report.comparisons],
        colour_of=colour_of,
        data=((name, _clean(value)) for name, value in _data(report, files, scores, trace_url)),
    )


def _inline(panel: Panel, number: int) -> str:
    """Return a plot as an SVG element for a page: with ids that no other plot has, and the page's colours."""
    svg = to_svg(draw([panel]))
    svg = _NOT_INLINE.sub("", svg[svg.index("<svg") :])
    head, end, body = svg.partition(">")
    [box] = re.findall(r'viewBox="[^"]*"', head)
    body = _ID.sub(rf"\g<1>p{number}-", body)
    for colour, on_page in _ON_PAGE.items():
        body = body.replace(colour, on_page)
    return f'<svg {box} role="img" aria-label="{escape(panel.description)}"{end}{body}'


# --------------------------------------------------------------------------- the data of the page's script


def _data(
    report: Report, files: Sequence[ScoredFile], scores: Mapping[str, ScoreSummary], trace_url: str | None
) -> Iterator[tuple[str, Any]]:
    """Yield what the page's script reads, by the id of its element.

    ``index`` has what it needs at first, ``rows-0`` the table of the first file. The details of each turn have an
    element of their own (``turn-0-17``), so that the browser parses only those that a reader opens.
    """
    names = list(scores)
    ordering = report.files[0].worst_by
    # At first the table shows the ordering score, and those with the highest headline. The verdict is no number there.
    ranked = sorted(names, key=lambda name: (name != ordering, -scores[name].headline))
    ranked = [name for name in ranked if name != VERDICT]
    yield (
        "index",
        {
            "files": [{"name": file.name, "runs": file.runs, "records": file.records} for file in report.files],
            "scores": [{"name": r.name, "lower": r.direction == "lower", "binary": r.binary} for r in scores.values()],
            "columns": [names.index(name) for name in ranked[:_SHOWN_COLUMNS]],
            "sort": names.index(ordering) if ordering is not None and ordering in scores else None,
            "trace_url": trace_url,
        },
    )
    for place, file in enumerate(files):
        rows: list[list[Any]] = []
        for row in range(file.records):
            turn = show_turn(file, row, ordering)
            yield f"turn-{place}-{row}", turn.model_dump(mode="json", exclude_defaults=True)
            rows.append(_row(turn, names))
        yield f"rows-{place}", rows


def _row(turn: ShownTurn, names: Sequence[str]) -> list[Any]:
    """Return a row of the table; the script names its columns."""
    values = {score.name: score.value for score in turn.scores}
    # Several metrics may find fault with the same sentence: it counts once.
    sentences = [sentence for evidence in turn.evidence for sentence in evidence.sentences]
    unsupported = {sentence.text for sentence in sentences if sentence.support == "unsupported"}
    return [
        turn.id,
        turn.run,
        shorten(turn.query, _MAX_QUERY_LENGTH),
        turn.document or "",
        int(turn.error is not None),
        len(unsupported),
        # Six digits are more than the table shows, and half the bytes.
        [float(f"{values[name]:.6g}") if name in values else None for name in names],
        turn.verdict,
        shorten(turn.reason, _MAX_QUERY_LENGTH),
        turn.cause,
    ]


def _clean(value: Any) -> Any:
    """Return data with pictures in place of control characters; markup of our own is kept."""
    if isinstance(value, list):
        return [*map(_clean, value)]
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return shown(value) if type(value) is str else value
