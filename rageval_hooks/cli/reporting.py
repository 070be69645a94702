"""Reads, reports, writes, and says what is not as it should be: what ``report`` and ``plot`` do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from rageval_hooks.cli.streams import for_stream, leave_stdout
from rageval_hooks.errors import ConfigurationError, ExportError

if TYPE_CHECKING:
    from rageval_hooks.offline.records.record import Record
    from rageval_hooks.offline.report.bertscore import BertScore
    from rageval_hooks.offline.report.render.plots import Kind
    from rageval_hooks.offline.report.report import Report
    from rageval_hooks.offline.report.statistics import Resampling

__all__ = ["run_plot", "run_report"]

_FORMATS = {
    ".txt": "table",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
    ".html": "html",
    ".htm": "html",
}
_PLOTS = (".png", ".svg")


def run_report(
    files: Sequence[Path],
    *,
    metrics: Sequence[str],
    format: str | None,
    output: Path | None,
    bounds: Mapping[str, float],
    baseline: Path | None,
    alpha: float,
    lower: Sequence[str],
    worst: int,
    worst_by: str | None,
    resampling: Resampling,
    encoder: tuple[str, int | None] | None = None,
) -> None:
    """Write the report, then check the bounds.

    Raises:
        ConfigurationError: an option or a file is wrong.
        typer.Exit: with status 1, a bound is not kept or a score got worse; with 2, it cannot be told whether one did.
    """
    from rageval_hooks.offline.report.gates import regressions, shortfalls
    from rageval_hooks.offline.report.report import build_report

    if baseline is not None:
        if not 0 < alpha < 1:
            raise ConfigurationError(f"--alpha is a probability between 0 and 1, and {alpha:g} is not")
        files = [baseline, *(file for file in files if not _is_same(file, baseline))]
        if len(files) < 2:
            raise ConfigurationError(f"{baseline} is compared with itself: name the file to check, too")
    if metrics:
        metrics = list(dict.fromkeys((*metrics, *bounds)))
    _check_output(output, files)
    form = format or _format_of(output)
    report = build_report(
        files,
        metrics=metrics,
        worst=worst,
        worst_by=worst_by,
        lower=lower,
        resampling=resampling,
        scorer=_scorer(encoder),
        watch=_watch,
        complain=_say,
        bounded=list(bounds),
    )
    _write(report, form, output)
    checked = report.model_copy(update={"files": report.files[1:]}) if baseline is not None else report
    failed, untold = shortfalls(checked, bounds), list[str]()
    if baseline is not None:
        found = regressions(report, alpha)
        failed, untold = [*failed, *found.worse], list(found.untold)
        for note in found.notes:
            _say(note)
    for line in (*failed, *untold):
        _say(line)
    if failed or untold:
        raise typer.Exit(1 if failed else 2)


def run_plot(
    files: Sequence[Path],
    *,
    metrics: Sequence[str],
    output: Path,
    kind: Kind,
    lower: Sequence[str],
    resampling: Resampling,
    encoder: tuple[str, int | None] | None = None,
) -> None:
    """Draw files into a PNG or SVG.

    Raises:
        ConfigurationError: an option or a file is wrong, or there is nothing to draw.
    """
    from rageval_hooks.offline.report.render.plots import draw, panels, to_png, to_svg
    from rageval_hooks.offline.report.report import build_report

    if output.suffix.lower() not in _PLOTS:
        raise ConfigurationError(f"--output ends with {' or '.join(_PLOTS)}, and {output} does not")
    _check_output(output, files)
    report = build_report(
        files,
        metrics=metrics,
        worst=0,
        compare=False,
        lower=lower,
        resampling=resampling,
        scorer=_scorer(encoder),
        watch=_watch,
        complain=_say,
    )
    shown = panels(report, kind, alike=not metrics or kind == "consistency")
    if not shown:
        what = "repeated answers to any question" if kind == "consistency" else "scores with values"
        raise ConfigurationError(f"there is nothing to plot: no {what} in {', '.join(map(str, files))}")
    figure = draw(shown, resampling.level)
    _write_file(output, to_png(figure) if output.suffix.lower() == ".png" else to_svg(figure).encode())


def _scorer(encoder: tuple[str, int | None] | None) -> BertScore | None:
    if encoder is None:
        return None
    from rageval_hooks.offline.report.bertscore import load_bertscore

    model, layers = encoder
    return load_bertscore(model, layers=layers)


def _format_of(output: Path | None) -> str:
    if output is None:
        return "table"
    try:
        return _FORMATS[output.suffix.lower()]
    except KeyError:
        known = ", ".join(_FORMATS)
        raise ConfigurationError(
            f"--output ends with one of {known}, and {output} does not: or give --format"
        ) from None


def _check_output(output: Path | None, files: Sequence[Path]) -> None:
    """Say before any work that the output cannot be written."""
    if output is None:
        return
    if any(_is_same(output, file) for file in files):
        raise ConfigurationError(f"--output {output} is a file to report on, and would take its place")
    if output.is_dir():
        raise ConfigurationError(f"--output names a file, and {output} is a folder")
    if not output.absolute().parent.is_dir():
        raise ConfigurationError(f"--output {output}: there is no folder {output.absolute().parent}")


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _write(report: Report, format: str, output: Path | None) -> None:
    if output is not None:
        _write_file(output, _text(report, format).encode())
        return
    try:
        if format == "table" and sys.stdout.isatty():
            _print(report, sys.stdout)
        else:
            sys.stdout.write(for_stream(_text(report, format), format, sys.stdout))
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on: the bounds are checked all the same
        leave_stdout()


def _text(report: Report, format: str) -> str:
    if format == "table":
        buffer = StringIO()
        _print(report, buffer)
        return buffer.getvalue()
    if format == "markdown":
        from rageval_hooks.offline.report.render.text import to_markdown

        return to_markdown(report)
    if format == "json":
        return report.model_dump_json(indent=2) + "\n"
    from rageval_hooks.offline.report.render.html import to_html

    return to_html(report)


def _print(report: Report, stream: TextIO) -> None:
    from rageval_hooks.exporters.console import make_console
    from rageval_hooks.offline.report.render.text import print_tables

    print_tables(report, make_console(stream))


def _write_file(output: Path, content: bytes) -> None:
    from rageval_hooks.offline.records.files import atomic_file

    try:
        with atomic_file(output) as file:
            file.write(content)
    except OSError as error:
        raise ExportError(f"{output} cannot be written: {error.strerror or error}") from error
    typer.echo(f"{output} is written", err=True)


def _say(line: str) -> None:
    from rageval_hooks.text.formatting import flat

    typer.echo(f"rageval-hooks: {flat(line)}", err=True)


def _watch(records: Iterable[Record], path: Path) -> Iterator[Record]:
    """Show on a terminal how far the reading is."""
    from rageval_hooks.offline.jobs.progress import progress_bar

    total = _lines(path) if sys.stderr.isatty() and path.suffix.lower() == ".jsonl" else None
    with progress_bar(f"reading {path.name}", total) as advance:
        for record in records:
            advance(1)
            yield record


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
