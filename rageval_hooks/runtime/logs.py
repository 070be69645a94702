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

    def line(self, text: str) -> str:
        """Return a line without what must not leave the process."""


REDACTORS: weakref.WeakSet[Redactor] = weakref.WeakSet()
"""Redact log lines for as long as they exist: those of this process's pipelines. All of them apply to each line, which
belongs to no pipeline. Tracebacks and messages of exceptions may quote texts of the application."""

_INTERVAL = 60.0
"""Seconds between two lines of the same kind."""


class RateLimitedLogger:
    """Writes warnings, at most one per kind and minute, with the number of lines that were held back.

    Args:
        logger: the logger.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._lock = ForkSafeLock()
        self._last: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def warn(self, kind: str, message: str, *args: object, error: BaseException | None = None) -> None:
        """Write a warning unless one of this kind was written within the last minute.

        Args:
            kind: lines of the same kind are limited together.
            message: the line, with %-style placeholders.
            args: their values.
            error: an exception whose traceback is logged too.
        """
        now = time.monotonic()
        with self._lock:
            last = self._last.get(kind)
            if last is not None and now - last < _INTERVAL:
                self._held[kind] = self._held.get(kind, 0) + 1
                return
            self._last[kind] = now
            held = self._held.pop(kind, 0)
        if held:
            message += f" ({held} more like this were not logged)"
        redactors = list(REDACTORS)
        if not redactors:
            self._logger.warning("rageval-hooks: " + message, *args, exc_info=error)
            return
        line = message % args if args else message
        if error is not None:
            line = "\n".join([line, "".join(traceback.format_exception(error)).rstrip()])
        for redactor in redactors:
            line = redactor.line(line)
        self._logger.warning("rageval-hooks: %s", line)
