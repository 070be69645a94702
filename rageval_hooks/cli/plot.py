"""``rageval-hooks plot``: draw scored files into one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rageval_hooks.cli import options
from rageval_hooks.cli.output import check_output_option, say, watch_records, write_file
from rageval_hooks.errors import ConfigurationError

_SUFFIXES = (".png", ".svg")


def plot(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scored records, side by side.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: a name that ends in .png or .svg.")],
    metrics: options.Metrics = None,
    kind: Annotated[
        Literal["all", "scores", "consistency"],
        typer.Option("--kind", help="Scores, how much they vary between repeated answers, or both."),
    ] = "all",
    lower_is_better: options.LowerIsBetter = None,
    bertscore: options.BertScoreModel = None,
    bertscore_layer: options.BertScoreLayer = None,
    bertscore_language: options.BertScoreLanguage = "en",
    bertscore_rescale: options.BertScoreRescale = True,
    level: options.Level = 0.95,
    resamples: options.Resamples = 2000,
    seed: options.Seed = 0,
) -> None:
    """Draw scored files: an overview, each score with mean, median and interval, ranks, variation over repeats."""
    from rageval_hooks.offline.report import Resampling, build_report, load_bertscore
    from rageval_hooks.offline.report.plots import draw, panels, to_png, to_svg

    suffix = output.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ConfigurationError(f"--output {output} should end in {' or '.join(_SUFFIXES)}")
    check_output_option(output, files)
    names = options.split_names(metrics)
    report = build_report(
        files,
        metrics=names,
        worst=0,
        compare=False,
        lower=options.split_names(lower_is_better),
        resampling=Resampling(level=level, resamples=resamples, seed=seed),
        scorer=load_bertscore(bertscore, bertscore_layer, bertscore_language, bertscore_rescale),
        watch=watch_records,
        on_problem=say,
    )
    # The similarity of answers is not a score: with --metrics it is plotted only if --kind asks for it.
    shown = panels(report, kind, similarity=not names or kind == "consistency")
    if not shown:
        what = "repeated answers to any question" if kind == "consistency" else "scores with values"
        raise ConfigurationError(f"there is nothing to plot: no {what} in {', '.join(map(str, files))}")
    legend = f"diamond: mean or share with its {level:.0%} interval · box: quartiles and median"
    figure = draw(shown, f"{legend} · line: smallest to largest", [file.name for file in report.files])
    write_file(output, to_png(figure) if suffix == ".png" else to_svg(figure).encode())
