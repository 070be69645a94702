"""``latency``: the seconds that a turn took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rageval_hooks.metrics.base import Field, LocalMetric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.score import Result


def _definition(name: str, description: str) -> ScoreDefinition:
    return ScoreDefinition(name=name, description=description, direction="lower", high=None, unit="s")


class Latency(LocalMetric):
    """Seconds that the turn took, as a whole and by its parts."""

    name: ClassVar[str] = "latency"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        _definition("latency", "seconds from the start of the turn to its end"),
        _definition("latency.retrieval", "seconds during which a retriever ran"),
        _definition("latency.generation", "seconds during which a model wrote"),
        _definition("latency.time_to_first_token", "seconds from the start to the first token of a streamed answer"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("timing",)
    family: ClassVar[str] = "usage"
    source: ClassVar[str] = "RAG Evaluation Pipeline (Lite)"
    default: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Iterable[Result]:
        """Return the total, and the parts that were timed."""
        timing = analysis.turn.timing
        if timing is None:
            return
        yield self.score(timing.total)
        parts = {
            "retrieval": timing.retrieval,
            "generation": timing.generation,
            "time_to_first_token": timing.time_to_first_token,
        }
        for part, seconds in parts.items():
            if seconds is not None:
                # A clock that is set back gives negative times.
                yield self.score(max(0.0, seconds), f"latency.{part}")
