"""Which facts of a response the passages have, and where else the others are found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rageval_hooks.metrics.support.unseen import passage_name
from rageval_hooks.text.facts import Fact, merge_indexes, unsupported_facts

if TYPE_CHECKING:
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis

__all__ = ["FactSupport", "fact_support", "facts_in_unseen"]


# "I grew up near Paris and love it": talk about oneself, which asks for nothing.
_FIRST_PERSON: Final = re.compile(r"(?<!\w)(?:i|my|me)(?!\w)", re.IGNORECASE)

# "What do I need in Paris", "could you", "please list": asks, also without a question mark.
_ASKING: Final = re.compile(
    r"\A\W*(?:who|whom|whose|what|which|when|where|why|how|is|are|was|were|do|does|did|can|could|should|would|will|has|"
    r"have|had|explain|describe|list|name|tell|give|compare|discuss|summari[sz]e|please)(?!\w)",
    re.IGNORECASE,
)


_MAX_LOCATED: Final = 50
"""Facts that are looked for in single unseen passages. The score's metadata has at most as many."""


@dataclass(frozen=True)
class FactSupport:
    """The facts of a response that no passage of the prompt has.

    Attributes:
        missing: those that the question does not have either.
        contradicted: names in swapped roles, and negations that were added or removed, next to the best evidence.
        in_question: those that the question has: the user brought them up, so the answer did not make them up.
    """

    missing: tuple[Fact, ...]
    contradicted: tuple[Fact, ...]
    in_question: tuple[Fact, ...]

    @property
    def unsupported(self) -> tuple[Fact, ...]:
        """All that the score counts."""
        return self.missing + self.contradicted


def fact_support(analysis: TurnAnalysis) -> FactSupport:
    """Compare the facts of the response with the passages of the prompt and with the question."""
    not_in_passages = unsupported_facts(analysis.facts, analysis.prompt_facts)
    # In small talk the user states facts rather than asking about them: people call an answer with these unsupported.
    missing = not_in_passages
    if missing and _asks(analysis.turn.query):
        missing = unsupported_facts(not_in_passages, analysis.query_facts)
    counted = set(missing)
    in_question = tuple(fact for fact in not_in_passages if fact not in counted)
    return FactSupport(tuple(missing), tuple(_contradicted(analysis)), in_question)


def _contradicted(analysis: TurnAnalysis) -> Iterator[Fact]:
    for kind, start, end in analysis.comparison.claims:
        yield Fact(start, end, kind, analysis.turn.response[start:end], ())


def _asks(query: str) -> bool:
    """Return True if a query asks for something; False for a statement in the first person."""
    if "?" in query or _ASKING.match(query):
        return True
    return _FIRST_PERSON.search(query) is None


def facts_in_unseen(facts: Sequence[Fact], analysis: TurnAnalysis) -> list[tuple[str, str]]:
    """Return pairs of a fact's text and the name of a passage that has it but was not in the prompt.

    At most 50 facts are looked for.
    """
    positions = analysis.unseen_positions
    if not positions:
        return []
    # Most facts are in no passage, and one look-up in all of them together shows that.
    together = merge_indexes(analysis.passage_indexes[position].facts for position in positions)
    nowhere = set(unsupported_facts(facts, together))
    rest = [fact for fact in facts if fact not in nowhere][:_MAX_LOCATED]
    found: list[tuple[str, str]] = []
    for position in positions:
        still_missing = unsupported_facts(rest, analysis.passage_indexes[position].facts)
        name = passage_name(analysis.turn, position)
        found += [(fact.text, name) for fact in rest if fact not in still_missing]
        rest = still_missing
    return found
