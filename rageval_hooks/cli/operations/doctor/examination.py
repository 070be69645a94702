"""Runs the checks. Each has a time limit, and none can end the others."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rageval_hooks.cli.operations.doctor.base import REGISTRY, Check, Finding, Status, note, problem
from rageval_hooks.cli.operations.doctor.setup import Options, Setup
from rageval_hooks.errors import ConfigurationError, RagevalError
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.runtime.time_limit import within
from rageval_hooks.settings import Settings

__all__ = ["Report", "Section", "examine"]

_LOGGERS = ("rageval_hooks", "opentelemetry")


class Section(Data):
    """What one check found."""

    check: str
    findings: tuple[Finding, ...]


class Report(Data):
    """What all checks found."""

    sections: tuple[Section, ...]

    @property
    def has_problems(self) -> bool:
        """True if something needs an action."""
        return any(finding.status is Status.problem for section in self.sections for finding in section.findings)


def examine(options: Options) -> Report:
    """Run every check. With wrong settings, only their mistakes are reported."""
    with _quiet_logs():
        try:
            setup = Setup(Settings.build(**options.given), options)
        except ConfigurationError as error:
            mistakes = tuple(problem(line, "correct the setting or its variable") for line in str(error).split("; "))
            return Report(sections=(Section(check="settings", findings=mistakes),))
        checks = [kind() for kind in sorted(REGISTRY.builtin().values(), key=lambda kind: kind.order)]
        sections: list[Section] = []
        for check in checks:
            sections.append(_examine(check, setup, sections))
        return Report(sections=tuple(sections))


def _examine(check: Check, setup: Setup, before: Iterable[Section]) -> Section:
    found: list[Finding] = []
    limit = check.seconds(setup)
    try:
        within(lambda: found.extend(check.run(setup)), limit)
    except TimeoutError:
        advice = "a server that is named above or in the settings hangs: check it, or give a longer --timeout"
        found.append(problem(f"not finished after {limit:g} seconds", advice))
    except RagevalError as error:
        # Settings that contradict each other stop several checks; one of them has said so.
        known = {finding.message for section in before for finding in section.findings}
        again = note("not checked, because of the problem above")
        found.append(again if str(error) in known else problem(str(error), "correct what the message names"))
    except Exception as error:
        found.append(problem(f"the check failed: {type(error).__name__}: {error}", "please report this"))
    return Section(check=check.name, findings=tuple(found))


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
