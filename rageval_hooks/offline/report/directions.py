"""Which way is better, for any score that a file may have."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import REGISTRY, Direction, ScoreDefinition

__all__ = ["definition_of", "direction_of", "metric_of", "worse"]

_LOWER_WORDS = ("hallucination", "latency", "tokens", "cost", "unsupported", "rmse", "error", "duration")


def direction_of(name: str, metric: str | None = None, lower: Collection[str] = ()) -> Direction:
    """Return whether higher or lower values of a score are better.

    Args:
        name: of the score.
        metric: that made it, if that is known.
        lower: names of scores of which the user says that lower is better.
    """
    if name in lower:
        return "lower"
    definition = definition_of(name, metric)
    if definition is not None:
        return definition.direction
    return "lower" if any(word in name.lower() for word in _LOWER_WORDS) else "higher"


@cache
def definition_of(name: str, metric: str | None = None) -> ScoreDefinition | None:
    """Return what a score means, where a metric that is built in or installed says so."""
    found = _builtin().get(name)
    if found is not None or metric is None or metric in REGISTRY.builtin() or metric not in REGISTRY.names():
        return found
    try:
        scores = REGISTRY.create(metric).scores
    except ConfigurationError:  # somebody else's metric, that cannot be made here
        return None
    return next((definition for definition in scores if definition.name == name), None)


def metric_of(name: str) -> str | None:
    """Return the name of the built-in metric that makes a score; None for anybody else's."""
    return _makers().get(name)


def worse(change: float, direction: Direction) -> bool:
    """Whether a change of a score is one for the worse."""
    return change < 0 if direction == "higher" else change > 0


@cache
def _builtin() -> dict[str, ScoreDefinition]:
    return {definition.name: definition for metric in REGISTRY.builtin().values() for definition in metric.scores}


@cache
def _makers() -> dict[str, str]:
    return {definition.name: name for name, metric in REGISTRY.builtin().items() for definition in metric.scores}
