"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rageval_hooks.errors import ConfigurationError

if TYPE_CHECKING:
    from rageval_hooks.offline.records.reading import ReadOptions

Engine = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="local: this machine. ray: a Ray cluster, that of RAY_ADDRESS or a new one."),
]
Metrics = Annotated[
    str | None, typer.Option("--metrics", metavar="NAMES", help="Only these scores, such as groundedness,cost.")
]
ComputedMetrics = Annotated[
    str | None,
    typer.Option("--metrics", metavar="NAME,NAME", help="What to compute. Default: the local default metrics."),
]
BackendUrl = Annotated[
    str | None, typer.Option("--url", help="Base URL of the server. Default: what the variables of the backend say.")
]
BackendProject = Annotated[
    str | None,
    typer.Option("--project", metavar="NAME", help="The project of Phoenix or Langfuse, or the experiment of MLflow."),
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
ModelNames = Annotated[
    str | None, typer.Option("--models", help="'default', 'lexical', or a JSON object with model names.")
]
JudgeName = Annotated[
    str | None,
    typer.Option("--judge", metavar="PROVIDER:MODEL", help="The judge, such as openai:gpt-5-mini; RAGEVAL_JUDGE."),
]
JudgeOptionTexts = Annotated[
    str | None,
    typer.Option(
        "--judge-options", metavar="NAME=VALUE", help="Options of the judge, such as base_url=http://localhost:8000/v1."
    ),
]
Thresholds = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold",
        metavar="NAME=NUMBER",
        help="The bound at which a score passes. NAME=none or none: no label. Repeatable.",
    ),
]
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", min=0, help="The most requests to the judge; then judging stops.")
]
MaxCost = Annotated[float | None, typer.Option("--max-cost", min=0, metavar="USD", help="USD for the judge, at most.")]
ColumnNames = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="FIELD=COLUMN", help="The column of a field, such as passages=contexts[].text. Repeatable."
    ),
]
IgnoredColumns = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="COLUMN", help="A column that is not read. Repeatable.")
]
MapFile = Annotated[
    Path | None,
    typer.Option(
        "--map-file",
        metavar="FILE",
        help="Columns of fields as JSON. Written if there is no such FILE, else read.",
    ),
]
Sheet = Annotated[
    str | None,
    typer.Option("--sheet", metavar="NAME", help="The worksheet, or the array of a JSON document, such as data.rows."),
]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Encoding of text files; detected by default.")]
BadRowsFile = Annotated[
    Path | None, typer.Option("--errors", help="File for rows that cannot be used. Default: next to the output.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say about how many calls there would be, and stop.")]
Restart = Annotated[bool, typer.Option("--restart", help="Ignore an interrupted run, and replace a finished output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Level = Annotated[float, typer.Option("--level", min=0.51, max=0.9999, help="Confidence of the intervals.")]
Resamples = Annotated[int, typer.Option("--resamples", min=100, max=100_000, help="Bootstrap samples.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed for the random numbers of intervals and tests.")]


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> float:
    """Return the seconds of ``30s``, ``15m``, ``2h`` or ``7d``."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text.strip())
    if found is None:
        raise ConfigurationError(f"{text!r} should be a number with a unit, such as 30s, 15m, 2h or 7d")
    return float(found[1]) * _SECONDS[found[2]]


def read_options(
    file: Path,
    required: Sequence[str],
    *,
    mapping: list[str] | None,
    ignore: list[str] | None,
    map_file: Path | None,
    sheet: str | None,
    encoding: str | None,
) -> ReadOptions:
    """Return how to read a file; a map file that does not exist is written, with the columns that were found.

    Raises:
        ConfigurationError: an option is wrong.
        TurnError: the file cannot be read, or lacks a column, and the map was to be written.
    """
    from rageval_hooks.offline.records.columns import ColumnMap
    from rageval_hooks.offline.records.reading import ReadOptions, columns_of

    columns = ColumnMap.parse(mapping or (), ignore or (), map_file)
    options = ReadOptions(columns=columns, sheet=sheet, encoding=encoding)
    if map_file is None or map_file.exists():
        return options
    columns = columns_of(file, required, options)
    columns.write(map_file)
    return replace(options, columns=columns)


def split_names(given: str | None) -> list[str]:
    """Return the names of an option that takes several, separated by commas."""
    parts = [part.strip() for part in (given or "").split(",")]
    # Without the empty ones: a trailing comma is no name.
    return [part for part in parts if part]
