"""``rageval-hooks report``: report on scored files, compare them, and check bounds."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer

from rageval_hooks.cli import options
from rageval_hooks.cli.options import seconds
from rageval_hooks.cli.output import (
    check_output_option,
    for_stream,
    is_same_file,
    say,
    survive_closed_pipe,
    watch_records,
    write_file,
)
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.settings import Settings

_Format = Literal["table", "markdown", "json", "html"]

_FORMATS: dict[str, _Format] = {
    ".txt": "table",
    ".json": "json",
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".html", ".htm"), "html"),
}


def report(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|BACKEND...", help="Scored records, or phoenix …; the first is the baseline."),
    ],
    metrics: options.Metrics = None,
    group_by: Annotated[
        str | None,
        typer.Option(
            "--group-by",
            "--by",
            metavar="COLUMN",
            help="Compare the systems that this column of FILE names; or what each day, week or session had.",
        ),
    ] = None,
    format: Annotated[
        _Format | None, typer.Option("--format", help="Default: that of the output's suffix, or a table.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report into this file.")] = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option("--fail-under", metavar="SCORE=NUMBER", help="Exit with 1 if a mean is worse. Repeatable."),
    ] = None,
    fail_on_regression: Annotated[
        Path | None,
        typer.Option("--fail-on-regression", metavar="FILE", help="Exit with 1 if quality is worse than in FILE."),
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option("--tolerance", metavar="[SCORE=]NUMBER|P%", help="How much worse than in FILE. Repeatable."),
    ] = None,
    max_errors: Annotated[
        str | None, typer.Option("--max-errors", metavar="N|P%", help="Exit with 1 if more questions failed.")
    ] = None,
    alpha: Annotated[
        float, typer.Option("--alpha", min=0.0, max=1.0, help="Probability of a false alarm, over all scores.")
    ] = 0.05,
    lower_is_better: options.LowerIsBetter = None,
    people: Annotated[
        str | None,
        typer.Option(
            "--people",
            metavar="LABEL",
            help="Correct the share of bad answers by people's labels of a random sample: an annotation or a column.",
        ),
    ] = None,
    since: Annotated[str, typer.Option("--since", help="How far to go back in a backend.")] = "7d",
    url: options.BackendUrl = None,
    project: options.BackendProject = None,
    worst: Annotated[int, typer.Option("--worst", min=0, max=1000, help="How many of the worst turns to show.")] = 10,
    worst_by: Annotated[str | None, typer.Option("--worst-by", metavar="SCORE", help="It orders the turns.")] = None,
    trace_url: Annotated[
        str | None,
        typer.Option("--trace-url", metavar="URL", help="HTML: link to traces, as http://host/traces/{trace_id}."),
    ] = None,
    bertscore: options.BertScoreModel = None,
    bertscore_layer: options.BertScoreLayer = None,
    bertscore_language: options.BertScoreLanguage = "en",
    bertscore_rescale: options.BertScoreRescale = True,
    level: options.Level = 0.95,
    resamples: options.Resamples = 2000,
    seed: options.Seed = 0,
) -> None:
    """Report on scored files: verdicts, means with intervals, ranks, documents, the worst turns, differences.

    With --fail-under, --fail-on-regression or --max-errors it checks them, for continuous integration. Any failed
    question then fails the checks, unless --max-errors allows it. Exit status: 0 if all checks pass, 1 if one fails,
    2 if a regression cannot be excluded or an option is wrong.
    """
    from rageval_hooks.offline.backends import BACKENDS
    from rageval_hooks.offline.report import Resampling, analyze, check_gate, conclude, gate_of, load_bertscore
    from rageval_hooks.offline.report.tables import print_tables, to_markdown, to_plain_text

    names = options.split_names(metrics)
    gate = gate_of(fail_under, fail_on_regression is not None, max_errors, alpha, tolerance, names)
    if fail_on_regression is not None:
        # A pattern such as "scores/*.jsonl" often includes the baseline.
        others = [file for file in files if not is_same_file(file, fail_on_regression)]
        if not others:
            raise ConfigurationError(f"{fail_on_regression} would be compared with itself: also name the file to check")
        files = [fail_on_regression, *others]
    # An output that cannot be written is an error before hours of reading, not after.
    check_output_option(output, files)
    form = format or ("table" if output is None else _FORMATS.get(output.suffix.lower()))
    if form is None:
        raise ConfigurationError(f"--output {output} should end in one of {', '.join(_FORMATS)}; or give --format")
    if form == "html":
        from rageval_hooks.offline.report.html import check_trace_url, to_html

        check_trace_url(trace_url)
    bounds = dict(gate.bounds) if gate else {}
    if names:
        # A score with a bound or a tolerance is part of the report, also if --metrics does not name it.
        names = list(dict.fromkeys((*names, *bounds, *filter(None, gate.tolerances if gate else ()))))
    with TemporaryDirectory() as folder:
        built, scored = analyze(
            [
                _stored(file.name, url, project, seconds(since), Path(folder)) if str(file) in BACKENDS else file
                for file in files
            ],
            metrics=names,
            worst=worst,
            worst_by=worst_by,
            lower=options.split_names(lower_is_better),
            resampling=Resampling(level=level, resamples=resamples, seed=seed),
            scorer=load_bertscore(bertscore, bertscore_layer, bertscore_language, bertscore_rescale),
            watch=watch_records,
            on_problem=say,
            bounded=list(bounds),
            privacy=PrivacyPolicy.of(Settings.build()),
            group_by=group_by,
            people=people,
        )
    result = check_gate(built, gate) if gate else None
    built = built.model_copy(update={"conclusion": conclude(built, bounds, result)})
    if output is None and form == "table" and sys.stdout.isatty():
        from rageval_hooks.exporters.console import make_console

        with survive_closed_pipe():
            print_tables(built, make_console(sys.stdout))
    else:
        if form == "html":
            text = to_html(built, scored, bounds=bounds, trace_url=trace_url)
        elif form == "json":
            text = built.model_dump_json(indent=2) + "\n"
        else:
            text = (to_markdown if form == "markdown" else to_plain_text)(built)
        if output is not None:
            write_file(output, text.encode())
        else:
            with survive_closed_pipe():
                sys.stdout.write(for_stream(text, form, sys.stdout))
    if result is None:
        return
    # On standard error, so that a report in a pipe stays what it is.
    for line in (*result.notes, *result.failures, *result.undecided):
        say(line)
    if result.status:
        raise typer.Exit(result.status)


def _stored(name: str, url: str | None, project: str | None, back: float, folder: Path) -> Path:
    """Write the turns that a backend has, with their scores, into a folder, and return the file."""
    from rageval_hooks.offline.collecting import stored_records

    path, is_scored = folder / f"{name}.jsonl", False
    with path.open("w", encoding="utf-8") as file:
        for record in stored_records(name, url, project, back, Settings.build()):
            file.write(f"{record.to_json()}\n")
            is_scored |= bool(record.results)
    if not is_scored:
        raise ConfigurationError(
            f"{name} has no turn with scores in this time; `rageval-hooks watch {name}` scores them"
        )
    return path
