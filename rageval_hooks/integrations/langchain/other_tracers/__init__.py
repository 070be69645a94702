"""The spans that other tracers make for runs of LangChain. One module for each way in which they can be found.

They are read from what the other tracer keeps. Two tracers need a wrapper around one of their methods: Langfuse's
handlers cannot be reached from ours, and LangSmith makes its spans when the run is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context

from rageval_hooks.integrations.capture import trace_context
from rageval_hooks.integrations.capture.runs import Recording, Run
from rageval_hooks.integrations.langchain.other_tracers import instrumentors, langfuse, langsmith

__all__ = ["context_of_root", "note_other_span", "unwatch", "watch"]

_logger = logging.getLogger(__name__)


def note_other_span(run: Run) -> None:
    """Note the span that another tracer has made for a run in progress, if there is one by now."""
    if _is_any_active():
        trace_context.note_other_span(run, _find_span)


def context_of_root(run_id: UUID) -> Context | None:
    """Return the current context with another tracer's span for a root that starts; None without such a span.

    The turn is then sampled like that span. Most tracers do not make their spans current.
    """
    if not _is_any_active():
        return None
    span = _first_span(run_id, (instrumentors.find_span, langfuse.find_span))
    return None if span is None else set_span_in_context(span)


def _is_any_active() -> bool:
    return instrumentors.is_active() or langfuse.is_active() or langsmith.is_active()


def _find_span(run: Run, recording: Recording) -> Span | None:
    """Return the span of another tracer for a run of LangChain; None if it has not made one."""
    of_langsmith = partial(langsmith.find_span, run=run, recording=recording)
    return _first_span(UUID(run.text_id), (instrumentors.find_span, langfuse.find_span, of_langsmith))


def _first_span(run_id: UUID, finders: Iterable[Callable[[UUID], Span | None]]) -> Span | None:
    """Return the first span that is found: if several tracers are active, the first one's span gets the scores."""
    for find in finders:
        try:
            span = find(run_id)
        except Exception:  # another version of that tracer, which keeps its spans elsewhere
            _logger.debug("rageval-hooks: spans of another tracer could not be read: %r", find, exc_info=True)
            continue
        if span is not None:
            return span
    return None


def watch() -> None:
    """Note the spans of tracers that cannot be read later."""
    langfuse.METHODS.install()
    langsmith.watch()


def unwatch() -> None:
    """Take back what :func:`watch` did."""
    langfuse.METHODS.remove()
    langsmith.unwatch()
