"""Log lines of the background: at a limited rate, and redacted."""

from __future__ import annotations

import logging
import time
import traceback
import weakref
from typing import Protocol

from rageval_hooks.runtime.fork import ForkSafeLock


class Redactor(Protocol):
    """An object that redacts texts, such as a privacy policy."""

    def text(self, text: str) -> str:
        """Return a text without what must not leave the process."""


class LogRedaction:
    """The redactors of this process's pipelines. All of them apply to each line: a line belongs to no pipeline.

    Tracebacks and messages of exceptions may quote texts of the application.
    """

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


class RateLimitedLogger:
    """Writes warnings, at most one per kind and interval, with the number of lines that were held back.

    Args:
        logger: the logger.
        interval: seconds between two lines of the same kind.
    """

    def __init__(self, logger: logging.Logger, interval: float = 60.0) -> None:
        self._logger = logger
        self._interval = interval
        self._lock = ForkSafeLock()
        self._last: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def warn(self, kind: str, message: str, *args: object, error: BaseException | None = None) -> None:
        """Write a warning unless one of this kind was written within the interval.

        Args:
            kind: lines of the same kind are limited together.
            message: the line, with %-style placeholders.
            args: their values.
            error: an exception whose traceback is logged too.
        """
        now = time.monotonic()
        with self._lock:
            last = self._last.get(kind)
            if last is not None and now - last < self._interval:
                self._held[kind] = self._held.get(kind, 0) + 1
                return
            self._last[kind] = now
            held = self._held.pop(kind, 0)
        if held:
            message += f" ({held} more like this were not logged)"
        if LOG_REDACTION.active:
            self._logger.warning("rageval-hooks: %s", LOG_REDACTION.line(message % args if args else message, error))
            return
        self._logger.warning("rageval-hooks: " + message, *args, exc_info=error)
