"""Annotation configs: with direction and bounds, Phoenix colours a score and scales its chart."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from rageval_hooks.score import Result, Score

__all__ = ["AnnotationConfigs"]

_MOST_NAMES = 200
"""Names of scores. A metric that makes up a name per turn must not fill the server's list of configs."""


class AnnotationConfigs:
    """The configs of the scores seen so far, each to be registered once per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._pending: dict[str, dict[str, Any]] = {}

    def note(self, results: Iterable[Result]) -> None:
        """Remember the configs of new scores."""
        for result in results:
            # Checked without the lock first: after the first turns every name is known.
            if not isinstance(result, Score) or result.name in self._names or len(self._names) >= _MOST_NAMES:
                continue
            with self._lock:
                self._names.add(result.name)
                self._pending[result.name] = _config(result)

    def take(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the configs of some names that were not taken before."""
        with self._lock:
            return [self._pending.pop(name) for name in set(names) if name in self._pending]


def _config(score: Score) -> dict[str, Any]:
    return {
        "name": score.name,
        "type": "CONTINUOUS",
        "optimization_direction": "MAXIMIZE" if score.direction == "higher" else "MINIMIZE",
        "lower_bound": score.low,
        "upper_bound": score.high,
    }
