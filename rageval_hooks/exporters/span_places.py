"""Which steps have spans, and which span lists a passage."""

from __future__ import annotations

from typing import NamedTuple

from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import Step, StepKind, Turn

_RAG_STEPS = frozenset[StepKind]({"retriever", "reranker", "llm", "tool"})


class PassagePlace(NamedTuple):
    """Where a passage is listed.

    Attributes:
        span_id: the span of the retriever or reranker that found it, 16 hex digits.
        position: the passage's position among that span's documents, from 0.
        in_documents: True if that span lists its documents under OpenInference's names, as ours do. Spans of other
            conventions have them as JSON, or not at all.
    """

    span_id: str
    position: int
    in_documents: bool = True


def has_span(step: Step, spans: SpanSelection) -> bool:
    """Return True if a step becomes a span of ours. Steps with a span of another tracer do not get a second one."""
    if step.span_id is not None or spans == "scores":
        return False
    return spans == "all" or step.kind in _RAG_STEPS


def passage_place(turn: Turn, index: int | None, spans: SpanSelection) -> PassagePlace | None:
    """Return the span that lists a passage of a turn; None if no span does.

    Args:
        turn: the turn.
        index: position of the passage in the turn.
        spans: which steps of a turn become spans. Spans of other tracers are found all the same.
    """
    located = None if index is None else turn.locate_passage(index)
    if located is None:
        return None
    step, position = located
    if step.span_id is None and not has_span(step, spans):
        return None
    span_id = turn.step_span_id(step)
    if span_id is None:
        return None
    ours = step.span_id is None
    by_openinference = (step.span_tracer or "").startswith("openinference.") and step.kind in ("retriever", "reranker")
    return PassagePlace(span_id, position, ours or by_openinference)
