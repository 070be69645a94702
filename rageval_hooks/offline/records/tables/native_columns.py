"""The columns of this package's own tables."""

from __future__ import annotations

import re
from functools import cache

from rageval_hooks.metrics.base import REGISTRY

__all__ = ["FIXED", "LABEL", "OPTIONAL", "PROBABILITY", "REASON", "SUFFIXES", "is_known_score"]

FIXED = ("id", "run", "query", "response")
"""The first columns."""

OPTIONAL = ("reference", "target", "rank", "missed", "document", "answerable", "error")
"""The next columns, each if a record of the file has a value for it."""

LABEL = ".label"
REASON = ".reason"
PROBABILITY = ".probability"
SUFFIXES = (LABEL, PROBABILITY, REASON)
"""Suffixes of the columns about a score."""

# Scores by rank: "precision@5", "ap@10", "hit@3".
_BY_RANK = re.compile(r"(precision|ap|hit)@\d+")


def is_known_score(name: str) -> bool:
    """Return True for the name of one of our own metrics or of its scores.

    Other scores are recognized in a table by the columns next to them: label, probability or reason.
    """
    # Ranks are options of metrics, so that their scores are not in the list of names.
    return name in _names() or _BY_RANK.fullmatch(name) is not None


@cache
def _names() -> frozenset[str]:
    metrics = REGISTRY.builtin()
    return frozenset((*metrics, *(score.name for metric in metrics.values() for score in metric.scores)))
