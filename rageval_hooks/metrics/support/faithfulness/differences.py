"""Small differences between a sentence of the response and the sentences of the passages that support it best.

A name, a number, a negation or an opposite makes a sentence wrong whose words nearly all occur in the passages.
Similarity does not see this, so it is counted here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, NamedTuple

from rageval_hooks.metrics.support.faithfulness.context import MOST_PLACES, Context
from rageval_hooks.metrics.support.faithfulness.line import Token, tokens_of
from rageval_hooks.metrics.support.faithfulness.negation import negated_span, negated_words, plain_words
from rageval_hooks.metrics.support.faithfulness.replacements import Budget, replaced
from rageval_hooks.metrics.support.faithfulness.roles import opposed, swapped_roles, unbound_names
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.sequence import NOT, WordSequence
from rageval_hooks.text.word_lists.opposites import NEGATIONS, opposites_of
from rageval_hooks.text.words import Line

__all__ = ["Claim", "Comparison", "Differences"]

_COPIED: Final = 3
"""Words in the same order that count as copied."""

_MARGIN: Final = 4
"""Words before the part of a sentence that a response takes up, where its negation may be."""

_OWN_MARGIN: Final = 2
"""The same in the sentence of the response."""

_NEGATED_NEAR: Final = 6
"""Words around a word in which a negation may be about it."""

_CERTAIN: Final = 0.75
"""How much of a sentence its evidence must have before a changed negation is listed as a wrong fact."""


class Claim(NamedTuple):
    """What a sentence says and its evidence says otherwise.

    Attributes:
        kind: names in swapped roles, or a negation that was added or removed.
        start: where it starts in the response.
        end: where it ends.
    """

    kind: Literal["role", "negation"]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """How a sentence differs from its best evidence; also summed over sentences.

    Attributes:
        words: words of the sentence.
        pairs: neighbouring words that the passages have as neighbours too.
        copied: words in runs of three or more that the passages have in the same order.
        names: names that the passages have, but not the best evidence.
        numbers: numbers that the passages have, but not the best evidence.
        negated: 0, or how much of the sentence the evidence has if only the sentence is negated.
        opposites: words whose opposite the evidence has, times how much of the sentence it has.
        opposed: words, each with how much better its opposite fits to its neighbours in the passages.
        unbound_names: names, each with the share of its neighbours that is nowhere near it in the passages.
        swapped: pairs of names in swapped roles: the same verb is between them in the passages, the other way round.
        added: how much of the sentence the evidence has if the sentence negates a word that it does not negate.
        dropped: the same if the evidence negates a word that the sentence does not negate.
        replaced_roles: names of the sentence in whose place the passages have another one of its names.
        replaced_names: names in whose place the passages have a name that the sentence does not have.
        replaced_numbers: numbers in whose place the passages have another one.
        replaced_opposites: words in whose place the passages have their opposite.
        replaced_negations: "not" where the passages have none, and the other way round.
    """

    words: float = 0
    pairs: float = 0
    copied: float = 0
    names: float = 0
    numbers: float = 0
    negated: float = 0
    opposites: float = 0
    opposed: float = 0
    unbound_names: float = 0
    swapped: float = 0
    added: float = 0
    dropped: float = 0
    replaced_roles: float = 0
    replaced_names: float = 0
    replaced_numbers: float = 0
    replaced_opposites: float = 0
    replaced_negations: float = 0

    @classmethod
    def total(cls, parts: Iterable[Differences]) -> Differences:
        """Return the sum over sentences."""
        found = list(parts)
        return cls(**{field.name: sum(getattr(part, field.name) for part in found) for field in fields(cls)})

    def notes(self) -> tuple[str, ...]:
        """Say in words what differs."""
        found = {
            "names from elsewhere in the passages": self.names,
            "numbers from elsewhere in the passages": self.numbers,
            "negated": self.negated + self.added,
            "a negation is missing": self.dropped,
            "a negation differs": self.replaced_negations,
            "says the opposite": self.opposites + self.opposed + self.replaced_opposites,
            "names in swapped roles": self.swapped,
            "in place of another name or number": self.replaced_roles + self.replaced_names + self.replaced_numbers,
        }
        return tuple(note for note, count in found.items() if count)


class Comparison:
    """The sentences of a response next to the passages.

    Args:
        response: the response, with its marks blanked.
        sentences: its sentences with their words.
        passages: the passages.
        pause: is called between two steps, and may raise an exception.
    """

    def __init__(
        self,
        response: str,
        sentences: Sequence[Line],
        passages: Sequence[WordSequence],
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        lines = [tokens_of(response, sentence) for sentence in sentences]
        wanted = {token.key for line in lines for token in line}
        opposites = {other for key in wanted for other in opposites_of(key)}
        context = Context.of(passages, wanted | opposites | {NOT})
        self._pairs: list[_Pair] = []
        for line in lines:
            pause()
            self._pairs.append(_Pair(line, context))
        self._pause = pause

    @cached_property
    def claims(self) -> list[Claim]:
        """What the passages say otherwise for sure."""
        return [claim for pair in self._pairs for claim in pair.claims]

    @cached_property
    def differences(self) -> list[Differences]:
        """The differences of each sentence.

        Raises:
            InputTooLargeError: the same words are repeated so often that too many places would have to be compared.
        """
        budget = Budget(self._pause)
        return [pair.differences(budget) for pair in self._pairs]


class _Pair:
    """A sentence of the response and its evidence, if there is any."""

    def __init__(self, line: Sequence[Token], context: Context) -> None:
        self._line = line
        self._context = context
        best = _best_sentences(line, context)
        self._evidence = _Evidence(line, best, context) if best else None

    @cached_property
    def claims(self) -> list[Claim]:
        evidence = self._evidence
        if evidence is None:
            return []
        roles = [Claim("role", start, end) for start, end in swapped_roles(self._line, self._context)]
        if evidence.share < _CERTAIN:
            return roles
        changed = (*evidence.negations_added, *evidence.negations_dropped)
        return [*roles, *(Claim("negation", *negated_span(self._line, key)) for key in changed)]

    def differences(self, budget: Budget) -> Differences:
        line, context, evidence = self._line, self._context, self._evidence
        pairs, copied = _copied(line, context)
        if evidence is None:
            return Differences(words=len(line), pairs=pairs, copied=copied)
        other = replaced(line, context, budget)
        return Differences(
            words=len(line),
            pairs=pairs,
            copied=copied,
            names=evidence.elsewhere(token.key for token in line if token.is_name),
            numbers=evidence.elsewhere(token.key for token in line if token.is_number),
            negated=evidence.negated(),
            opposites=evidence.opposites(),
            opposed=opposed(line, context),
            unbound_names=unbound_names(line, context),
            swapped=sum(claim.kind == "role" for claim in self.claims),
            added=evidence.share if evidence.negations_added else 0.0,
            dropped=evidence.share if evidence.negations_dropped else 0.0,
            replaced_roles=other.roles,
            replaced_names=other.names,
            replaced_numbers=other.numbers,
            replaced_opposites=other.opposites,
            replaced_negations=other.negations,
        )


def _copied(line: Sequence[Token], context: Context) -> tuple[int, int]:
    """Return how many neighbours the passages have as neighbours, and how many words are in copied runs."""
    # By position in the passages, the length of the run that ends there.
    runs: dict[int, int] = {}
    pairs = 0
    copied = [False] * len(line)
    for number, token in enumerate(line):
        places = context.places.get(token.key, [])
        if len(places) > MOST_PLACES:
            # A frequent word may continue a run, and begins none.
            places = [place + 1 for place in runs if context.keys[place + 1] == token.key]
        longer = {place: runs.get(place - 1, 0) + 1 for place in places}
        longest = max(longer.values(), default=0)
        pairs += longest > 1
        if longest >= _COPIED:
            copied[number - longest + 1 : number + 1] = [True] * longest
        runs = longer
    return pairs, sum(copied)


def _best_sentences(line: Sequence[Token], context: Context) -> list[int]:
    """Return the sentence that has most of the line's words by weight, then the one that has most of the others."""
    weights = {token.key: token.weight for token in line if token.is_content}
    found: list[int] = []
    for _ in range(2):
        sums: dict[int, float] = {}
        for key, weight in weights.items():
            for sentence in {context.sentences[place] for place in context.some_places(key)}:
                sums[sentence] = sums.get(sentence, 0.0) + weight
        if not sums:
            break
        best = max(sums, key=lambda sentence: (sums[sentence], -sentence))
        found.append(best)
        has = set(context.words_of(best))
        weights = {key: weight for key, weight in weights.items() if key not in has}
    return found


