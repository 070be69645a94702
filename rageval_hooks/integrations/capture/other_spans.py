"""Spans that other tracers make for the runs of a turn: scores go on theirs, and ours do not repeat them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from opentelemetry.trace import Span

from rageval_hooks.integrations.capture.runs import Recording, Run

__all__ = ["look_for_other_span", "may_have_other_span", "shares_spans"]

_logger = logging.getLogger(__name__)

_STEPS = frozenset({"retriever", "reranker", "llm", "tool"})
"""Kinds of runs that are spans of ours, unless another tracer has made them."""

Find = Callable[[Run, Recording], Span | None]
"""Returns another tracer's span for a run."""

_named: set[str] = set()
"""Names of the tracers that were mentioned in the log."""


def shares_spans(recording: Recording) -> bool:
    """Return True if a turn uses the spans of another tracer, if there is one."""
    return recording.owner.settings.spans in ("auto", "scores")


def may_have_other_span(run: Run) -> bool:
    """Return True for a run whose span matters: the root, or one that is a span of ours."""
    return run.parent is None or run.kind in _STEPS


def look_for_other_span(run: Run, recording: Recording, find: Find) -> None:
    """Note the span that another tracer has made for a run, and for the root of its turn.

    The other tracer may be called before us or after us, so this is called at the start of runs and at their end.

    Args:
        run: a run in progress.
        recording: what it belongs to.
        find: looks for a span of a run of the same framework.
    """
    root = recording.root
    # Once found, the span of a root is looked for again only at the root's own end.
    is_wanted = recording.other_span is None or run is root
    if is_wanted and root.framework is run.framework:
        _look_for_root(recording, find)
    if run is not root and run.kind in _STEPS and shares_spans(recording):
        _look_for_step(run, recording, find)


def _look_for_root(recording: Recording, find: Find) -> None:
    found = _valid(find(recording.root, recording))
    if found is None:
        return
    recording.other_span = found
    if shares_spans(recording):
        recording.selection.caller_waits = True
        _name_once(found)


def _look_for_step(run: Run, recording: Recording, find: Find) -> None:
    found = _valid(find(run, recording))
    if found is None:
        return
    context = found.get_span_context()
    span_id, span_tracer = f"{context.span_id:016x}", _scope_of(found)
    run.details = {**(run.details or {}), "span_id": span_id, "span_tracer": span_tracer}
    recording.other_context = recording.other_context or context
    _name_once(found)


def _valid(span: Span | None) -> Span | None:
    return span if span is not None and span.get_span_context().is_valid else None


def _name_once(span: Span) -> None:
    """Say in the log which tracer makes the spans, so that a missing span of ours is no riddle."""
    scope = _scope_of(span)
    if scope and scope not in _named:
        _named.add(scope)
        _logger.info("rageval-hooks: %s makes spans, so the scores are added to those [RAGEVAL-107]", scope)


def _scope_of(span: Span) -> str | None:
    """Return the name of the tracer that made a span; None if the span does not say."""
    return getattr(getattr(span, "instrumentation_scope", None), "name", None)
