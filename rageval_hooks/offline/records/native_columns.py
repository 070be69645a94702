"""The columns of our own tables."""

from __future__ import annotations

import re
from functools import cache

from rageval_hooks.metrics.base import REGISTRY

__all__ = ["FIXED", "LABEL", "OPTIONAL", "PROBABILITY", "REASON", "is_known_score"]

FIXED = ("id", "run", "query", "response")
"""The first columns of a table of ours."""

OPTIONAL = ("reference", "target", "rank", "document", "error")
"""The next ones, where a record of the file has such a thing."""

LABEL = ".label"
REASON = ".reason"
PROBABILITY = ".probability"

_BY_RANK = re.compile(r"(precision|ap)@\d+")


def is_known_score(name: str) -> bool:
    """Whether a name is that of one of our own metrics, or of a score of it.

    Another one is known in a table by the columns beside it: its label, its probability, or why it is missing.
    """
    return name in _names() or _BY_RANK.fullmatch(name) is not None


@cache
def _names() -> frozenset[str]:
    metrics = REGISTRY.builtin()
    return frozenset((*metrics, *(score.name for metric in metrics.values() for score in metric.scores)))
