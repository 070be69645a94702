"""What a check is, and what it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from rageval_hooks.cli.operations.doctor.setup import Setup
from rageval_hooks.plugins import Registry
from rageval_hooks.runtime.jsonable import Data

__all__ = ["REGISTRY", "Check", "Finding", "Status", "note", "ok", "problem", "warning"]


class Status(StrEnum):
    """How good a finding is. A problem needs an action; a warning may be meant; a note only informs."""

    ok = "ok"
    note = "note"
    warning = "warning"
    problem = "problem"


class Finding(Data):
    """What a check found.

    Attributes:
        status: how good it is.
        message: what was found, in one sentence, without secrets.
        advice: what to do; always given for a problem.
    """

    status: Status
    message: str
    advice: str = ""


def ok(message: str) -> Finding:
    """Return a finding for something that works."""
    return Finding(status=Status.ok, message=message)


def note(message: str, advice: str = "") -> Finding:
    """Return a finding that only informs."""
    return Finding(status=Status.note, message=message, advice=advice)


def warning(message: str, advice: str) -> Finding:
    """Return a finding that may be meant, and may be a mistake."""
    return Finding(status=Status.warning, message=message, advice=advice)


def problem(message: str, advice: str) -> Finding:
    """Return a finding that needs an action."""
    return Finding(status=Status.problem, message=message, advice=advice)


class Check(ABC):
    """Examines one part of a setup. To add a check, add a module with a subclass to the package ``checks``.

    Attributes:
        name: the heading of its findings.
        order: checks run and are printed in this order.
    """

    name: ClassVar[str]
    order: ClassVar[int]

    def seconds(self, setup: Setup) -> float:
        """Return the longest time that the check may take. Override this for a check that asks servers."""
        return 60.0

    @abstractmethod
    def run(self, setup: Setup) -> Iterator[Finding]:
        """Yield what is found. An exception becomes a problem with its message."""


REGISTRY: Registry[Check] = Registry("check", Check, (f"{__package__}.checks",), "rageval_hooks.checks")  # type: ignore[type-abstract]
