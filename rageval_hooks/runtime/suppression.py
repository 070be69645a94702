"""Suppression: while our own code runs (judges, metrics, callbacks), integrations ignore all events.

:func:`suppressed` hides work from our own integrations only, so that a user's callback can still be traced.
:func:`quiet_context` and :func:`quietly` also hide it from other instrumentations and from the logs of HTTP clients.
They are for requests of ours that the application did not make, such as those to a judge.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, TypeVar

from opentelemetry import context as otel_context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

T = TypeVar("T")

_suppressed: ContextVar[bool] = ContextVar("rageval_hooks_suppressed", default=False)

_OTHER_INSTRUMENTATIONS = (
    _SUPPRESS_INSTRUMENTATION_KEY,  # OpenTelemetry and OpenInference
    "suppress_instrumentation",  # older OpenTelemetry instrumentations
    "suppress_language_model_instrumentation",  # OpenLLMetry
)
_CLIENT_LOGGERS = (
    "openai._base_client",
    *(f"httpx{version}" for version in ("", "2")),
    *(f"httpcore{version}.{part}" for version in ("", "2") for part in "connection http11 http2 proxy socks".split()),
)


is_suppressed: Callable[[], bool] = _suppressed.get
"""Return True if the current context belongs to our own code. Integrations ignore every event in it."""


def suppress() -> None:
    """Suppress events in the current context and in what starts from it. This cannot be undone: use a new context."""
    _suppressed.set(True)


@contextmanager
def suppressed() -> Iterator[None]:
    """Suppress events of what runs in a block, on this thread."""
    token = _suppressed.set(True)
    try:
        yield
    finally:
        _suppressed.reset(token)


async def quietly(call: Coroutine[Any, Any, T], timeout: float) -> T:
    """Await a call in a :func:`quiet_context`.

    Args:
        call: the coroutine.
        timeout: seconds.

    Raises:
        TimeoutError: it took longer; it has been cancelled.
    """
    task = asyncio.get_running_loop().create_task(call, context=quiet_context())
    return await asyncio.wait_for(task, timeout)


def quiet_context() -> Context:
    """Return a context in which calls are neither traced nor evaluated nor logged by client libraries.

    It is a new context, not a copy: it has none of the caller's spans, callbacks, run trees and baggage.
    """
    context = Context()
    context.run(_silence)
    return context


def _silence() -> None:
    suppress()
    current = otel_context.get_current()
    for key in _OTHER_INSTRUMENTATIONS:
        current = otel_context.set_value(key, True, current)
    otel_context.attach(current)
    for name in _CLIENT_LOGGERS:
        logging.getLogger(name).addFilter(_filter)  # a filter that is already there is not added again


class _SuppressedFilter(logging.Filter):
    """Drops what client libraries log in a suppressed context: a line per request, in old versions with the prompt."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is kept."""
        return record.levelno >= logging.WARNING or not is_suppressed()


_filter = _SuppressedFilter()
