"""The exceptions of rageval-hooks.

    RagevalError
    ├── ConfigurationError      a setting is wrong (also a ValueError)
    │   └── UnknownNameError    an unknown name of a metric, exporter or model
    ├── MissingDependencyError  an extra is not installed (also an ImportError)
    ├── ModelUnavailableError   a local model cannot be loaded
    │   └── ModelNotReadyError  it is still loading
    ├── InputTooLargeError      a turn is larger than a metric reads
    ├── OverBudgetError         the time for inline work is used up (never leaves the pipeline)
    ├── JudgeError              a judge gave no usable answer; its kind says why
    │   ├── JudgeRefusedError       the model or its content filter declined
    │   ├── JudgeTruncatedError     the answer was cut off at the limit of tokens
    │   ├── JudgeAnswerError        not JSON, does not fit the schema, numbers out of range
    │   ├── JudgeTooLargeError      the question or the answer is too large
    │   ├── JudgeRateLimitedError   the provider wants fewer requests
    │   ├── JudgeUnavailableError   timeouts, server errors, no connection, circuit open
    │   └── JudgeRejectedError      wrong key, model, URL, certificate or request
    ├── AnswerBlockedError      a guard with on_fail="raise" blocked an answer (defined in rageval_hooks.guard)
    ├── ExportError             something could not be delivered
    └── TurnError               a turn cannot be built from what was given (also a ValueError)

They are raised where users call the library: at construction, in the offline commands, in functions called directly.
None of them ever reaches a request of an instrumented application, except what a guard is asked to raise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


class RagevalError(Exception):
    """Base of every exception that this library raises on purpose."""


class ConfigurationError(RagevalError, ValueError):
    """A setting is wrong, or two settings contradict each other."""


class UnknownNameError(ConfigurationError):
    """An unknown name; the message lists the valid ones.

    Args:
        what: what the name is for, such as ``"metric"``.
        name: the name that was given.
        valid: the names that are accepted.
        hint: one more sentence, such as how to name a custom object.
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
        purpose: what needs the package.
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f'{purpose} needs the package {package!r}: pip install "rageval-hooks[{extra}]"')
        self.package = package
        self.extra = extra


@contextmanager
def requires(package: str, extra: str, purpose: str) -> Iterator[None]:
    """Say which extra to install if the imports in this block fail.

    Args:
        package: the package that is imported.
        extra: the extra of ``rageval-hooks`` that brings it.
        purpose: what needs the package.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(package, extra, purpose) from error


class ModelUnavailableError(RagevalError):
    """A local model cannot be loaded: no such folder, no hub, a missing package, a broken file.

    Args:
        role: which model, such as ``"embedder"``.
        reason: what went wrong and how to fix it, in one sentence.
        retry_after: seconds after which loading it again may succeed; None if it will not.
    """

    def __init__(self, role: str, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"{role}: {reason}")
        self.role = role
        self.reason = reason
        self.retry_after = retry_after


class ModelNotReadyError(ModelUnavailableError):
    """A local model is still loading in the background."""

    def __init__(self, role: str) -> None:
        super().__init__(role, "the model is still loading")


class InputTooLargeError(RagevalError):
    """A turn is larger than a metric reads."""


class OverBudgetError(RagevalError):
    """The inline budget is used up. The work continues in the background."""

    def __init__(self) -> None:
        super().__init__("the inline budget is used up")


class JudgeError(RagevalError):
    """A judge gave no usable answer.

    Args:
        message: what happened, in a short sentence, without keys or texts that were judged.
        details: JSON-able facts for a failed score's metadata: ``model``, ``attempts``, the tokens and cost that
            were spent, ``status``, ``response_id``, and ``refusal`` (the model's own words).

    Attributes:
        kind: the kind of failure, for counters and for ``Failed.error_type``.
    """

    kind: ClassVar[str] = "failed"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class JudgeRefusedError(JudgeError):
    """The model refused to answer, or its provider's content filter stopped it."""

    kind = "refused"


class JudgeTruncatedError(JudgeError):
    """The answer was cut off at the limit of tokens."""

    kind = "truncated"


class JudgeAnswerError(JudgeError):
    """The answer is not JSON, does not fit the schema, or has values outside their range."""

    kind = "invalid_answer"


class JudgeTooLargeError(JudgeError):
    """The question is larger than the model accepts, or the answer larger than the judge accepts."""

    kind = "too_large"


class JudgeRateLimitedError(JudgeError):
    """The provider limits requests, and accepted none within the time limit."""

    kind = "rate_limited"


class JudgeUnavailableError(JudgeError):
    """The judge cannot be reached or does not work: timeouts, server errors, no connection, an open circuit."""

    kind = "unavailable"


class JudgeRejectedError(JudgeError):
    """The judge rejects the request: wrong key, model, URL, certificate or parameters."""

    kind = "rejected"


class ExportError(RagevalError):
    """Something could not be delivered."""


class TurnError(RagevalError, ValueError):
    """A turn cannot be built from what was given."""
