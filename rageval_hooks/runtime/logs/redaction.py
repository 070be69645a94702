"""Redaction of log lines: tracebacks and messages of exceptions may quote texts of the application."""

from __future__ import annotations

import traceback
import weakref
from typing import Protocol

__all__ = ["LOG_REDACTION", "LogRedaction"]


class Redactor(Protocol):
    """An object that redacts texts, such as a privacy policy."""

    def text(self, text: str) -> str:
        """Return a text without what must not leave the process."""


class LogRedaction:
    """The redactors of this process's pipelines. All of them apply to each line: a line belongs to no pipeline."""

    def __init__(self) -> None:
        # Weak references: the redaction ends with the pipeline that asked for it.
        self._redactors: weakref.WeakSet[Redactor] = weakref.WeakSet()

    def add(self, redactor: Redactor) -> None:
        """Redact log lines for as long as this object exists."""
        self._redactors.add(redactor)

    @property
    def active(self) -> bool:
        """True if log lines are redacted."""
        return bool(self._redactors)

    def line(self, message: str, error: BaseException | None) -> str:
        """Return a line with the traceback of an exception, redacted."""
        if error is not None:
            message = "\n".join([message, "".join(traceback.format_exception(error)).rstrip()])
        for redactor in list(self._redactors):
            message = redactor.text(message)
        return message


LOG_REDACTION = LogRedaction()
