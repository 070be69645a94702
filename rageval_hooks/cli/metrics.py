"""``rageval-hooks metrics``: list the metrics by their own definitions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated

import typer

from rageval_hooks.cli.options import AsJson
from rageval_hooks.cli.output import print_columns
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import REGISTRY, Metric, ScoreDefinition

# The order of the list: what needs no judge comes first.
_FAMILIES = ("local", "judge", "retrieval", "generation", "reference", "consistency", "usage")
_FIELDS = ("name", "family", "asks_judge", "default", "requires", "models", "calls", "source", "version")


def metrics(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help='Only these; for a metric of your own: "package.module:name".'),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the metrics, what their scores mean and what they need."""
    found = find_metrics(names or [])
    if as_json:
        data = [
            {name: getattr(metric, name) for name in _FIELDS}
            | {"scores": [score.model_dump() for score in metric.scores]}
            for metric in found
        ]
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif sys.stdout.isatty():
        _print_table(found)
    else:
        # A pipe gets one line per score, which grep and cut can read.
        rows = [cells for metric in found for cells in cells_of(metric)]
        print_columns([list(rows[0]), *(list(cells.values()) for cells in rows)])


def find_metrics(names: Sequence[str] = ()) -> list[Metric]:
    """Return the metrics that are named, or all that are built in or published by installed packages.

    A published one that cannot be created is named on standard error and skipped.

    Raises:
        ConfigurationError: a named metric cannot be created.
    """
    if names:
        # A name such as ``my_metrics:Politeness`` refers to a module in the current folder, as with ``python -m``.
        if "" not in sys.path and any(":" in name for name in names):
            sys.path.insert(0, "")
        return list({metric.name: metric for metric in map(REGISTRY.create, names)}.values())
    found: dict[str, Metric] = {}
    for name in dict.fromkeys(REGISTRY.names()):
        try:
            metric = REGISTRY.create(name)
        except ConfigurationError as error:
            # One broken package must not hide the metrics of all others.
            typer.echo(f"rageval-hooks: skipped: {error}", err=True)
        else:
            found[metric.name] = metric
    # Families of other packages follow, by name.
    order = {family: number for number, family in enumerate(_FAMILIES)}
    return sorted(found.values(), key=lambda metric: (order.get(metric.family, len(order)), metric.family))


def _print_table(found: Sequence[Metric]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # The other columns do not fit into a terminal; a pipe and --json have them.
    shown = ("score", "better", "range", "needs", "calls", "meaning", "source")
    table = Table(*shown, header_style="bold", row_styles=("", "dim"))
    for family, members in groupby(found, key=lambda metric: metric.family):
        table.add_section()
        table.add_row(Text(family.upper(), style="bold"))
        for metric in members:
            for cells in cells_of(metric):
                table.add_row(*(Text(cells[name]) for name in shown))
    Console().print(table)


# --------------------------------------------------------------------------- cells


def cells_of(metric: Metric) -> Iterator[dict[str, str]]:
    """Yield the cells of each score by column; a metric without definitions has one score with its name."""
    for score in metric.scores or (ScoreDefinition(name=metric.name, description="", high=None),):
        limits = f"{score.low:g} or more" if score.high is None else f"{score.low:g} to {score.high:g}"
        passes = [
            f"{bound} ({accuracy})" if model == "-" else f"{bound} ({model}: {accuracy})"
            for name, bound, _, model, accuracy, _ in thresholds_of(metric)
            if name == score.name
        ]
        cells = {
            "score": score.name,
            "metric": metric.name,
            "family": metric.family,
            "better": score.direction,
            "range": f"{limits} ({score.unit})" if score.unit else limits,
            "passes": ", ".join(passes),
            "needs": ", ".join(metric.requires),
            "models": ", ".join(metric.models) or ("judge" if metric.asks_judge else ""),
            "calls": metric.calls,
            "source": metric.source,
            "meaning": score.description,
        }
        yield {name: cell or "-" for name, cell in cells.items()}


def thresholds_of(metric: Metric) -> Iterator[tuple[str, ...]]:
    """Yield the default thresholds of a metric's scores, one cell per column."""
    for score in metric.scores:
        sign = ">=" if score.direction == "higher" else "<="
        for found in score.thresholds:
            of = "each passage" if found.target == "passage" else "the turn"
            # Without publishers, so that a model that is published under two names is named once.
            models = dict.fromkeys(name.rpartition("/")[2] for name in found.models if name is not None)
            accuracy = " to ".join(dict.fromkeys(f"{value:.2f}" for value in found.accuracy))
            cells = (f"{sign} {found.value:g}", of, ", ".join(models) or "-", accuracy, ", ".join(found.sets))
            yield (score.name, *cells)
