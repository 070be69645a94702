"""Calls that nobody sees: not our own integrations, not other instrumentations, not the log of the client libraries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

from opentelemetry import context as otel_context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

from rageval_hooks.runtime.suppression import is_suppressed, suppress

__all__ = ["quiet_context", "quietly"]

T = TypeVar("T")

_KEYS = (
    _SUPPRESS_INSTRUMENTATION_KEY,  # OpenTelemetry and OpenInference
    "suppress_instrumentation",  # older OpenTelemetry instrumentations
    "suppress_language_model_instrumentation",  # OpenLLMetry
)
_LOGGERS = (
    "openai._base_client",
    *(f"httpx{version}" for version in ("", "2")),
    *(f"httpcore{version}.{part}" for version in ("", "2") for part in "connection http11 http2 proxy socks".split()),
)


async def quietly(call: Coroutine[Any, Any, T], timeout: float) -> T:
    """Await a call in a context of its own.

    The context is a new one and no copy: the caller's spans, callbacks, run trees and baggage are not in it. Our
    integrations ignore what happens in a muted context, other instrumentations what their own switches suppress.

    Args:
        call: the coroutine.
        timeout: seconds.

    Raises:
        asyncio.TimeoutError: it took longer; it has been cancelled.
    """
    context = quiet_context()
    # The task's context is the one in which it is made; the argument for it is new in Python 3.11.
    task = context.run(asyncio.get_running_loop().create_task, call)
    return await asyncio.wait_for(task, timeout)


def quiet_context() -> Context:
    """Return a new context in which calls are neither traced nor evaluated nor logged by client libraries."""
    context = Context()
    context.run(_prepare)
    return context


def _prepare() -> None:
    suppress()
    current = otel_context.get_current()
    for key in _KEYS:
        current = otel_context.set_value(key, True, current)
    otel_context.attach(current)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_filter)  # adds it once


class _MutedFilter(logging.Filter):
    """Drops what client libraries log in a muted context: a line per request, older ones with prompt and answer."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is kept."""
        return record.levelno >= logging.WARNING or not is_suppressed()


_filter = _MutedFilter()
