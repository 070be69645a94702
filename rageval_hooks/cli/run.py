"""``rageval-hooks run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rageval_hooks.cli.ending import resumable

__all__ = ["run"]


def run(
    data: Annotated[Path, typer.Argument(help="Test set: JSONL, JSON, CSV or Parquet with a column of questions.")],
    app: Annotated[
        str,
        typer.Option(
            "--app",
            metavar="PACKAGE.MODULE:OBJECT",
            help="A LangChain runnable, a LlamaIndex query engine, a function of a question that returns the answer or "
            "(answer, passages), or a function without arguments that makes one of these.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the records go: .jsonl, for score.")],
    input_key: Annotated[
        str | None, typer.Option("--input-key", metavar="NAME", help="Where a runnable of mappings has the question.")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Times that each question is asked.")] = 1,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Questions at a time.")] = 4,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds for each question.")] = 300.0,
    errors: Annotated[
        Path | None, typer.Option("--errors", help="Where rows go that are no questions. Default: beside the output.")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Forget what an interrupted run has left, and begin anew.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Keep the answers in the output that is there, ask what failed.")
    ] = False,
) -> None:
    """Ask an application the questions of a test set. An interrupted run goes on, if the command is given again.

    Exit status: 0 when all were answered, 1 when some failed, 2 when nothing could be done.
    """
    from rageval_hooks.cli.running import RunOptions, run_app

    options = RunOptions(
        data=data,
        app=app,
        output=output,
        input_key=input_key,
        repeat=repeat,
        concurrency=concurrency,
        timeout=timeout,
        errors=errors,
        restart=restart,
        retry_failed=retry_failed,
    )
    with resumable(output):
        status = run_app(options, say=typer.echo, warn=lambda text: typer.echo(text, err=True))
    raise typer.Exit(status)
