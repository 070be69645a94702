"""Which facts of a response the passages have, and where else the others are found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rageval_hooks.metrics.support.unseen import passage_name
from rageval_hooks.text.fact_index import merge_indexes, unsupported_facts
from rageval_hooks.text.facts import Fact
from rageval_hooks.text.negation import negates
from rageval_hooks.text.words import words_of

if TYPE_CHECKING:
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis


_MAX_LOCATED: Final = 50
"""Facts that are looked for in single unseen passages. The score's metadata has at most as many."""


@dataclass(frozen=True)
class FactSupport:
    """The facts of a response that no passage of the prompt has.

    Attributes:
        missing: those that no passage has and the response states.
        contradicted: negations that were added or left out in a sentence that otherwise repeats a passage.
        in_question: facts of the question that no passage has and the response denies: "No, it did not cost 500". What
            it affirms is missing, since a leading question supports nothing.
        stated: words of all facts of the response.
        found: words of the facts that the passages support.
    """

    missing: tuple[Fact, ...]
    contradicted: tuple[Fact, ...]
    in_question: tuple[Fact, ...]
    stated: frozenset[str]
    found: frozenset[str]

    @property
    def unsupported(self) -> tuple[Fact, ...]:
        """All that the score counts."""
        return self.missing + self.contradicted


def fact_support(analysis: TurnAnalysis) -> FactSupport:
    """Compare the facts of the response with the passages of the prompt, and with the question."""
    response = analysis.turn.response
    not_in_passages = unsupported_facts(analysis.facts, analysis.prompt_facts)
    gone = {fact.text for fact in not_in_passages}
    denied = [fact for fact in not_in_passages if _is_denied(fact, analysis)]
    # Most responses deny nothing, and then the question need not be read.
    stated = set(unsupported_facts(denied, analysis.query_facts)) if denied else set()
    in_question = tuple(fact for fact in denied if fact not in stated)
    known = set(in_question)
    missing = (fact for fact in not_in_passages if fact not in known)
    contradicted = (
        Fact(change.start, change.end, "negation", response[change.start : change.end], ())
        for change in analysis.reversals
    )
    return FactSupport(
        missing=tuple(missing),
        contradicted=tuple(contradicted),
        in_question=in_question,
        stated=_words(analysis.facts),
        # "IPL" is in no passage that has "Indian Premier League", and yet it is supported.
        found=_words(fact for fact in analysis.facts if fact.text not in gone),
    )


def _is_denied(fact: Fact, analysis: TurnAnalysis) -> bool:
    """Return True if the sentence with a fact has a negation."""
    return any(negates(analysis.turn.response[a:b]) for a, b in analysis.sentences if a <= fact.start < b)


def _words(facts: Iterable[Fact]) -> frozenset[str]:
    """Return the words of some facts as they are written."""
    found: set[str] = set()
    for text in dict.fromkeys(fact.text for fact in facts):
        words = words_of(text)
        found.update(text[start:end] for start, end in zip(words.starts, words.ends, strict=True))
    return frozenset(found)


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
