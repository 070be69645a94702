"""``rageval-hooks demo``: run a small RAG application and show its turns."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rageval_hooks.cli.options import JudgeName


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per turn: turn, spans, scores.")] = False,
    to: Annotated[
        str | None, typer.Option("--to", metavar="BACKEND", help="Also send spans and scores to mlflow, phoenix …")
    ] = None,
    otlp: Annotated[
        str | None, typer.Option("--otlp", metavar="URL", help="Also send the spans to an OTLP/HTTP endpoint.")
    ] = None,
    models: Annotated[
        Literal["default", "lexical"],
        typer.Option("--models", help="The models on this machine, or stand-ins without weights."),
    ] = "default",
    judge: JudgeName = None,
) -> None:
    """Run a RAG application over a small handbook and show its turns with their spans and scores."""
    from rageval_hooks.demo.run import run_demo

    run_demo(as_json=as_json, to=to, otlp=otlp, models=models, judge=judge)
