"""``rageval-hooks metrics``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["metrics"]


class Form(StrEnum):
    """How the list is written."""

    table = "table"
    json = "json"
    markdown = "markdown"


def metrics(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help='These alone; one of your own is named "package.module:name".'),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown tables, one per family, as in the documentation.")
    ] = False,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="NAMES", help="Print which judge calls these metrics take together for a turn."),
    ] = None,
    passages: Annotated[int, typer.Option("--passages", min=0, help="For the plan: passages of the turn.")] = 10,
    nuggets: Annotated[int, typer.Option("--nuggets", min=0, help="For the plan: nuggets in the passages.")] = 10,
    citations: Annotated[
        int, typer.Option("--citations", min=0, help="For the plan: pairs of a sentence and a passage it cites.")
    ] = 10,
) -> None:
    """List the metrics: what their scores mean, and what they need; or the judge calls that some of them take."""
    from rageval_hooks.cli.catalogue import print_metrics, print_plan
    from rageval_hooks.errors import ConfigurationError
    from rageval_hooks.metrics.support.plan import TurnSize

    if as_json and as_markdown:
        raise ConfigurationError("--json and --markdown are two forms of the same list: choose one")
    if plan is None:
        form = Form.json if as_json else Form.markdown if as_markdown else Form.table
        print_metrics(names or [], form.value)
        return
    if names or as_markdown:
        raise ConfigurationError("--plan names its metrics itself, and is printed as text or with --json")
    wanted = [part.strip() for part in plan.split(",") if part.strip()]
    print_plan(wanted, TurnSize(passages=passages, nuggets=nuggets, citations=citations), as_json=as_json)
