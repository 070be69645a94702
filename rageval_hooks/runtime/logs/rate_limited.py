"""Log lines at a limited rate: one per minute and kind, with the number of lines that were held back."""

from __future__ import annotations

import logging
import time

from rageval_hooks.runtime.executors import ForkSafeLock
from rageval_hooks.runtime.logs.redaction import LOG_REDACTION

__all__ = ["RateLimitedLogger"]


class RateLimitedLogger:
    """Writes warnings, at most one per kind and interval.

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
