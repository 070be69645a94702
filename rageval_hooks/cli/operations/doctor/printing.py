"""The report as text, in colour on a terminal, or as JSON."""

from __future__ import annotations

import json
from collections import Counter
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from rageval_hooks.cli.operations.doctor.base import Finding, Status
from rageval_hooks.cli.operations.doctor.examination import Report
from rageval_hooks.text.formatting import flat
from rageval_hooks.text.wording import counted

__all__ = ["as_text", "print_report"]

_COLOURS: Final = {Status.ok: "green", Status.note: "blue", Status.warning: "yellow", Status.problem: "bold red"}
_WIDTH: Final = max(map(len, Status)) + 2


def as_text(report: Report) -> str:
    """Return the report as JSON."""
    data = {"ok": not report.has_problems, **report.model_dump(mode="json")}
    return json.dumps(data, indent=2, ensure_ascii=False)


def print_report(report: Report, stream: TextIO) -> None:
    """Print the report, one line per finding, and what to do below it."""
    # Without a fixed width: a line in a pipe is never broken.
    console = Console(file=stream, highlight=False, emoji=False, markup=False, soft_wrap=True)
    for section in report.sections:
        console.print(Text(section.check, style="bold"))
        for finding in section.findings:
            _print_finding(console, finding)
        console.print()
    console.print(_summary(report))


def _print_finding(console: Console, finding: Finding) -> None:
    line = Text("  ")
    line.append(finding.status.value.ljust(_WIDTH), style=_COLOURS[finding.status])
    # A message may quote a server, which must not control the terminal.
    line.append(flat(finding.message))
    console.print(line)
    if finding.advice:
        console.print(Text(" " * (_WIDTH + 2) + "-> " + flat(finding.advice), style="dim"))


def _summary(report: Report) -> Text:
    counts = Counter(finding.status for section in report.sections for finding in section.findings)
    if counts[Status.problem]:
        return Text(counted(counts[Status.problem], "problem"), style=_COLOURS[Status.problem])
    warnings = f", {counted(counts[Status.warning], 'warning')}" if counts[Status.warning] else ""
    return Text(f"no problems{warnings}", style=_COLOURS[Status.ok])
