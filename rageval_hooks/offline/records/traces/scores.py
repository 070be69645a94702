"""Scores that this package wrote onto a span."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Literal

from rageval_hooks.offline.records.traces.spans import ExportedSpan
from rageval_hooks.score import Result, Score

__all__ = ["scores_of"]

_ANNOTATORS: dict[str, Literal["LLM", "HUMAN"]] = {"LLM": "LLM", "HUMAN": "HUMAN"}


def scores_of(span: ExportedSpan) -> Iterator[Result]:
    """Yield the scores of the whole turn. Scores of single passages, which may have the same names, are ignored."""
    seen: set[str] = set()
    # Evaluations are numbered: "evaluations.0.evaluation.name".
    for number in count():
        prefix = f"evaluations.{number}.evaluation."
        name = span.text(f"{prefix}name")
        if not name:
            return
        value = span.attributes.get(f"{prefix}score")
        # The score of the whole turn is also an attribute by its name.
        is_whole = value == span.attributes.get(f"rageval.score.{name}")
        if is_whole and isinstance(value, (int, float)) and name not in seen:
            seen.add(name)
            yield _score(span, name, value, prefix)


def _score(span: ExportedSpan, name: str, value: float, prefix: str) -> Score:
    return Score(
        name=name,
        value=value,
        label=span.text_or_none(f"{prefix}label"),
        explanation=span.text_or_none(f"{prefix}explanation"),
        annotator=_ANNOTATORS.get(span.text(f"{prefix}annotator_kind"), "CODE"),
        model=span.text_or_none(f"{prefix}identifier"),
        metric=span.text_or_none("rageval.metric"),
    )
