"""Small differences between a sentence of the response and the sentences of the passages that support it best.

A name, a number, a negation or an opposite makes a sentence wrong whose words nearly all occur in the passages.
Similarity does not see this, so it is counted here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from rageval_hooks.text.opposites import NEGATIONS, opposites_of
from rageval_hooks.text.sentences import Span
from rageval_hooks.text.sequence import NOT, WordSequence, negations
from rageval_hooks.text.words import FUNCTION_WEIGHT, NAME_WEIGHT, WeighedWord, weighed_words

__all__ = ["Context", "Differences", "differences"]

MAX_CONTEXT_WORDS: Final = 100_000
"""Words of the passages that are searched: about 20 ms. Of longer contexts, the first ones."""

_COPIED: Final = 3
"""Words in the same order that count as copied."""

_MARGIN: Final = 4
"""Words before the part of a sentence that a response takes up, where its negation may be."""

_OWN_MARGIN: Final = 2
"""The same in the sentence of the response."""

_MOST_PLACES: Final = 400
"""Places of one word that are compared. Function words of long contexts have thousands, and prove nothing."""


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
    """

    words: float = 0
    pairs: float = 0
    copied: float = 0
    names: float = 0
    numbers: float = 0
    negated: float = 0
    opposites: float = 0

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
            "negated": self.negated,
            "says the opposite": self.opposites,
        }
        return tuple(note for note, count in found.items() if count)


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
        return self.weight > FUNCTION_WEIGHT

    @property
    def is_name(self) -> bool:
        return self.weight >= NAME_WEIGHT and not self.is_number


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
    found += [(position, _Token(NOT, FUNCTION_WEIGHT, False)) for position in negations(response, *span)]
    return [token for _, token in sorted(found, key=lambda pair: pair[0])]


def _token(response: str, word: WeighedWord) -> _Token:
    return _Token(word.key, word.weight, response[word.start].isdigit())


def _differences(line: Sequence[_Token], context: Context) -> Differences:
    pairs, copied = _copied(line, context)
    best = _best_sentences(line, context)
    if not best:
        return Differences(words=len(line), pairs=pairs, copied=copied)
    evidence = _Evidence(line, best, context)
    return Differences(
        words=len(line),
        pairs=pairs,
        copied=copied,
        names=evidence.elsewhere(token.key for token in line if token.is_name),
        numbers=evidence.elsewhere(token.key for token in line if token.is_number),
        negated=evidence.negated(),
        opposites=evidence.opposites(),
    )


def _copied(line: Sequence[_Token], context: Context) -> tuple[int, int]:
    """Return how many neighbours the passages have as neighbours, and how many words are in copied runs."""
    # By position in the passages, the length of the run that ends there.
    runs: dict[int, int] = {}
    pairs = 0
    copied = [False] * len(line)
    for number, token in enumerate(line):
        places = context.places.get(token.key, [])
        if len(places) > _MOST_PLACES:
            # A frequent word may continue a run, and begins none.
            places = [place + 1 for place in runs if context.keys[place + 1] == token.key]
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
        self._context = context
        self._own = {token.key for token in line}
        near = [number for sentence in best for number in (sentence - 1, sentence, sentence + 1)]
        self._near = {key for number in near for key in context.words_of(number)}
        words = context.words_of(best[0])
        content = {token.key: token.weight for token in line if token.is_content}
        shared = {key: content[key] for key in content.keys() & set(words)}
        self._part = _shared_part(words, shared, _MARGIN)
        # "I am not sure, but it opened in 1869": the negation is not about what both have.
        self._said = _shared_part([token.key for token in line], shared, _OWN_MARGIN)
        # The best sentence has a content word, so the sum is not 0.
        self._share = sum(shared.values()) / sum(content.values())

    def elsewhere(self, keys: Iterable[str]) -> int:
        """Return how many words only other sentences of the passages have."""
        return sum(key in self._context.places and key not in self._near for key in set(keys))

    def negated(self) -> float:
        """Return the share that the evidence has if only the sentence is negated."""
        if NEGATIONS.isdisjoint(self._said) or not NEGATIONS.isdisjoint(self._part):
            return 0.0
        return self._share

    def opposites(self) -> float:
        """Return how many words have their opposite in the evidence, times the share that the evidence has."""
        part = set(self._part)
        new = self._own - part
        return self._share * sum(bool((opposites_of(key) & part) - self._own) for key in new)


def _shared_part(keys: Sequence[str], shared: Collection[str], margin: int) -> Sequence[str]:
    """Return the part of a sentence from its first shared word, and some words before it, to its last one."""
    matched = [position for position, key in enumerate(keys) if key in shared]
    if not matched:
        return ()
    return keys[max(0, matched[0] - margin) : matched[-1] + 2]
