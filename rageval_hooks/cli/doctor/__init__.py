"""``rageval-hooks doctor``: check a setup, and say what would happen to a turn.

``setup`` has what a check gets and what it finds, ``checks`` and ``exporters`` the checks, ``examine`` runs them.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

__all__ = ["doctor"]


def doctor(
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, as in instrument(). Repeatable."),
    ] = None,
    no_judge: Annotated[bool, typer.Option("--no-judge", help="Do not send the judge a request.")] = False,
    no_send: Annotated[bool, typer.Option("--no-send", help="Do not send a marked trace and score.")] = False,
    load_models: Annotated[
        bool, typer.Option("--load-models", help="Also load the models that are on this machine.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--timeout", min=0.5, help="Seconds for each server: to answer, to take and to show data.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check models, judge, exporters, settings, versions and clock, and say what would happen to a turn.

    Reads the settings from the environment, as an application does, and from --set. Nothing is downloaded. Exit status:
    0 without problems, 1 with problems, 2 when nothing could be checked.
    """
    from rageval_hooks.cli.doctor.examine import examine, has_problems, print_findings
    from rageval_hooks.cli.doctor.setup import DoctorOptions
    from rageval_hooks.cli.streams import for_stream
    from rageval_hooks.errors import ConfigurationError

    pairs: dict[str, str] = {}
    for position, text in enumerate(given or [], 1):
        name, equals, value = text.partition("=")
        # The text may hold a key, so the message gives its position only.
        if not equals or not name.strip():
            raise ConfigurationError(f"--set number {position} is not of the form NAME=VALUE, such as sample_rate=0.1")
        pairs[name.strip()] = value
    options = DoctorOptions(
        given=pairs, asks_judge=not no_judge, sends=not no_send, loads_models=load_models, seconds=seconds
    )
    found = examine(options)
    if as_json:
        sections = [
            {"check": name, "findings": [finding.model_dump(mode="json") for finding in findings]}
            for name, findings in found.items()
        ]
        text = json.dumps({"ok": not has_problems(found), "sections": sections}, indent=2, ensure_ascii=False)
        typer.echo(for_stream(text, "json", sys.stdout))
    else:
        print_findings(found, sys.stdout)
    raise typer.Exit(1 if has_problems(found) else 0)
