"""``rageval-hooks metrics``: list the metrics by their own definitions, or the judge calls that some of them take."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Annotated

import typer

from rageval_hooks.cli.options import AsJson, split_names
from rageval_hooks.cli.output import print_columns
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import REGISTRY, Metric, ScoreDefinition
from rageval_hooks.metrics.support.plan import TurnSize, plan_calls
from rageval_hooks.text.wording import counted

# The order of the list: what needs no judge comes first.
_FAMILIES = ("local", "judge", "retrieval", "generation", "reference", "consistency", "usage")
_COLUMNS = ("score", "metric", "family", "better", "range", "passes", "needs", "models", "calls", "source", "meaning")

_FIELDS = ("name", "family", "asks_judge", "default", "requires", "models", "calls", "source", "version")

_THRESHOLD_COLUMNS = ("score", "passes", "of", "model", "balanced accuracy", "measured on")
_ABOUT_THRESHOLDS = (
    "The bound at which a score gets the label pass, unless you set another. Balanced accuracy is against human "
    "labels: 0.5 is chance, 1 is perfect. A starting point: measure it on your own texts."
)


def metrics(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help='Only these; for a metric of your own: "package.module:name".'),
    ] = None,
    as_json: AsJson = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown tables, one per family, as in the documentation.")
    ] = False,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="NAMES", help="Show the judge calls that these metrics make for one turn."),
    ] = None,
    passages: Annotated[int, typer.Option("--passages", min=0, help="For the plan: passages of the turn.")] = 10,
    nuggets: Annotated[int, typer.Option("--nuggets", min=0, help="For the plan: nuggets in the passages.")] = 10,
    citations: Annotated[
        int, typer.Option("--citations", min=0, help="For the plan: pairs of a sentence and a passage it cites.")
    ] = 10,
) -> None:
    """List the metrics, what their scores mean and what they need; or show the judge calls of some metrics."""
    if as_json and as_markdown:
        raise ConfigurationError("--json and --markdown are two forms of the same list: choose one")
    if plan is not None:
        if names or as_markdown:
            raise ConfigurationError(
                "--plan takes the names of its metrics itself, and prints text or, with --json, JSON"
            )
        _print_plan(split_names(plan), TurnSize(passages=passages, nuggets=nuggets, citations=citations), as_json)
        return
    found = _find_metrics(names or [])
    if as_json:
        data = [
            {name: getattr(metric, name) for name in _FIELDS}
            | {"scores": [score.model_dump() for score in metric.scores]}
            for metric in found
        ]
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
    elif as_markdown:
        typer.echo(_markdown(found))
    elif sys.stdout.isatty():
        _print_table(found)
    else:
        # A pipe gets one line per score, which grep and cut can read.
        print_columns([_COLUMNS, *(tuple(cells.values()) for metric in found for cells in _cells(metric))])


def _find_metrics(names: Sequence[str] = ()) -> list[Metric]:
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


def _markdown(found: Iterable[Metric]) -> str:
    """Return a Markdown table per family, each under its heading, then one of the default thresholds."""
    families: dict[str, list[Metric]] = {}
    for metric in found:
        families.setdefault(metric.family, []).append(metric)
    blocks = []
    for family, members in families.items():
        rows = []
        for metric in members:
            for cells in _cells(metric):
                row = [cells[name] for name in ("meaning", "range", "better", "needs", "models")]
                # A judge metric's version is part of the documentation: its prompts change with it.
                rows.append([f"`{cells['score']}`", *row, metric.calls, metric.source, metric.version])
        head = ("Score", "Meaning", "Range", "Better", "Needs", "Models", "Calls", "Source", "Version")
        blocks += [f"### {family.capitalize()}", _markdown_table(head, rows)]
    if rows := [[f"`{name}`", *cells] for metric in found for name, *cells in _thresholds(metric)]:
        table = _markdown_table(tuple(map(str.capitalize, _THRESHOLD_COLUMNS)), rows)
        blocks += ["### Default thresholds", _ABOUT_THRESHOLDS, table]
    return "\n\n".join(blocks)


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    # A bar or a line break in a cell would end it.
    lines = [
        " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row)
        for row in (head, ["---"] * len(head), *rows)
    ]
    return "\n".join(f"| {line} |" for line in lines)


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
            for cells in _cells(metric):
                table.add_row(*(Text(cells[name]) for name in shown))
    Console().print(table)


# --------------------------------------------------------------------------- cells


def _cells(metric: Metric) -> Iterator[dict[str, str]]:
    """Yield the cells of each score by column; a metric without definitions has one score with its name."""
    for score in metric.scores or (ScoreDefinition(name=metric.name, description="", high=None),):
        limits = f"{score.low:g} or more" if score.high is None else f"{score.low:g} to {score.high:g}"
        passes = [
            f"{bound} ({accuracy})" if model == "-" else f"{bound} ({model}: {accuracy})"
            for name, bound, _, model, accuracy, _ in _thresholds(metric)
            if name == score.name
        ]
        models: list[str] = list(metric.models)
        if metric.asks_judge and not models:
            models = ["judge"]
        cells = (
            score.name,
            metric.name,
            metric.family,
            score.direction,
            f"{limits} ({score.unit})" if score.unit else limits,
            ", ".join(passes),
            ", ".join(metric.requires),
            ", ".join(models),
            metric.calls,
            metric.source,
            score.description,
        )
        yield {name: cell or "-" for name, cell in zip(_COLUMNS, cells, strict=True)}


def _thresholds(metric: Metric) -> Iterator[tuple[str, ...]]:
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


# --------------------------------------------------------------------------- plan


def _print_plan(names: Sequence[str], size: TurnSize, as_json: bool) -> None:
    """Print the judge calls that metrics make together for one turn: the steps, the shared calls, and their number.

    Raises:
        ConfigurationError: no metric is named, or one cannot be created.
    """
    if not names:
        raise ConfigurationError("--plan needs the names of metrics, such as trace,umbrela,nuggets")
    plan = plan_calls(_find_metrics(names), size)
    if as_json:
        data = {
            "calls": plan.calls,
            "estimated": plan.estimated,
            "steps": [
                [
                    {
                        "key": shared.call.key,
                        "purpose": shared.call.purpose,
                        "calls": shared.call.count,
                        "metrics": shared.metrics,
                        "after": shared.call.after,
                        "sequential": shared.call.sequential,
                    }
                    for shared in step
                ]
                for step in plan.steps
            ],
            "local": plan.local,
        }
        typer.echo(json.dumps(data, indent=2))
        return
    # The number of some calls depends on the answers of earlier ones.
    least = "at least " if plan.estimated else ""
    typer.echo(
        f"{least}{counted(plan.calls, 'call')} per turn, in {counted(len(plan.steps), 'step')} "
        f"({size.passages} passages, {size.nuggets} nuggets, {size.citations} citations)"
    )
    for number, step in enumerate(plan.steps, start=1):
        typer.echo(f"\nstep {number}{', at the same time' if len(step) > 1 else ''}")
        for shared in step:
            notes = ["asked once"] if len(shared.metrics) > 1 else []
            if shared.call.sequential:
                notes.append("one after the other")
            users = ", ".join(shared.metrics) + (f" ({', '.join(notes)})" if notes else "")
            typer.echo(f"  {counted(shared.call.count, 'call'):<9} {shared.call.purpose}: {users}")
    if plan.local:
        typer.echo(f"\nwithout a judge: {', '.join(plan.local)}")
