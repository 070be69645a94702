"""Statements that repeat a passage with a negation added or left out: "Dogs are allowed" for "Dogs are not allowed".

Only a sentence that otherwise repeats a sentence of the passages is compared, so that a difference is certain: it has
nearly the same words, and the negated word has one of the same neighbours.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rageval_hooks.text.limits import Span, scan
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import STOP_WORDS, Line, Reading, Words, stem, words_by_sentence

# "not", "cannot", "n't" in "don't", "isn’t" and the tokenized "do n't"; not the "No," that answers a question. Also in
# German, French, Spanish, Italian, Portuguese and Dutch.
_NEGATION: Final = re.compile(
    r"(?<![^\W_])(?:not|no(?!,)|never|cannot|without|neither|nor|none|nobody"
    r"|nicht|kein(?:e[mnrs]?)?|niemals|pas|jamais|nunca|jamás|non(?!-)|não|niet|geen|nooit)(?![^\W_])"
    r"|(?<=[a-z ])n['’]t(?![^\W_])",
    re.IGNORECASE,
)
# "No, it did"
_NO: Final = re.compile(r"\W{0,5}no\b", re.IGNORECASE)
# "not only", "no more than", "no doubt": nothing is denied. "no longer" denies what follows.
_HARMLESS: Final = frozenset(
    map(stem, "only just merely necessarily doubt least matter more less fewer later earlier sooner other".split())
)
_LONGER: Final = stem("longer")
# "avoid that they become", "unlikely to notice": these deny without a negation.
_DENYING: Final = frozenset(
    map(stem, "avoid prevent fail refuse lack deny unlikely unable impossible unless rather instead hardly".split())
)
# "I do not, but it opened": what follows is not negated.
_BOUNDARIES: Final = frozenset("and but or that because if which who when while so".split())
# "not open until 8" says when it opens.
_SAYING_WHEN: Final = frozenset(("until", "unless"))
_FUNCTION_KEYS: Final = frozenset(map(stem, STOP_WORDS))

_REACH: Final = 5
"""Words after a negation in which the word is that it negates."""

_LEAST_SHARED: Final = 0.8
"""Share of a sentence's content words that its evidence must have: one of five may differ."""

_FEWEST_WORDS: Final = 2
_MOST_WORDS: Final = 60
"""Content words of a sentence that can repeat another."""

_MOST_COMPARED: Final = 20
"""Sentences of the passages that are compared with one sentence, so that repeated text takes no quadratic time."""


class Statement(NamedTuple):
    """The content words of a sentence.

    Attributes:
        keys: the keys of the content words, in order.
        negated: positions in ``keys`` of the words that a negation is about; -1 for a negation of something else, as
            in "mixtures are not".
        spans: per key, where it is in the text, with the negation before it if there is one.
    """

    keys: tuple[str, ...]
    negated: frozenset[int]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Statements:
    """The sentences of a text. They depend on the text only, so they can be cached."""

    sentences: tuple[Statement, ...]

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        return 500 + sum(300 + 100 * len(sentence.keys) for sentence in self.sentences)


class Reversal(NamedTuple):
    """A sentence of a response that negates what its evidence says, or the other way round.

    Attributes:
        sentence: the number of the sentence of the response.
        start: where the changed words begin in the response.
        end: where they end.
        passage: the number of the passage.
        evidence: where the passage says it otherwise, as (start, end).
    """

    sentence: int
    start: int
    end: int
    passage: int
    evidence: Span


def negates(sentence: str) -> bool:
    """Return True if a sentence has a negation, or answers "No,"."""
    return _NEGATION.search(sentence) is not None or _NO.match(sentence) is not None


def statements_of(text: str) -> Statements:
    """Return the statements of a passage. Questions state nothing."""
    spans = [span for span in sentence_spans(text) if text[span[1] - 1] != "?"]
    found = words_by_sentence(text, spans)
    return Statements(tuple(_statement(text, span, words) for span, words in zip(spans, found, strict=True)))


def _statement(text: str, span: Span, words: Words) -> Statement:
    places = [
        place
        for place, (key, reading) in enumerate(zip(words.keys, words.readings, strict=True))
        if _is_content(key, reading)
    ]
    number_of = {place: number for number, place in enumerate(places)}
    starts = [words.starts[place] for place in places]
    negated: set[int] = set()
    for found in scan(_NEGATION, text, *span):
        place = _negated_place(words, found.end())
        if place is None:
            continue
        number = number_of.get(place, -1)
        negated.add(number)
        if number >= 0:
            # The "n't" of "didn't" begins with its word.
            start = found.start()
            while start > span[0] and text[start - 1].isalpha():
                start -= 1
            starts[number] = start
    ends = (words.ends[place] for place in places)
    keys = tuple(words.keys[place] for place in places)
    return Statement(keys, frozenset(negated), tuple(zip(starts, ends, strict=True)))


