"""``rageval-hooks doctor``: check a setup, and say what would happen to a turn.

``checks`` has the checks. To add one, write a function that yields findings and name it in ``_run_checks``.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rageval_hooks.cli.options import AsJson

if TYPE_CHECKING:
    from rageval_hooks.cli.doctor.checks import DoctorFinding, Setup

__all__ = ["doctor"]

_COLOURS: Final = {"ok": "green", "note": "blue", "warning": "yellow", "problem": "bold red"}


def doctor(
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, as in instrument(). Repeatable.")
    ] = None,
    no_judge: Annotated[bool, typer.Option("--no-judge", help="Do not send the judge a request.")] = False,
    no_send: Annotated[bool, typer.Option("--no-send", help="Do not send a marked trace and score.")] = False,
    seconds: Annotated[
        float, typer.Option("--timeout", min=0.5, help="Seconds for each server: to answer, to take and to show data.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Make what an application would make of the settings, send a turn through it, and say what became of it.

    Reads the settings from the environment, as an application does, and from --set. Also checks judge, versions and
    clock. Nothing is downloaded. Exit status: 0 without problems, 1 with problems, 2 when nothing could be checked.
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
    try:
        settings = Settings.build(**pairs)
    except ConfigurationError as error:
        found = {"settings": [problem(line, "correct the setting or its variable") for line in str(error).split("; ")]}
    else:
        found = _run_checks(Setup(settings, pairs, not no_judge, not no_send, seconds))
    counts: Counter[str] = Counter(finding.status for findings in found.values() for finding in findings)
    if as_json:
        sections = [{"check": name, "findings": list(map(vars, findings))} for name, findings in found.items()]
        text = json.dumps({"ok": not counts["problem"], "sections": sections}, indent=2, ensure_ascii=False)
        typer.echo(for_stream(text, "json", sys.stdout))
    else:
        _print(found, counts)
    raise typer.Exit(1 if counts["problem"] else 0)


def _run_checks(setup: Setup) -> dict[str, list[DoctorFinding]]:
    """Return what each check finds. Nothing that a check does can end the others."""
    from rageval_hooks.cli.doctor import checks
    from rageval_hooks.errors import RagevalError

    table: dict[str, Callable[[Setup], Iterable[DoctorFinding]]] = {
        "versions": checks.versions,
        "settings": checks.settings,
        "models": checks.models,
        "judge": checks.judge,
        "exporters": checks.exporters,
        "dispatch": checks.dispatch,
        "clock": checks.clock,
        "a turn": checks.turn,
        "traced frameworks": checks.traced,
        "processes": checks.running,
    }
    found: dict[str, list[DoctorFinding]] = {}
    for name, check in table.items():
        known = {finding.message for findings in found.values() for finding in findings}
        findings: list[DoctorFinding] = []
        try:
            findings.extend(check(setup))
        except RagevalError as error:
            # Settings that contradict each other stop several checks; one of them has said so.
            again = checks.note("not checked, because of the problem above")
            new = checks.problem(str(error), "correct what the message names")
            findings.append(again if str(error) in known else new)
        except Exception as error:
            findings.append(checks.problem(f"the check failed: {type(error).__name__}: {error}", "please report this"))
        if findings:
            found[name] = findings
    setup.close()
    return found


def _print(found: dict[str, list[DoctorFinding]], counts: Counter[str]) -> None:
    """Print one line per finding, and what to do below it; in colour on a terminal."""
    from rich.console import Console
    from rich.markup import escape

    from rageval_hooks.text.formatting import flat
    from rageval_hooks.text.wording import counted

    # With soft_wrap, a line in a pipe is never broken.
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    for name, findings in found.items():
        console.print(f"[bold]{name}[/]")
        for finding in findings:
            # A message may quote a server, which must not control the terminal.
            colour = _COLOURS[finding.status]
            console.print(f"  [{colour}]{finding.status:9}[/]{escape(flat(finding.message))}")
            if finding.advice:
                console.print(f"[dim]{'->':>13} {escape(flat(finding.advice))}[/]")
        console.print()
    summary = "no problems" if not counts["problem"] else counted(counts["problem"], "problem")
    if counts["warning"]:
        summary += f", {counted(counts['warning'], 'warning')}"
    console.print(f"[{_COLOURS['problem' if counts['problem'] else 'ok']}]{summary}[/]")
