"""``rageval-hooks plot``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rageval_hooks.cli.options import BertScoreLayer, BertScoreModel, Level, LowerIsBetter, Resamples

__all__ = ["plot"]


class Plots(StrEnum):
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
    lower_is_better: LowerIsBetter = None,
    bertscore: BertScoreModel = None,
    bertscore_layer: BertScoreLayer = None,
    level: Level = 0.95,
    resamples: Resamples = 2000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the intervals.")] = 0,
) -> None:
    """Draw box plots of scored files, with mean, median and interval; questions answered; variation over repeats."""
    from rageval_hooks.cli.report import split_names
    from rageval_hooks.cli.reporting import run_plot
    from rageval_hooks.offline.report.statistics import Resampling

    run_plot(
        files,
        metrics=split_names(metrics),
        output=output,
        kind=kind.value,
        lower=split_names(lower_is_better),
        encoder=(bertscore, bertscore_layer) if bertscore else None,
        resampling=Resampling(level=level, resamples=resamples, seed=seed),
    )