def _negated_place(words: Words, end: int) -> int | None:
    """Return the place of the content word that a negation is about, -1 without one; None if it denies nothing."""
    first = bisect_left(words.starts, end)
    following = words.keys[first : first + _REACH]
    if following and following[0] in _HARMLESS:
        return None
    # In the whole sentence: "requires no effort from your body unless" and "does not require any effort unless" are
    # the same, and only one of them has the word near.
    if not _SAYING_WHEN.isdisjoint(words.keys[first:]):
        return None
    for place, key in enumerate(following, first):
        if key in _BOUNDARIES:
            break
        if _is_content(key, words.readings[place]):
            return place
    return -1


def _is_content(key: str, reading: Reading) -> bool:
    return reading.is_content and key != _LONGER and key not in _FUNCTION_KEYS


def find_reversals(response: str, lines: Sequence[Line], passages: Sequence[Statements]) -> Iterator[Reversal]:
    """Yield the sentences of a response whose evidence says the opposite by a negation.

    Args:
        response: the response, with its marks blanked.
        lines: its sentences.
        passages: the statements of the passages.
    """
    spans = [line.span for line in lines]
    own = [*map(_statement, [response] * len(spans), spans, words_by_sentence(response, spans))]
    index = _Index(passages, {key for statement in own for key in statement.keys})
    for number, statement in enumerate(own):
        # "Are dogs allowed?" states nothing.
        is_question = response[spans[number][1] - 1] == "?"
        if is_question or not _FEWEST_WORDS <= len(statement.keys) <= _MOST_WORDS:
            continue
        found = _reversal(statement, index)
        if found is not None:
            word, passage, evidence = found
            yield Reversal(number, *statement.spans[word], passage, evidence)


class _Index:
    """Where the passages have some keys."""

    def __init__(self, passages: Sequence[Statements], wanted: set[str]) -> None:
        self._places: dict[str, list[tuple[int, Statement]]] = {}
        for passage, statements in enumerate(passages):
            for statement in statements.sentences:
                for key in wanted.intersection(statement.keys):
                    self._places.setdefault(key, []).append((passage, statement))

    def similar(self, statement: Statement) -> Iterator[tuple[int, Statement]]:
        """Yield the sentences of the passages that have nearly all words of a statement."""
        keys = set(statement.keys)
        needed = _LEAST_SHARED * len(keys)
        # Whatever has four of five words has at least one of the two rarest.
        rarest = sorted(keys, key=lambda key: (len(self._places.get(key, ())), key))
        seen: set[int] = set()
        for key in rarest[: int(len(keys) - needed) + 1]:
            for passage, other in self._places.get(key, ())[:_MOST_COMPARED]:
                if id(other) not in seen and len(keys.intersection(other.keys)) >= needed:
                    seen.add(id(other))
                    yield passage, other


def _reversal(statement: Statement, index: _Index) -> tuple[int, int, Span] | None:
    """Return the word that is negated otherwise in the evidence, the passage, and where it says so."""
    found = None
    for passage, other in index.similar(statement):
        # Only one of the two may negate: where both do, they may say the same in other words.
        is_comparable = bool(statement.negated) != bool(other.negated) and not _denies(statement, other)
        changed = _changed(statement, other) if is_comparable else None
        if changed is None:
            # Another sentence of the passages says the same.
            return None
        if found is None:
            word, place = changed
            found = word, passage, other.spans[place]
    return found


def _denies(one: Statement, other: Statement) -> bool:
    return not _DENYING.isdisjoint(one.keys) or not _DENYING.isdisjoint(other.keys)


def _changed(one: Statement, other: Statement) -> tuple[int, int] | None:
    """Return the places of a word that only one of two sentences negates, with a neighbour that both have."""
    for place, key in enumerate(one.keys):
        # A word that occurs twice may be negated once.
        if one.keys.count(key) > 1 or other.keys.count(key) != 1:
            continue
        at = other.keys.index(key)
        if (place in one.negated) == (at in other.negated):
            continue
        if _neighbours(one.keys, place) & _neighbours(other.keys, at):
            return place, at
    return None


def _neighbours(keys: Sequence[str], place: int) -> set[str]:
    return {*keys[max(0, place - 1) : place], *keys[place + 1 : place + 2]}
