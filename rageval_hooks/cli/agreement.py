"""``rageval-hooks agreement``: how well scores agree with people's labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rageval_hooks.cli import options
from rageval_hooks.cli.output import say
from rageval_hooks.errors import ConfigurationError

if TYPE_CHECKING:
    from rageval_hooks.offline.agreement import LabelledRow
    from rageval_hooks.offline.records.reading import ReadOptions

_MAX_BAD_ROWS = 3

Label = Annotated[
    str, typer.Option("--label", metavar="COLUMN", help="The label, 1 good and 0 bad: a column, or an annotation.")
]
Group = Annotated[
    str | None,
    typer.Option("--group", metavar="COLUMN", help="What names the document of a row. Default: a usual column."),
]


def agreement(
    file: Annotated[Path, typer.Argument(help="Labelled answers: any file that `score` reads or writes.")],
    label: Label = "label",
    group: Group = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="NAMES", help="Local metrics to compute. Default: all, if FILE has no scores."
        ),
    ] = None,
    models: options.ModelNames = None,
    threshold: options.Thresholds = None,
    mapping: options.ColumnNames = None,
    ignore: options.IgnoredColumns = None,
    map_file: options.MapFile = None,
    sheet: options.Sheet = None,
    encoding: options.Encoding = None,
    form: Annotated[Literal["text", "json"], typer.Option("--format")] = "text",
    level: options.Level = 0.95,
    resamples: options.Resamples = 1000,
    seed: options.Seed = 0,
) -> None:
    """Measure how well scores agree with labels of people: AUROC, Cohen's kappa, precision and recall of fail.

    Scores of FILE are used if it has any; otherwise the local metrics are computed. Intervals draw whole documents.

    Exit status: 0, or 2 if nothing could be measured.
    """
    from rageval_hooks.offline.agreement import measure, to_json, to_text

    reading = options.read_options(
        file, ("response",), mapping=mapping, ignore=ignore, map_file=map_file, sheet=sheet, encoding=encoding
    )
    rows = read_labelled(file, label, group, reading)
    if metrics is not None or not any(row.record.results for row in rows):
        rows = with_scores(rows, metrics, models, threshold or [])
    found = measure(rows, seed=seed, resamples=resamples, level=level)
    if not found:
        raise ConfigurationError(f"no score has values for both good and bad rows of {file}")
    typer.echo((to_json if form == "json" else to_text)(found))


def read_labelled(file: Path, label: str, group: str | None, reading: ReadOptions) -> list[LabelledRow]:
    """Return the labelled rows of a file, and say which others cannot be used."""
    from rageval_hooks.offline.agreement import labelled_rows

    rows, bad = labelled_rows(file, label, group, reading, note=say)
    for line in bad[:_MAX_BAD_ROWS]:
        say(line)
    if len(bad) > _MAX_BAD_ROWS:
        say(f"and {len(bad) - _MAX_BAD_ROWS} more rows cannot be used")
    return rows


def with_scores(
    rows: list[LabelledRow], metrics: str | None, models: str | None, thresholds: list[str]
) -> list[LabelledRow]:
    """Return the rows with the scores of local metrics."""
    from rageval_hooks.judges.fake import FakeJudge
    from rageval_hooks.metrics.base import REGISTRY
    from rageval_hooks.models import Models
    from rageval_hooks.offline.running import progress_bar
    from rageval_hooks.offline.scoring.workers import RecordScorer
    from rageval_hooks.online.build import resolve_metrics, resolve_thresholds
    from rageval_hooks.online.engine import Engine
    from rageval_hooks.settings import Settings

    # By default those about support and relevance; latency and cost have no labels.
    default = [name for name, metric in REGISTRY.builtin().items() if metric.default and metric.family == "local"]
    settings = Settings.build(
        metrics=metrics or ",".join(default), models=models, thresholds=", ".join(thresholds) or None
    )
    # Not the judge of the environment: its key may be missing here.
    computed = resolve_metrics(settings.metrics, FakeJudge(), settings, allow_unused_judge=True)
    if asking := [metric.name for metric in computed if metric.asks_judge]:
        raise ConfigurationError(
            f"{', '.join(asking)}: a judge is needed; score the file with `rageval-hooks score` and give its output"
        )
    labels = resolve_thresholds(computed, settings, own=bool(thresholds))
    scorer = RecordScorer(Engine(computed, Models(settings.models), thresholds=labels), (), "all")
    scored = []
    with progress_bar("scoring", len(rows)) as advance:
        for row in rows:
            [record] = scorer.score([row.record.model_copy(update={"results": ()})])
            scored.append(replace(row, record=record))
            advance(1)
    return scored
