"""What the library logs while something is tried: the reasons of failures that the exporters only count."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rageval_hooks.judges.failures import MessageCleaner

__all__ = ["RecordedLog", "recorded_log"]

_PREFIX = "rageval-hooks: "


class RecordedLog(logging.Handler):
    """Keeps the warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: list[str] = []
        self._redact = MessageCleaner(())

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        # HTTP clients quote URLs, and a URL may have a key in its query.
        self._lines.append(self._redact(record.getMessage().removeprefix(_PREFIX)))

    @property
    def reason(self) -> str:
        """The first line, which is nearest to the cause; empty without one."""
        return next(iter(self._lines), "")


@contextmanager
def recorded_log() -> Iterator[RecordedLog]:
    """Record what our package and the OpenTelemetry SDK log while the block runs."""
    loggers = [logging.getLogger(name) for name in ("rageval_hooks", "opentelemetry")]
    log = RecordedLog()
    for logger in loggers:
        logger.addHandler(log)
    try:
        yield log
    finally:
        for logger in loggers:
            logger.removeHandler(log)
