"""Options that ``report`` and ``plot`` share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["BertScoreLayer", "BertScoreModel", "Level", "LowerIsBetter", "Resamples"]

LowerIsBetter = Annotated[
    str | None, typer.Option("--lower-is-better", metavar="NAMES", help="Scores of your own that count so.")
]
BertScoreModel = Annotated[
    str | None, typer.Option("--bertscore", metavar="MODEL", help="Compare repeated answers with this encoder, too.")
]
BertScoreLayer = Annotated[
    int | None, typer.Option("--bertscore-layer", min=0, help="The encoder's layer, if it is not a known model.")
]
Level = Annotated[float, typer.Option("--level", min=0.51, max=0.9999, help="Of confidence of intervals.")]
Resamples = Annotated[int, typer.Option("--resamples", min=100, max=100_000, help="Of the bootstrap.")]
