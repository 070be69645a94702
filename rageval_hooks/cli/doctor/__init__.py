"""``rageval-hooks doctor``: check a setup, and say what would happen to a turn.

``checks`` and ``exporters`` have the checks.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rageval_hooks.cli.options import AsJson

if TYPE_CHECKING:
    from rageval_hooks.cli.doctor.checks import Check, DoctorFinding, Setup

__all__ = ["doctor"]

_COLOURS: Final = {"ok": "green", "note": "blue", "warning": "yellow", "problem": "bold red"}
_WIDTH: Final = max(map(len, _COLOURS)) + 2


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
    as_json: AsJson = False,
) -> None:
    """Check models, judge, exporters, settings, versions and clock, and say what would happen to a turn.

    Reads the settings from the environment, as an application does, and from --set. Nothing is downloaded. Exit status:
    0 without problems, 1 with problems, 2 when nothing could be checked.
    """
    from rageval_hooks.cli.doctor.checks import Setup, problem
    from rageval_hooks.cli.output import for_stream
    from rageval_hooks.errors import ConfigurationError
    from rageval_hooks.settings import Settings

    pairs: dict[str, str] = {}
    for position, text in enumerate(given or [], 1):
        name, equals, value = text.partition("=")
        # The text may hold a key, so the message gives its position only.
        if not equals or not name.strip():
            raise ConfigurationError(f"--set number {position} is not of the form NAME=VALUE, such as sample_rate=0.1")
        pairs[name.strip()] = value
    for name in ("rageval_hooks", "opentelemetry"):
        # Findings say in a readable way what is logged. Without any handler, Python would print warnings itself.
        logging.getLogger(name).addHandler(logging.NullHandler())
    found: dict[str, list[DoctorFinding]]
    try:
        settings = Settings.build(**pairs)
    except ConfigurationError as error:
        advice = "correct the setting or its variable"
        found = {"settings": [problem(line, advice) for line in str(error).split("; ")]}
    else:
        found = _examine(
            Setup(
                settings=settings,
                given=pairs,
                asks_judge=not no_judge,
                sends=not no_send,
                loads_models=load_models,
                seconds=seconds,
            )
        )
    counts: Counter[str] = Counter(finding.status for findings in found.values() for finding in findings)
    if as_json:
        sections = [
            {"check": name, "findings": [vars(finding) for finding in findings]} for name, findings in found.items()
        ]
        text = json.dumps({"ok": not counts["problem"], "sections": sections}, indent=2, ensure_ascii=False)
        typer.echo(for_stream(text, "json", sys.stdout))
    else:
        _print(found, counts)
    raise typer.Exit(1 if counts["problem"] else 0)


def _examine(setup: Setup) -> dict[str, list[DoctorFinding]]:
    """Return what each check finds. Nothing that a check does can end the others."""
    from rageval_hooks.cli.doctor import checks
    from rageval_hooks.cli.doctor.checks import note, problem
    from rageval_hooks.cli.doctor.exporters import exporters
    from rageval_hooks.errors import RagevalError

    table: list[Check] = [checks.versions, checks.settings, checks.models, checks.judge, exporters]
    if setup.settings.dispatch == "celery":
        table.append(checks.dispatch)
    found: dict[str, list[DoctorFinding]] = {}
    for check in (*table, checks.clock, checks.turn):
        known = {finding.message for findings in found.values() for finding in findings}
        findings = found["a turn" if check is checks.turn else check.__name__] = []
        try:
            findings.extend(check(setup))
        except RagevalError as error:
            # Settings that contradict each other stop several checks; one of them has said so.
            again = note("not checked, because of the problem above")
            findings.append(again if str(error) in known else problem(str(error), "correct what the message names"))
        except Exception as error:
            findings.append(problem(f"the check failed: {type(error).__name__}: {error}", "please report this"))
    return found


def _print(found: dict[str, list[DoctorFinding]], counts: Counter[str]) -> None:
    """Print one line per finding, and what to do below it; in colour on a terminal."""
    from rich.console import Console
    from rich.text import Text

    from rageval_hooks.text.formatting import flat
    from rageval_hooks.text.wording import counted

    # Without a fixed width: a line in a pipe is never broken.
    console = Console(highlight=False, emoji=False, markup=False, soft_wrap=True)
    for name, findings in found.items():
        console.print(Text(name, style="bold"))
        for finding in findings:
            # A message may quote a server, which must not control the terminal.
            status = (finding.status.ljust(_WIDTH), _COLOURS[finding.status])
            console.print(Text.assemble("  ", status, flat(finding.message)))
            if finding.advice:
                console.print(Text(" " * (_WIDTH + 2) + "-> " + flat(finding.advice), style="dim"))
        console.print()
    if counts["problem"]:
        console.print(Text(counted(counts["problem"], "problem"), style=_COLOURS["problem"]))
    else:
        warnings = f", {counted(counts['warning'], 'warning')}" if counts["warning"] else ""
        console.print(Text(f"no problems{warnings}", style=_COLOURS["ok"]))
