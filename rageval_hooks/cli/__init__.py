"""The command line: ``rageval-hooks``. One module per command; each imports what it runs when it runs."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from rageval_hooks.cli.agreement import agreement
from rageval_hooks.cli.calibrate import calibrate
from rageval_hooks.cli.collect import collect
from rageval_hooks.cli.demo import demo
from rageval_hooks.cli.doctor import doctor
from rageval_hooks.cli.generate import generate
from rageval_hooks.cli.jobs import jobs
from rageval_hooks.cli.metrics import metrics
from rageval_hooks.cli.models import models
from rageval_hooks.cli.output import forgive_encodings
from rageval_hooks.cli.plot import plot
from rageval_hooks.cli.report import report
from rageval_hooks.cli.run import launch, run
from rageval_hooks.cli.score import score
from rageval_hooks.cli.top import top
from rageval_hooks.cli.watch import watch
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


for command in (
    demo,
    generate,
    run,
    metrics,
    score,
    watch,
    collect,
    report,
    plot,
    agreement,
    calibrate,
    doctor,
    top,
    jobs,
):
    app.command()(command)
# Everything after the program's name belongs to the application, options too.
app.command("launch", context_settings={"allow_interspersed_args": False})(launch)
app.add_typer(models, name="models")


def main() -> None:
    """Run the command line. An error is one line on standard error and exit status 2.

    Exit status 1 means that a command found something. An unexpected error prints its traceback, with exit status 2.
    """
    forgive_encodings()
    try:
        app(prog_name="rageval-hooks")
    except Exception as error:
        if isinstance(error, (RagevalError, OSError)):
            from rageval_hooks.text.formatting import shown

            # A message quotes files and answers of judges, which must not control the terminal.
            typer.echo(f"rageval-hooks: {shown(str(error))}", err=True)
        else:
            traceback.print_exc()
        sys.exit(2)
