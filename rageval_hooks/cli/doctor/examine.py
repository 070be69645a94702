"""Runs the checks, each with a time limit, and prints what they found. None can end the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TextIO

from rich.console import Console
from rich.text import Text

from rageval_hooks.cli.doctor import checks, exporters
from rageval_hooks.cli.doctor.setup import DoctorFinding, DoctorOptions, FindingStatus, Setup, note, problem
from rageval_hooks.errors import ConfigurationError, RagevalError
from rageval_hooks.runtime.time_limit import within
from rageval_hooks.settings import Settings
from rageval_hooks.text.formatting import flat
from rageval_hooks.text.wording import counted

__all__ = ["Findings", "examine", "has_problems", "print_findings"]

Findings = dict[str, list[DoctorFinding]]
"""What was found, by the name of the check."""


class _Check(NamedTuple):
    """A check: its heading, the function that yields what it finds, and the seconds that it may take."""

    name: str
    run: Callable[[Setup], Iterator[DoctorFinding]]
    seconds: Callable[[Setup], float] = lambda _: 60.0


_CHECKS: Final = (
    _Check("versions", checks.versions),
    _Check("settings", checks.settings),
    # PyTorch alone takes ten seconds on a slow machine.
    _Check("models", checks.models, lambda setup: setup.settings.models.load_timeout + 30),
    # With the import of the client's package.
    _Check("judge", checks.judge, lambda setup: setup.options.seconds * 2 + 30),
    _Check("exporters", exporters.exporters, exporters.seconds_for_all),
    _Check("clock", checks.clock, lambda setup: 6.0 * (len(checks.servers(setup)) + 1)),
    _Check("a turn", checks.turn),
)

_LOGGERS: Final = ("rageval_hooks", "opentelemetry")

_COLOURS: Final = {
    FindingStatus.ok: "green",
    FindingStatus.note: "blue",
    FindingStatus.warning: "yellow",
    FindingStatus.problem: "bold red",
}
_WIDTH: Final = max(map(len, FindingStatus)) + 2


def examine(options: DoctorOptions) -> Findings:
    """Run every check. With wrong settings, only their mistakes are reported."""
    with _quiet_logs():
        try:
            setup = Setup(Settings.build(**options.given), options)
        except ConfigurationError as error:
            return {
                "settings": [problem(line, "correct the setting or its variable") for line in str(error).split("; ")]
            }
        found: Findings = {}
        for check in _CHECKS:
            found[check.name] = _examine(check, setup, found)
        return found


def _examine(check: _Check, setup: Setup, before: Mapping[str, list[DoctorFinding]]) -> list[DoctorFinding]:
    found: list[DoctorFinding] = []
    limit = check.seconds(setup)
    try:
        within(lambda: found.extend(check.run(setup)), limit)
    except TimeoutError:
        advice = "a server that is named above or in the settings hangs: check it, or give a longer --timeout"
        found.append(problem(f"not finished after {limit:g} seconds", advice))
    except RagevalError as error:
        # Settings that contradict each other stop several checks; one of them has said so.
        known = {finding.message for findings in before.values() for finding in findings}
        again = note("not checked, because of the problem above")
        found.append(again if str(error) in known else problem(str(error), "correct what the message names"))
    except Exception as error:
        found.append(problem(f"the check failed: {type(error).__name__}: {error}", "please report this"))
    return found


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Keep log lines off the terminal: findings say the same in a readable way."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.propagate for logger in loggers]
    handler = logging.NullHandler()
    for logger in loggers:
        logger.propagate = False
        logger.addHandler(handler)  # without a handler, Python prints warnings itself
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.propagate = propagate
            logger.removeHandler(handler)


def has_problems(found: Findings) -> bool:
    """Return True if something needs an action."""
    return any(finding.status is FindingStatus.problem for findings in found.values() for finding in findings)


def print_findings(found: Findings, stream: TextIO) -> None:
    """Print one line per finding, and what to do below it; in colour on a terminal."""
    # Without a fixed width: a line in a pipe is never broken.
    console = Console(file=stream, highlight=False, emoji=False, markup=False, soft_wrap=True)
    for name, findings in found.items():
        console.print(Text(name, style="bold"))
        for finding in findings:
            # A message may quote a server, which must not control the terminal.
            status = (finding.status.value.ljust(_WIDTH), _COLOURS[finding.status])
            console.print(Text.assemble("  ", status, flat(finding.message)))
            if finding.advice:
                console.print(Text(" " * (_WIDTH + 2) + "-> " + flat(finding.advice), style="dim"))
        console.print()
    counts = Counter(finding.status for findings in found.values() for finding in findings)
    if problems := counts[FindingStatus.problem]:
        console.print(Text(counted(problems, "problem"), style=_COLOURS[FindingStatus.problem]))
    else:
        warnings = counts[FindingStatus.warning]
        text = f"no problems, {counted(warnings, 'warning')}" if warnings else "no problems"
        console.print(Text(text, style=_COLOURS[FindingStatus.ok]))
