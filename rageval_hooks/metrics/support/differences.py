"""Small differences between a sentence of the response and the sentences of the passages that support it best.

A name, a number, a negation, an opposite or an order that differs makes a sentence wrong whose words nearly all occur
in the passages. Similarity does not see this, so it is counted here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from rageval_hooks.text.opposites import NEGATIONS, opposites_of
from rageval_hooks.text.sentences import Span
from rageval_hooks.text.sequence import NOT, WordSequence, negations
from rageval_hooks.text.words import NAME_WEIGHT, WeighedWord, weighed_words

__all__ = ["Context", "Differences", "differences"]

MAX_CONTEXT_WORDS: Final = 100_000
"""Words of the passages that are searched: about 20 ms. Of longer contexts, the first ones."""

_COPIED: Final = 3
"""Words in the same order that count as copied."""

_MARGIN: Final = 4
"""Words before the part of a sentence that a response takes up, where its negation may be."""

_OWN_MARGIN: Final = 2
"""The same in the sentence of the response."""

_GAP: Final = 3
"""Words that may have been put in the place of one."""

_MOST_PLACES: Final = 400
"""Places of one word that are compared. Function words of long contexts have thousands, and prove nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """How a sentence differs from its best evidence; also summed over sentences.

    Attributes:
        words: words of the sentence.
        pairs: pairs of neighbouring words that the passages have as neighbours.
        copied: words in runs of three or more that the passages have in the same order.
        absent: content words that no passage has.
        names: names that the passages have, but not the best evidence.
        numbers: numbers that the passages have, but not the best evidence.
        elsewhere: other content words that the passages have, but not the best evidence.
        negated: negations that the evidence does not have.
        affirmed: negations of the evidence that the sentence does not have.
        opposites: words whose opposite the evidence has in their place.
        replaced: words that stand between the same neighbours as other words of the evidence.
        swapped: pairs of names in another order than in the evidence.
        disorder: the share of the content words that are out of order, times the share that the evidence has.
    """

    words: float = 0
    pairs: float = 0
    copied: float = 0
    absent: float = 0
    names: float = 0
    numbers: float = 0
    elsewhere: float = 0
    negated: float = 0
    affirmed: float = 0
    opposites: float = 0
    replaced: float = 0
    swapped: float = 0
    disorder: float = 0

    @classmethod
    def total(cls, parts: Iterable[Differences]) -> Differences:
        """Return the sum over sentences."""
        found = list(parts)
        return cls(**{field.name: sum(getattr(part, field.name) for part in found) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class Context:
    """The passages as one sequence of words, and where the words of a response occur in it.

    Attributes:
        keys: the keys of all passages, with an empty one between two passages.
        sentences: per key, the number of its sentence, counted through all passages.
        starts: the first word of each sentence.
        places: by key of the response, the positions in ``keys``.
    """

    keys: Sequence[str]
    sentences: Sequence[int]
    starts: Sequence[int]
    places: dict[str, list[int]]

    @classmethod
    def of(cls, passages: Sequence[WordSequence], wanted: set[str]) -> Context:
        """Join passages, and find some keys in them."""
        keys: list[str] = []
        sentences: list[int] = []
        offset = 0
        for passage in passages:
            keys += [*passage.keys, ""]
            # The number that separates passages is never used by a sentence, so evidence ends with its passage.
            sentences += [offset + number for number in passage.sentences]
            offset = (sentences[-1] if sentences else offset) + 2
            sentences.append(offset - 1)
            if len(keys) > MAX_CONTEXT_WORDS:
                break
        places: dict[str, list[int]] = {}
        for position, key in enumerate(keys):
            if key in wanted:
                places.setdefault(key, []).append(position)
        starts = [bisect_left(sentences, number) for number in range(sentences[-1] + 2)] if sentences else [0]
        return cls(keys, sentences, starts, places)

    def words_of(self, sentence: int) -> Sequence[str]:
        """Return the keys of a sentence."""
        if not 0 <= sentence < len(self.starts) - 1:
            return ()
        return self.keys[self.starts[sentence] : self.starts[sentence + 1]]


@dataclass(frozen=True, slots=True)
class _Token:
    key: str
    weight: float
    is_number: bool

    @property
    def is_content(self) -> bool:
        return self.weight >= 1


def differences(response: str, spans: Sequence[Span], passages: Sequence[WordSequence]) -> list[Differences]:
    """Return the differences of each sentence of a response.

    Args:
        response: the response, with its marks blanked.
        spans: its sentences.
        passages: the passages.
    """
    lines = [_tokens(response, span) for span in spans]
    context = Context.of(passages, {token.key for line in lines for token in line})
    return [_differences(line, context) for line in lines]


def _tokens(response: str, span: Span) -> list[_Token]:
    found = [(word.start, _token(response, word)) for word in weighed_words(response, span)]
    found += [(position, _Token(NOT, 0.25, False)) for position in negations(response, *span)]
    return [token for _, token in sorted(found, key=lambda pair: pair[0])]


def _token(response: str, word: WeighedWord) -> _Token:
    return _Token(word.key, word.weight, response[word.start].isdigit())


def _differences(line: Sequence[_Token], context: Context) -> Differences:
    pairs, copied = _copied(line, context)
    best = _best_sentences(line, context)
    absent = sum(token.is_content and token.key not in context.places for token in line)
    if not best:
        return Differences(words=len(line), pairs=pairs, copied=copied, absent=absent)
    evidence = _Evidence(line, best, context)
    return Differences(
        words=len(line),
        pairs=pairs,
        copied=copied,
        absent=absent,
        names=evidence.elsewhere(is_name=True),
        numbers=evidence.numbers(),
        elsewhere=evidence.elsewhere(is_name=False),
        negated=evidence.negated(),
        affirmed=evidence.affirmed(),
        opposites=evidence.opposites(),
        replaced=evidence.replaced(),
        swapped=evidence.swapped(),
        disorder=evidence.disorder(),
    )


def _copied(line: Sequence[_Token], context: Context) -> tuple[int, int]:
    """Return how many neighbours the passages have as neighbours, and how many words are in copied runs."""
    # By position in the passages, the length of the run that ends there.
    runs: dict[int, int] = {}
    pairs = 0
    copied = [False] * len(line)
    for number, token in enumerate(line):
        places = context.places.get(token.key, ())
        # A word that follows no run needs no look-up, and a frequent one has more places than there are runs.
        longer = {place: runs.get(place - 1, 0) + 1 for place in places}
        longest = max(longer.values(), default=0)
        pairs += longest > 1
        if longest >= _COPIED:
            copied[number - longest + 1 : number + 1] = [True] * longest
        runs = longer
    return pairs, sum(copied)


def _best_sentences(line: Sequence[_Token], context: Context) -> list[int]:
    """Return the sentence that has most of the line's words by weight, then the one that has most of the others."""
    weights = {token.key: token.weight for token in line if token.is_content}
    found: list[int] = []
    for _ in range(2):
        sums: dict[int, float] = {}
        for key, weight in weights.items():
            for sentence in {context.sentences[place] for place in context.places.get(key, ())[:_MOST_PLACES]}:
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
    """

    def __init__(self, line: Sequence[_Token], best: Sequence[int], context: Context) -> None:
        self._line = line
        self._context = context
        self._best = context.words_of(best[0])
        self._own = {token.key for token in line}
        near = [number for sentence in best for number in (sentence - 1, sentence, sentence + 1)]
        self._near = {key for number in near for key in context.words_of(number)}
        content = {token.key: token.weight for token in line if token.is_content}
        self._part = _shared_part(self._best, content.keys(), _MARGIN)
        # "I am not sure, but it opened in 1869": the negation is not about what both have.
        said = _shared_part([token.key for token in line], content.keys() & set(self._best), _OWN_MARGIN)
        self._is_negated = not NEGATIONS.isdisjoint(said)
        self._evidence_is_negated = not NEGATIONS.isdisjoint(self._part)
        has = set(self._best)
        self._share = sum(weight for key, weight in content.items() if key in has) / (sum(content.values()) or 1)

    def elsewhere(self, *, is_name: bool) -> int:
        """Return how many names, or other content words, only other sentences have."""
        keys = {
            token.key
            for token in self._line
            if token.is_content and not token.is_number and (token.weight >= NAME_WEIGHT) == is_name
        }
        return sum(key in self._context.places and key not in self._near for key in keys)

    def numbers(self) -> int:
        """Return how many numbers only other sentences have."""
        keys = {token.key for token in self._line if token.is_number}
        return sum(key in self._context.places and key not in self._near for key in keys)

    def negated(self) -> float:
        """Return the share that the evidence has if only the sentence is negated."""
        return self._share if self._is_negated and not self._evidence_is_negated else 0.0

    def affirmed(self) -> float:
        """Return the share that the evidence has if only the evidence is negated."""
        return self._share if self._evidence_is_negated and not self._is_negated else 0.0

    def opposites(self) -> float:
        """Return how many words have their opposite in the evidence, times the share that the evidence has."""
        part = set(self._part)
        new = self._own - part
        return self._share * sum(bool((opposites_of(key) & part) - self._own) for key in new)

    def replaced(self) -> int:
        """Return how many words stand between neighbours that the evidence has around other words."""
        has = set(self._best)
        count = 0
        for before, token, after in zip(self._line, self._line[1:], self._line[2:], strict=False):
            if token.key not in has and before.key in has and after.key in has:
                count += self._has_another_between(before.key, after.key)
        return count

    def _has_another_between(self, before: str, after: str) -> bool:
        best = self._best
        for first, key in enumerate(best):
            if key != before:
                continue
            between = best[first + 1 : first + 2 + _GAP]
            if after in between[1:]:
                other = between[: between.index(after, 1)]
                return any(key not in self._own for key in other)
        return False

    def _positions(self, *, only_names: bool) -> list[int]:
        """Return where the evidence has the words that both have once, in the order of the sentence."""
        lowest = NAME_WEIGHT if only_names else 1
        keys = [token.key for token in self._line]
        chosen = [token.key for token in self._line if token.weight >= lowest and keys.count(token.key) == 1]
        return [self._best.index(key) for key in chosen if list(self._best).count(key) == 1]

    def swapped(self) -> float:
        """Return how many neighbouring names are in another order, unless one of the two is in the passive voice."""
        if ("by" in self._own) != ("by" in self._best):
            return 0.0
        positions = self._positions(only_names=True)
        return self._share * sum(one > other for one, other in zip(positions, positions[1:], strict=False))

    def disorder(self) -> float:
        """Return the share of the shared words that are out of order, times the share that the evidence has."""
        positions = self._positions(only_names=False)
        if len(positions) < 3:
            return 0.0
        return self._share * (1 - _longest_increasing(positions) / len(positions))


def _shared_part(keys: Sequence[str], shared: Collection[str], margin: int) -> Sequence[str]:
    """Return the part of a sentence from its first shared word, and some words before it, to its last one."""
    matched = [position for position, key in enumerate(keys) if key in shared]
    if not matched:
        return ()
    return keys[max(0, matched[0] - margin) : matched[-1] + 2]


def _longest_increasing(positions: Sequence[int]) -> int:
    """Return the length of the longest increasing subsequence."""
    ends: list[int] = []
    for position in positions:
        place = bisect_left(ends, position)
        ends[place : place + 1] = [position]
    return len(ends)
