"""Which facts of a response the passages have, and where else the others are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rageval_hooks.metrics.support.unseen import passage_name
from rageval_hooks.text.facts import Fact, unsupported_facts

if TYPE_CHECKING:
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis

__all__ = ["FactSupport", "fact_support", "facts_in_unseen"]


@dataclass(frozen=True)
class FactSupport:
    """The facts of a response that no passage of the prompt has.

    Attributes:
        missing: those that the question does not have either.
        in_question: those that the question has: the user brought them up, so the answer did not make them up.
    """

    missing: tuple[Fact, ...]
    in_question: tuple[Fact, ...]


def fact_support(analysis: TurnAnalysis) -> FactSupport:
    """Compare the facts of the response with the passages of the prompt and with the question."""
    not_in_passages = unsupported_facts(analysis.facts, analysis.prompt_facts)
    missing = unsupported_facts(not_in_passages, analysis.query_facts)
    in_question = tuple(fact for fact in not_in_passages if fact not in missing)
    return FactSupport(tuple(missing), in_question)


def facts_in_unseen(facts: Sequence[Fact], analysis: TurnAnalysis) -> list[tuple[str, str]]:
    """Return pairs of a fact's text and the name of a passage that has it but was not in the prompt."""
    found: list[tuple[str, str]] = []
    rest = list(facts)
    for position in analysis.unseen_positions:
        still_missing = unsupported_facts(rest, analysis.passage_indexes[position].facts)
        name = passage_name(analysis.turn, position)
        found += [(fact.text, name) for fact in rest if fact not in still_missing]
        rest = still_missing
    return found
