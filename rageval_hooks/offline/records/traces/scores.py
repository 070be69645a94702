"""Scores that this package wrote onto a span."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from rageval_hooks.offline.records.traces.spans import ExportedSpan
from rageval_hooks.score import Result, Score

__all__ = ["scores_of"]

_ANNOTATORS: dict[str, Literal["LLM", "HUMAN"]] = {"LLM": "LLM", "HUMAN": "HUMAN"}


def scores_of(span: ExportedSpan) -> Iterator[Result]:
    """Yield the scores of the whole turn. Scores of single passages may have the same names and are left out."""
    seen: set[str] = set()
    number = 0
    while name := span.text(f"evaluations.{number}.evaluation.name"):
        prefix = f"evaluations.{number}.evaluation."
        value = span.attributes.get(f"{prefix}score")
        # The score of the whole turn is also an attribute by its name.
        is_whole = value is not None and value == span.attributes.get(f"rageval.score.{name}")
        if is_whole and isinstance(value, (int, float)) and name not in seen:
            seen.add(name)
            yield _score(span, name, value, prefix)
        number += 1


def _score(span: ExportedSpan, name: str, value: float, prefix: str) -> Score:
    return Score(
        name=name,
        value=value,
        label=span.text(f"{prefix}label") or None,
        explanation=span.text(f"{prefix}explanation") or None,
        annotator=_ANNOTATORS.get(span.text(f"{prefix}annotator_kind"), "CODE"),
        model=span.text(f"{prefix}identifier") or None,
        metric=span.text("rageval.metric") or None,
    )
