"""``rageval-hooks report``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rageval_hooks.cli.options import BertScoreLayer, BertScoreModel, Level, LowerIsBetter, Resamples

__all__ = ["report", "split_names"]


class Format(StrEnum):
    """How a report is written."""

    table = "table"
    markdown = "markdown"
    json = "json"
    html = "html"


def report(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scored records; the first is the baseline.")],
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="NAMES", help="Report these scores alone: groundedness,cost.")
    ] = None,
    format: Annotated[
        Format | None, typer.Option("--format", help="By default a table, or what the name of the output says.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report into this file.")] = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option("--fail-under", metavar="SCORE=NUMBER", help="Exit with 1 if a mean is worse. Repeatable."),
    ] = None,
    fail_on_regression: Annotated[
        Path | None,
        typer.Option("--fail-on-regression", metavar="FILE", help="Exit with 1 if a score is worse than in FILE."),
    ] = None,
    alpha: Annotated[
        float, typer.Option("--alpha", min=0.0, max=1.0, help="Probability of a false alarm, over all scores.")
    ] = 0.05,
    lower_is_better: LowerIsBetter = None,
    worst: Annotated[int, typer.Option("--worst", min=0, max=1000, help="How many of the worst turns to show.")] = 10,
    worst_by: Annotated[
        str | None, typer.Option("--worst-by", metavar="SCORE", help="The score that says which turns are the worst.")
    ] = None,
    bertscore: BertScoreModel = None,
    bertscore_layer: BertScoreLayer = None,
    level: Level = 0.95,
    resamples: Resamples = 2000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of intervals and tests.")] = 0,
) -> None:
    """Say what is in scored files: means with intervals, ranks, documents, repeats, the worst turns, differences."""
    from rageval_hooks.cli.reporting import run_report
    from rageval_hooks.offline.report.gates import parse_bounds
    from rageval_hooks.offline.report.statistics import Resampling

    run_report(
        files,
        metrics=split_names(metrics),
        format=format.value if format else None,
        output=output,
        bounds=parse_bounds(fail_under or ()),
        baseline=fail_on_regression,
        alpha=alpha,
        lower=split_names(lower_is_better),
        worst=worst,
        worst_by=worst_by,
        encoder=(bertscore, bertscore_layer) if bertscore else None,
        resampling=Resampling(level=level, resamples=resamples, seed=seed),
    )


def split_names(given: str | None) -> list[str]:
    """Return the names of an option that takes several."""
    return [part.strip() for part in (given or "").split(",") if part.strip()]
