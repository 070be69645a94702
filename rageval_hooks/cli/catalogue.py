"""The metrics, from their own definitions: as a table, JSON or Markdown, or as a plan of judge calls."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import typer

from rageval_hooks.cli.output import print_columns
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import REGISTRY, Metric, ScoreDefinition, Threshold
from rageval_hooks.metrics.support.plan import Plan, SharedCall, TurnSize, plan_calls
from rageval_hooks.text.wording import counted

__all__ = ["find_metrics", "markdown", "print_metrics", "print_plan"]

# The order of the list: what needs no judge comes first.
_FAMILIES = ("local", "judge", "retrieval", "generation", "reference", "consistency", "usage")
_COLUMNS = ("score", "metric", "family", "better", "range", "passes", "needs", "models", "calls", "source", "meaning")

_THRESHOLD_COLUMNS = ("score", "passes", "of", "model", "balanced accuracy", "measured on")
_ABOUT_THRESHOLDS = (
    "The bound at which a score gets the label pass, unless you set another. Balanced accuracy is against human "
    "labels: 0.5 is chance, 1 is perfect. A starting point: measure it on your own texts."
)


def find_metrics(names: Sequence[str] = ()) -> list[Metric]:
    """Return the metrics that are named, or all that are built in or published by installed packages.

    A published one that cannot be created is named on standard error and skipped.

    Raises:
        ConfigurationError: a named metric cannot be created.
    """
    if names:
        _search_current_folder(names)
        found = {metric.name: metric for metric in map(REGISTRY.create, names)}
        return list(found.values())
    metrics: dict[str, Metric] = {}
    for name in dict.fromkeys(REGISTRY.names()):
        try:
            metric = REGISTRY.create(name)
        except ConfigurationError as error:
            # One broken package must not hide the metrics of all others.
            typer.echo(f"rageval-hooks: skipped: {error}", err=True)
        else:
            metrics[metric.name] = metric
    return sorted(metrics.values(), key=_family_order)


def _search_current_folder(names: Sequence[str]) -> None:
    """Let a name such as ``my_metrics:Politeness`` refer to a module in the current folder, as ``python -m`` does."""
    if "" not in sys.path and any(":" in name for name in names):
        sys.path.insert(0, "")


def print_metrics(names: Sequence[str], form: str) -> None:
    """Print the definitions of metrics.

    Args:
        names: the metrics; all if empty.
        form: ``table``, ``json`` or ``markdown``.
    """
    metrics = find_metrics(names)
    if form == "json":
        typer.echo(json.dumps([_as_data(metric) for metric in metrics], indent=2, ensure_ascii=False))
    elif form == "markdown":
        typer.echo(markdown(metrics))
    elif sys.stdout.isatty():
        _print_table(metrics)
    else:
        # A pipe gets one line per score, which grep and cut can read.
        rows: list[tuple[str, ...]] = [_COLUMNS]
        for metric in metrics:
            rows += [_cells(metric, score) for score in _scores(metric)]
        print_columns(rows)


def markdown(metrics: Iterable[Metric]) -> str:
    """Return a Markdown table per family, each under its heading, then one of the default thresholds."""
    families: dict[str, list[Metric]] = {}
    for metric in metrics:
        families.setdefault(metric.family, []).append(metric)
    blocks = [_family_block(family, members) for family, members in families.items()]
    rows = _all_thresholds(chain.from_iterable(families.values()))
    if rows:
        lines = ["### Default thresholds", "", _ABOUT_THRESHOLDS, ""]
        lines += [_row(map(str.capitalize, _THRESHOLD_COLUMNS)), _row(["---"] * len(_THRESHOLD_COLUMNS))]
        lines += [_row([f"`{name}`", *cells]) for name, *cells in rows]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _family_block(family: str, metrics: Iterable[Metric]) -> str:
    head = ("Score", "Meaning", "Range", "Better", "Needs", "Models", "Calls", "Source", "Version")
    lines = [f"### {family.capitalize()}", "", _row(head), _row(["---"] * len(head))]
    for metric in metrics:
        for score in _scores(metric):
            cells = dict(zip(_COLUMNS, _cells(metric, score), strict=True))
            row = [f"`{score.name}`", *(cells[name] for name in ("meaning", "range", "better", "needs", "models"))]
            # A judge metric's version is part of the documentation: its prompts change with it.
            lines.append(_row([*row, metric.calls, metric.source, metric.version]))
    return "\n".join(lines)


def print_plan(names: Sequence[str], size: TurnSize, *, as_json: bool = False) -> None:
    """Print the judge calls that metrics make together for one turn: the steps, the shared calls, and their number.

    Args:
        names: the metrics.
        size: the size of the turn.
        as_json: as JSON instead of text.

    Raises:
        ConfigurationError: no metric is named, or one cannot be created.
    """
    if not names:
        raise ConfigurationError("--plan needs the names of metrics, such as trace,umbrela,nuggets")
    plan = plan_calls(find_metrics(names), size)
    if as_json:
        typer.echo(json.dumps(_plan_data(plan), indent=2))
        return
    # The number of some calls depends on the answers of earlier ones.
    least = "at least " if plan.estimated else ""
    typer.echo(
        f"{least}{_calls(plan.calls)} per turn, in {counted(len(plan.steps), 'step')} "
        f"({size.passages} passages, {size.nuggets} nuggets, {size.citations} citations)"
    )
    for number, step in enumerate(plan.steps, start=1):
        together = ", at the same time" if len(step) > 1 else ""
        typer.echo(f"\nstep {number}{together}")
        for shared in step:
            typer.echo(f"  {_calls(shared.call.count):<9} {shared.call.purpose}: {_users(shared)}")
    if plan.local:
        typer.echo(f"\nwithout a judge: {', '.join(plan.local)}")


def _users(shared: SharedCall) -> str:
    notes = []
    if len(shared.metrics) > 1:
        notes.append("asked once")
    if shared.call.sequential:
        notes.append("one after the other")
    users = ", ".join(shared.metrics)
    return f"{users} ({', '.join(notes)})" if notes else users


def _plan_data(plan: Plan) -> dict[str, Any]:
    return {
        "calls": plan.calls,
        "estimated": plan.estimated,
        "steps": [list(map(_call_data, step)) for step in plan.steps],
        "local": list(plan.local),
    }


def _call_data(shared: SharedCall) -> dict[str, Any]:
    return {
        "key": shared.call.key,
        "purpose": shared.call.purpose,
        "calls": shared.call.count,
        "metrics": list(shared.metrics),
        "after": list(shared.call.after),
        "sequential": shared.call.sequential,
    }


def _calls(count: int) -> str:
    return counted(count, "call")


def _family_order(metric: Metric) -> tuple[int, str]:
    if metric.family in _FAMILIES:
        return _FAMILIES.index(metric.family), ""
    # Families of other packages follow, by name.
    return len(_FAMILIES), metric.family


def _scores(metric: Metric) -> Sequence[ScoreDefinition]:
    """Return the definitions of the scores; a metric without definitions has one score with its name."""
    return metric.scores or (ScoreDefinition(name=metric.name, description="", high=None),)


def _cells(metric: Metric, score: ScoreDefinition) -> tuple[str, ...]:
    models: list[str] = list(metric.models)
    if metric.asks_judge and not models:
        models = ["judge"]
    cells = (
        score.name,
        metric.name,
        metric.family,
        score.direction,
        _range(score),
        ", ".join(map(partial(_passes, score), score.thresholds)),
        ", ".join(metric.requires),
        ", ".join(models),
        metric.calls,
        metric.source,
        score.description,
    )
    return tuple(cell or "-" for cell in cells)


def _range(score: ScoreDefinition) -> str:
    text = f"{score.low:g} or more"
    if score.high is not None:
        text = f"{score.low:g} to {score.high:g}"
    return f"{text} ({score.unit})" if score.unit else text


def _passes(score: ScoreDefinition, threshold: Threshold) -> str:
    """Return the default threshold of a score, with its measured balanced accuracy."""
    accuracy = _accuracy(threshold)
    if model := _model(threshold):
        accuracy = f"{model}: {accuracy}"
    return f"{_bound(score, threshold)} ({accuracy})"


def _threshold_rows(metric: Metric) -> Iterable[tuple[str, ...]]:
    for score in metric.scores:
        for found in score.thresholds:
            of = "each passage" if found.target == "passage" else "the turn"
            cells = (_bound(score, found), of, _model(found) or "-", _accuracy(found), ", ".join(found.sets))
            yield (score.name, *cells)


def _bound(score: ScoreDefinition, threshold: Threshold) -> str:
    sign = ">=" if score.direction == "higher" else "<="
    return f"{sign} {threshold.value:g}"


def _model(threshold: Threshold) -> str:
    """Return the name of the model without its publisher; an empty text for a score without a model."""
    names = [name.rpartition("/")[2] for name in threshold.models if name is not None]
    # One model may be published under two names.
    return ", ".join(dict.fromkeys(names))


def _accuracy(threshold: Threshold) -> str:
    return " to ".join(dict.fromkeys(f"{value:.2f}" for value in threshold.accuracy))


def _as_data(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "family": metric.family,
        "asks_judge": metric.asks_judge,
        "default": metric.default,
        "requires": list(metric.requires),
        "models": list(metric.models),
        "calls": metric.calls,
        "source": metric.source,
        "version": metric.version,
        "scores": [score.model_dump() for score in metric.scores],
    }


def _row(cells: Iterable[str]) -> str:
    # A bar or a line break in a cell would end it.
    escaped = [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _all_thresholds(metrics: Iterable[Metric]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for metric in metrics:
        rows += _threshold_rows(metric)
    return rows


def _print_table(metrics: Sequence[Metric]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    # The other columns do not fit into a terminal; a pipe and --json have them.
    shown = ("score", "better", "range", "needs", "calls", "meaning", "source")
    table = Table(*shown, show_lines=False, header_style="bold", row_styles=("", "dim"))
    family = None
    for metric in metrics:
        if metric.family != family:
            family = metric.family
            table.add_section()
            table.add_row(Text(family.upper(), style="bold"))
        for score in _scores(metric):
            cells = dict(zip(_COLUMNS, _cells(metric, score), strict=True))
            table.add_row(*(Text(cells[name]) for name in shown))
    console.print(table)
    rows = _all_thresholds(metrics)
    if rows:
        thresholds = Table(*_THRESHOLD_COLUMNS, title="default thresholds", header_style="bold", title_justify="left")
        for row in rows:
            thresholds.add_row(*map(Text, row))
        console.print(thresholds, Text(_ABOUT_THRESHOLDS, style="dim"), sep="")
