"""``rageval-hooks plot``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["plot"]


class Plots(str, Enum):
    """What is plotted."""

    all = "all"
    scores = "scores"
    consistency = "consistency"


def plot(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scored records, side by side.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: a name that ends with .png or .svg.")],
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="NAMES", help="Plot these scores alone: groundedness,cost.")
    ] = None,
    kind: Annotated[
        Plots, typer.Option("--kind", help="Scores, how much they vary between repeated answers, or both.")
    ] = Plots.all,
    lower_is_better: Annotated[
        str | None, typer.Option("--lower-is-better", metavar="NAMES", help="Scores of your own that count so.")
    ] = None,
    bertscore: Annotated[
        str | None,
        typer.Option("--bertscore", metavar="MODEL", help="Compare repeated answers with this encoder, too."),
    ] = None,
    bertscore_layer: Annotated[
        int | None, typer.Option("--bertscore-layer", min=0, help="The encoder's layer, if it is not a known model.")
    ] = None,
    level: Annotated[float, typer.Option("--level", min=0.51, max=0.9999, help="Of confidence of intervals.")] = 0.95,
    resamples: Annotated[int, typer.Option("--resamples", min=100, max=100_000, help="Of the bootstrap.")] = 2000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the intervals.")] = 0,
) -> None:
    """Draw box plots of scored files, with mean, median and interval; questions answered; variation over repeats."""
    from rageval_hooks.cli.report import split_names
    from rageval_hooks.cli.reporting import run_plot
    from rageval_hooks.offline.statistics import Resampling

    run_plot(
        files,
        metrics=split_names(metrics),
        output=output,
        kind=kind.value,
        lower=split_names(lower_is_better),
        encoder=(bertscore, bertscore_layer) if bertscore else None,
        resampling=Resampling(level=level, resamples=resamples, seed=seed),
    )
