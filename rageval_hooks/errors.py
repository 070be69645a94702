"""The exceptions of rageval-hooks.

    RagevalError
    ├── ConfigurationError      a setting is wrong (also a ValueError)
    │   └── UnknownNameError    a metric, exporter or model name that nobody provides
    ├── MissingDependencyError  an extra is not installed (also an ImportError)
    ├── ModelUnavailableError   a local model cannot be had
    │   └── ModelNotReadyError  it is still loading; ask again later
    ├── InputTooLargeError      a turn is larger than a metric reads
    ├── OverBudgetError         the time for inline work is used up (never leaves the pipeline)
    └── TurnError               a turn cannot be built from what was given (also a ValueError)

They are raised where the user calls the library: at construction, in the offline tools, in functions called by hand.
Nothing here ever travels into an instrumented application's request.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "ConfigurationError",
    "InputTooLargeError",
    "MissingDependencyError",
    "ModelNotReadyError",
    "ModelUnavailableError",
    "OverBudgetError",
    "RagevalError",
    "TurnError",
    "UnknownNameError",
]


class RagevalError(Exception):
    """Base of every exception that this library raises on purpose."""


class ConfigurationError(RagevalError, ValueError):
    """A setting is wrong, or two settings contradict each other."""


class UnknownNameError(ConfigurationError):
    """A name that nobody provides; the message lists the valid ones.

    Args:
        what: the kind of thing that was named, such as ``"metric"``.
        name: the name as it was given.
        valid: the names that would have been accepted.
        hint: one more sentence, such as how to name an object of one's own.
    """

    def __init__(self, what: str, name: str, valid: Iterable[str], hint: str = "") -> None:
        from difflib import get_close_matches  # not needed unless something is wrong

        names = sorted(valid)
        close = get_close_matches(name, names, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        message = f"unknown {what} {name!r}.{guess} Valid: {', '.join(names) or '(none)'}."
        super().__init__(f"{message} {hint}".rstrip())
        self.what = what
        self.name = name
        self.valid = tuple(names)


class MissingDependencyError(RagevalError, ImportError):
    """A package of an optional extra is not installed.

    Args:
        package: the package that could not be imported.
        extra: the extra of ``rageval-hooks`` that brings it.
        purpose: what it is needed for.
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f'{purpose} needs the package {package!r}: pip install "rageval-hooks[{extra}]"')
        self.package = package
        self.extra = extra


class ModelUnavailableError(RagevalError):
    """A local model cannot be had: no such folder, no hub, a missing package, a broken file.

    Args:
        role: which model, such as ``"embedder"``.
        reason: what went wrong and how to fix it, in one sentence.
    """

    def __init__(self, role: str, reason: str) -> None:
        super().__init__(f"{role}: {reason}")
        self.role = role
        self.reason = reason


class ModelNotReadyError(ModelUnavailableError):
    """A local model is still loading in the background."""

    def __init__(self, role: str) -> None:
        super().__init__(role, "the model is still loading")


class InputTooLargeError(RagevalError):
    """A turn is larger than a metric reads."""


class OverBudgetError(RagevalError):
    """The time for inline work is used up. What was being computed is computed later, in the background."""

    def __init__(self) -> None:
        super().__init__("the inline budget is used up")


class TurnError(RagevalError, ValueError):
    """A turn cannot be built from what was given."""
