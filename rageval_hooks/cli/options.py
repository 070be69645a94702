"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "BertScoreLanguage",
    "BertScoreLayer",
    "BertScoreModel",
    "BertScoreRescale",
    "Level",
    "LowerIsBetter",
    "Metrics",
    "Resamples",
    "Seed",
    "split_names",
]

Metrics = Annotated[
    str | None, typer.Option("--metrics", metavar="NAMES", help="Only these scores, such as groundedness,cost.")
]
LowerIsBetter = Annotated[
    str | None,
    typer.Option("--lower-is-better", metavar="NAMES", help="Scores of your own for which lower values are better."),
]
BertScoreModel = Annotated[
    str | None, typer.Option("--bertscore", metavar="MODEL", help="Also compare repeated answers with this encoder.")
]
BertScoreLayer = Annotated[
    int | None, typer.Option("--bertscore-layer", min=0, help="The encoder's layer, for a model without a known one.")
]
BertScoreLanguage = Annotated[
    str, typer.Option("--bertscore-language", metavar="CODE", help="Language of the answers; selects the baseline.")
]
BertScoreRescale = Annotated[
    bool,
    typer.Option(
        "--bertscore-rescale/--no-bertscore-rescale", help="Rescale BERTScore with the baseline of unrelated texts."
    ),
]
Level = Annotated[float, typer.Option("--level", min=0.51, max=0.9999, help="Confidence of the intervals.")]
Resamples = Annotated[int, typer.Option("--resamples", min=100, max=100_000, help="Bootstrap samples.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed for the random numbers of intervals and tests.")]


def split_names(given: str | None) -> list[str]:
    """Return the names of an option that takes several, separated by commas."""
    parts = [part.strip() for part in (given or "").split(",")]
    # Without the empty ones: a trailing comma is no name.
    return [part for part in parts if part]
