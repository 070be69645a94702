"""``rageval-hooks metrics``: list the metrics, or the judge calls that some of them take."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rageval_hooks.cli.options import split_names

__all__ = ["metrics"]


class Form(StrEnum):
    """The form of the list."""

    table = "table"
    json = "json"
    markdown = "markdown"


def metrics(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help='Only these; for a metric of your own: "package.module:name".'),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
    from rageval_hooks.cli.catalogue import print_metrics, print_plan
    from rageval_hooks.errors import ConfigurationError
    from rageval_hooks.metrics.support.plan import TurnSize

    if as_json and as_markdown:
        raise ConfigurationError("--json and --markdown are two forms of the same list: choose one")
    if plan is None:
        print_metrics(names or [], _form(as_json=as_json, as_markdown=as_markdown).value)
        return
    if names or as_markdown:
        raise ConfigurationError("--plan takes the names of its metrics itself, and prints text or, with --json, JSON")
    print_plan(split_names(plan), TurnSize(passages=passages, nuggets=nuggets, citations=citations), as_json=as_json)


def _form(*, as_json: bool, as_markdown: bool) -> Form:
    if as_json:
        return Form.json
    return Form.markdown if as_markdown else Form.table
