"""Facts about a score that reports use: which way is better, its bounds, its unit, its group.

All of it comes from the score's own :class:`ScoreDefinition`. No report names a score: a new metric appears in tables,
plots, gates and comparisons by what it says of itself.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import REGISTRY, Direction, Metric, ScoreDefinition
from rageval_hooks.offline.report.derived import DERIVED, DERIVED_GROUP

__all__ = ["define_score", "direction_of", "group_of", "is_worse", "metric_of", "needs_answer"]

# A score without a definition is better when lower if its name has one of these words, such as "my_latency_ms".
_LOWER_WORDS = ("hallucination", "latency", "tokens", "cost", "unsupported", "rmse", "error", "duration")

_UNKNOWN_GROUP = "custom"


def direction_of(name: str, metric: str | None = None, lower: Collection[str] = ()) -> Direction:
    """Return whether higher or lower values of a score are better.

    Args:
        name: the score.
        metric: the metric that made it, if known.
        lower: scores for which the user says that lower is better.
    """
    if name in lower:
        return "lower"
    return define_score(name, metric).direction


def define_score(name: str, metric: str | None = None) -> ScoreDefinition:
    """Return the definition of a score.

    A score that neither a built-in nor an installed metric defines gets one without an upper bound, and with a
    direction that its name suggests.
    """
    known = _find(name, metric)
    if known is not None:
        return known
    return ScoreDefinition(name=name, description="", direction=_suggested_direction(name), high=None)


def _suggested_direction(name: str) -> Direction:
    words = name.lower()
    return "lower" if any(word in words for word in _LOWER_WORDS) else "higher"


def group_of(name: str, metric: str | None = None) -> str:
    """Return the family of the metric that makes a score, such as ``retrieval`` or ``usage``."""
    if name in DERIVED:
        return DERIVED_GROUP
    made_by = REGISTRY.builtin().get(metric_of(name) or metric or "")
    # Metrics of other packages may name any family; a report groups only those that it knows.
    return made_by.family if made_by is not None else _UNKNOWN_GROUP


def metric_of(name: str) -> str | None:
    """Return the name of the built-in metric that makes a score, or None."""
    found = _builtin().get(name)
    return found[0] if found else None


def needs_answer(metric: str | None) -> bool:
    """Return True if a metric says nothing useful about a question that the documents do not answer."""
    found = REGISTRY.builtin().get(metric or "") or _installed(metric)
    return found is not None and found.answerable_only


def is_worse(change: float, direction: Direction) -> bool:
    """Return True if a change of a score is a change for the worse."""
    if direction == "lower":
        return change > 0
    return change < 0


@cache
def _find(name: str, metric: str | None) -> ScoreDefinition | None:
    # The names of built-in scores are reserved, so the metric that made a score need not be asked.
    if name in _builtin():
        return _builtin()[name][1]
    if name in DERIVED:
        return DERIVED[name]
    made_by = _installed(metric)
    definitions = made_by.scores if made_by else ()
    return next((definition for definition in definitions if definition.name == name), None)


def _installed(metric: str | None) -> Metric | None:
    """Return a metric that another package publishes, if it can be made here."""
    if metric is None or metric in REGISTRY.builtin() or metric not in REGISTRY.names():
        return None
    try:
        return REGISTRY.create(metric)
    except ConfigurationError:  # for example, its package needs a key that this machine lacks
        return None


@cache
def _builtin() -> dict[str, tuple[str, ScoreDefinition]]:
    """Return the built-in scores: name → (metric, definition)."""
    found: dict[str, tuple[str, ScoreDefinition]] = {}
    for name, metric in REGISTRY.builtin().items():
        found.update((definition.name, (name, definition)) for definition in metric.scores)
    return found
