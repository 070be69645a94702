"""``rageval-hooks demo``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["demo"]


class Tier(StrEnum):
    """Which models the demo uses."""

    default = "default"
    lexical = "lexical"


class Framework(StrEnum):
    """With which framework the demo's application is built."""

    langchain = "langchain"
    llama_index = "llama-index"


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
    framework: Annotated[
        Framework, typer.Option("--framework", help="What the application is built with.")
    ] = Framework.langchain,
) -> None:
    """Run a RAG application over a small handbook and show its turns with their spans and scores."""
    from rageval_hooks.demo.run import run_demo

    run_demo(as_json=as_json, otlp=otlp, models=models.value, judge=judge, framework=framework.value)