class _Evidence:
    """A sentence of the response next to its best evidence.

    Args:
        line: the sentence.
        best: the sentences of the passages that have most of its words, the best one first.
        context: the passages.

    Attributes:
        share: how much of the sentence's content words the best evidence has, by weight.
    """

    def __init__(self, line: Sequence[Token], best: Sequence[int], context: Context) -> None:
        self._context = context
        self._own = {token.key for token in line}
        self._near: set[str] = set()
        for sentence in best:
            # A fact may be spread over neighbouring sentences.
            for number in (sentence - 1, sentence, sentence + 1):
                self._near.update(context.words_of(number))
        words = context.words_of(best[0])
        content = {token.key: token.weight for token in line if token.is_content}
        shared = {key: content[key] for key in content.keys() & set(words)}
        self._part = _shared_part(words, shared, _MARGIN)
        # "I am not sure, but it opened in 1869": the negation is not about what both have.
        self._said = _shared_part([token.key for token in line], shared, _OWN_MARGIN)
        self._line_keys = [token.key for token in line]
        self._words = words
        # The best sentence has a content word, so the sum is not 0.
        self.share = sum(shared.values()) / sum(content.values())

    def elsewhere(self, keys: Iterable[str]) -> int:
        """Return how many words only other sentences of the passages have."""
        return sum(key in self._context.places and key not in self._near for key in set(keys))

    def negated(self) -> float:
        """Return the share that the evidence has if only the sentence is negated."""
        if NEGATIONS.isdisjoint(self._said) or not NEGATIONS.isdisjoint(self._part):
            return 0.0
        return self.share

    @cached_property
    def negations_added(self) -> list[str]:
        """The words that the sentence negates and the passages never negate."""
        negated = negated_words(self._line_keys)
        found = negated & plain_words(self._words) if negated else negated
        return sorted(key for key in found if not self._is_near_negation(key))

    @cached_property
    def negations_dropped(self) -> list[str]:
        """The words that the evidence always negates and the sentence does not negate."""
        negated = negated_words(self._words)
        if not negated or not NEGATIONS.isdisjoint(self._own):
            return []
        found = (negated & plain_words(self._line_keys)) - plain_words(self._words)
        return sorted(key for key in found if self._is_always_negated(key))

    def _is_near_negation(self, key: str) -> bool:
        return any(self._negations_near(place) for place in self._context.some_places(key))

    def _is_always_negated(self, key: str) -> bool:
        return all(self._negations_near(place) for place in self._context.some_places(key))

    def _negations_near(self, place: int) -> bool:
        words = self._context.keys[max(0, place - _NEGATED_NEAR) : place + _NEGATED_NEAR]
        return not NEGATIONS.isdisjoint(words)

    def opposites(self) -> float:
        """Return how many words have their opposite in the evidence, times the share that the evidence has."""
        part = set(self._part)
        new = self._own - part
        return self.share * sum(bool((opposites_of(key) & part) - self._own) for key in new)


def _shared_part(keys: Sequence[str], shared: Collection[str], margin: int) -> Sequence[str]:
    """Return the part of a sentence from its first shared word, and some words before it, to its last one."""
    matched = [position for position, key in enumerate(keys) if key in shared]
    if not matched:
        return ()
    return keys[max(0, matched[0] - margin) : matched[-1] + 2]
