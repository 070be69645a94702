"""``rageval-hooks calibrate``: limits of the verdict, fitted to labels of people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rageval_hooks.cli import options
from rageval_hooks.cli.agreement import Group, Label, read_labelled, with_scores
from rageval_hooks.errors import ConfigurationError


def calibrate(
    file: Annotated[Path, typer.Argument(help="Labelled answers: any file that `score` reads or writes.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the limits go: a .toml file.")],
    label: Label = "label",
    group: Group = None,
    models: options.ModelNames = None,
    mapping: options.ColumnNames = None,
    ignore: options.IgnoredColumns = None,
    map_file: options.MapFile = None,
    sheet: options.Sheet = None,
    encoding: options.Encoding = None,
    level: options.Level = 0.95,
    resamples: options.Resamples = 1000,
    seed: options.Seed = 0,
) -> None:
    """Fit the limits of the verdict to labels of people, and say how good they are on answers they have not seen.

    The shipped limits stay unless the fit is better beyond its interval. `instrument(thresholds="FILE.toml")` reads the
    output, and so do RAGEVAL_THRESHOLDS and `score --threshold`.
    """
    from rageval_hooks.offline.calibration import NEEDED, calibrate
    from rageval_hooks.offline.records.writing import atomic_file

    if output.suffix != ".toml":
        raise ConfigurationError(f"--output {output} should end in .toml, so that it is read as a file")
    if output.exists():
        raise ConfigurationError(f"{output} exists already: name another output")
    reading = options.read_options(
        file, ("response",), mapping=mapping, ignore=ignore, map_file=map_file, sheet=sheet, encoding=encoding
    )
    rows = with_scores(read_labelled(file, label, group, reading), ",".join(NEEDED), models, [])
    found = calibrate(rows, seed=seed, resamples=resamples, level=level)
    with atomic_file(output) as written:
        written.write(found.to_toml().encode())
    for line in found.figures():
        typer.echo(line)
    stays = "the fit is not better beyond its interval: the shipped limits stay"
    typer.echo(f"{'the fit is better' if found.is_better else stays} ({output})")
