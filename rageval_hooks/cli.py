"""The command line: ``rageval-hooks``."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

import typer

from rageval_hooks.errors import RagevalError
from rageval_hooks.version import __version__

__all__ = ["main"]

app = typer.Typer(
    name="rageval-hooks",
    help="Evaluate every RAG answer, in the application's own traces.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Tier(str, Enum):
    """Which models the demo uses."""

    default = "default"
    lexical = "lexical"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rageval-hooks {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per turn: turn, spans, scores.")
    ] = False,
    otlp: Annotated[
        str | None,
        typer.Option("--otlp", metavar="URL", help="Send the spans to an OTLP/HTTP endpoint too."),
    ] = None,
    models: Annotated[
        Tier, typer.Option("--models", help="What is on this machine, or stand-ins without weights.")
    ] = Tier.default,
    judge: Annotated[
        str | None,
        typer.Option("--judge", metavar="PROVIDER:MODEL", help="Have the answers judged too: openai:gpt-5-mini."),
    ] = None,
) -> None:
    """Run a LangChain chain over a small handbook and show its turns with their spans and scores."""
    from rageval_hooks.demo.run import run_demo

    run_demo(as_json=as_json, otlp=otlp, models=models.value, judge=judge)


def main() -> None:
    """Run the command line; what is wrong is one line on standard error and exit status 2."""
    try:
        app()
    except RagevalError as error:
        typer.echo(f"rageval-hooks: {error}", err=True)
        sys.exit(2)
