"""Ids of scores, the same in every process: a score that is sent twice can be told from two scores."""

from __future__ import annotations

import json
from hashlib import blake2b
from uuid import UUID

from rageval_hooks.score import Result, Score
from rageval_hooks.turn import SpanReference

__all__ = ["score_id"]


def score_id(span: SpanReference, result: Result) -> UUID:
    """Return the id of a result: one per turn, score, target and version of the metric.

    Args:
        span: the turn's span.
        result: the result.
    """
    target: list[str | int | None] = []
    if isinstance(result, Score):
        target = [result.target.kind, result.target.index, result.version]
    key = json.dumps([span.trace_id, span.span_id, result.name, *target])
    # Version 4 by its form: some APIs accept no other.
    return UUID(bytes=blake2b(key.encode(), digest_size=16).digest(), version=4)
