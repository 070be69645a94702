"""Spans of Langfuse's callback handlers.

The application makes such a handler for each call, and LangChain does not show a handler to the others. So the method
with which a handler keeps the span of a run is wrapped: it does what it did, and the span can be found by the run.

Private names: ``LangchainCallbackHandler._attach_observation`` and ``_otel_span`` of an observation. Tested with
langfuse 5.0. In a version without them, and from version 6 on, nothing is wrapped, and the scores go on spans of our
own.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any
from uuid import UUID

from opentelemetry.trace import Span

from rageval_hooks.integrations.capture.wrapped_methods import WrappedMethods

_spans: weakref.WeakValueDictionary[UUID, Span] = weakref.WeakValueDictionary()
"""Open spans by run: a span that has ended is soon gone."""


def is_active() -> bool:
    """Return True if the application uses Langfuse's handlers."""
    return bool(_spans)


def find_span(run_id: UUID) -> Span | None:
    """Return the span that a handler of Langfuse has made for a run."""
    return _spans.get(run_id)


def _noting(method: FunctionType) -> Callable[..., Any]:
    def attach_observation(self: Any, run_id: UUID, observation: Any, *args: Any, **kwargs: Any) -> Any:
        span = getattr(observation, "_otel_span", None)
        if isinstance(span, Span):
            _spans[run_id] = span
        return method(self, run_id, observation, *args, **kwargs)

    return attach_observation


METHODS = WrappedMethods(
    "langfuse.langchain.CallbackHandler",
    "LangchainCallbackHandler",
    re.compile("_attach_observation"),
    _noting,
    below=("langfuse", 6),
)
"""The method that is wrapped while ``instrument()`` is in effect."""
