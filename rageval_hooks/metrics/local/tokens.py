"""``tokens``: the tokens that the models of a turn read and wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from rageval_hooks.metrics.base import LocalMetric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.score import Result
from rageval_hooks.turn import UsageSource

COUNTED_BY: Final[Mapping[UsageSource, str]] = {
    "provider": "counted by the provider",
    "tiktoken": "estimated with tiktoken",
    "characters": "estimated from the number of characters",
}
"""How explanations say who counted the tokens."""


def _definition(name: str, description: str) -> ScoreDefinition:
    return ScoreDefinition(name=name, description=description, direction="lower", high=None, unit="tokens")


class Tokens(LocalMetric):
    """Tokens read and written: the provider's own count, else an estimate by tiktoken.

    The estimate counts the query and the passages of the prompt as read, and the response as written. If the provider
    counted some of a turn's model calls, the score is their sum with an estimate for each of the others, from its
    prompt and its text.
    """

    name: ClassVar[str] = "tokens"
    version: ClassVar[str] = "3"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        _definition("tokens", "tokens read and written"),
        _definition("tokens.input", "tokens read"),
        _definition("tokens.output", "tokens written"),
    )
    family: ClassVar[str] = "usage"
    source: ClassVar[str] = "RAG Evaluation Pipeline (Lite)"
    default: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Iterable[Result]:
        """Return the sum and its two parts."""
        usage = analysis.usage
        counts = {
            "tokens": usage.total_tokens,
            "tokens.input": usage.input_tokens,
            "tokens.output": usage.output_tokens,
        }
        for name, count in counts.items():
            yield self.score(count, name, explanation=COUNTED_BY[usage.source], metadata={"source": usage.source})
