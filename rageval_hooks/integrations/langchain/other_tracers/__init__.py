"""The spans that other tracers make for runs of LangChain. One module for each way in which they can be found.

They are read from what the other tracer keeps. Two tracers need a wrapper around one of their methods: Langfuse's
handlers cannot be reached from ours, and LangSmith makes its spans when the run is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from uuid import UUID

from opentelemetry.trace import Span

from rageval_hooks.integrations.capture.other_spans import look_for_other_span, may_have_other_span
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Recording, Run
from rageval_hooks.integrations.langchain.other_tracers import instrumentors, langfuse, langsmith

__all__ = ["note_other_span", "unwatch", "watch"]

_logger = logging.getLogger(__name__)

_recorder = shared_recorder()


def note_other_span(run: Run) -> None:
    """Note the span that another tracer has made for a run in progress, if there is one by now."""
    if not may_have_other_span(run) or not _is_any_active():
        return
    recording = _recorder.recording(run.id)
    if recording is not None:
        look_for_other_span(run, recording, _find_span)


def _is_any_active() -> bool:
    return instrumentors.is_active() or langfuse.is_active() or langsmith.is_active()


def _find_span(run: Run, recording: Recording) -> Span | None:
    """Return the span of another tracer for a run of LangChain; None if it has not made one."""
    run_id = UUID(run.text_id)
    # If several tracers are active, the first one's span gets the scores.
    finders: tuple[Callable[[UUID], Span | None], ...] = (
        instrumentors.find_span,
        langfuse.find_span,
        partial(langsmith.find_span, run=run, recording=recording),
    )
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
    langfuse.watch()
    langsmith.watch()


def unwatch() -> None:
    """Take back what :func:`watch` did."""
    langfuse.unwatch()
    langsmith.unwatch()
