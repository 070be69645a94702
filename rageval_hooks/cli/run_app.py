"""``rageval-hooks run-app``: start an application and evaluate its answers, without a change to its code."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["run_app"]


def run_app(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="The command that starts it, such as: python app.py")
    ],
) -> None:
    """Start an application and evaluate its answers. The settings are environment variables: RAGEVAL_METRICS ..."""
    from rageval_hooks.zero_code.launch import launch

    launch(command)
