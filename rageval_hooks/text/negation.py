"""Statements that repeat a passage with a negation added or left out: "Dogs are allowed" for "Dogs are not allowed".

Only a sentence that otherwise repeats a sentence of the passages is compared, so that a difference is certain: it has
nearly the same words, and the negated word has one of the same neighbours.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rageval_hooks.text.limits import Span, scan
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import STOP_WORDS, Line, Words, stem, words_by_sentence

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


Statements = Sequence[Statement]
"""The sentences of a text. They depend on the text only, so they can be cached."""


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
    return [_statement(text, span, words) for span, words in zip(spans, found, strict=True)]


def _statement(text: str, span: Span, words: Words) -> Statement:
    # The places of the content words, and of each its number in the statement.
    places = [
        place
        for place, reading in enumerate(words.readings)
        if reading.is_content and reading.key != _LONGER and reading.key not in _FUNCTION_KEYS
    ]
    number_of = {place: number for number, place in enumerate(places)}
    starts = [words.starts[place] for place in places]
    negated: set[int] = set()
    for found in scan(_NEGATION, text, *span):
        first = bisect_left(words.starts, found.end())
        following = words.keys[first : first + _REACH]
        # "not open until 8" says when it opens. In the whole sentence: "requires no effort from your body unless" and
        # "does not require any effort unless" are the same, and only one of them has the word near.
        if (following and following[0] in _HARMLESS) or not _SAYING_WHEN.isdisjoint(words.keys[first:]):
            continue
        number = -1
        for place, key in enumerate(following, first):
            if key in _BOUNDARIES or place in number_of:
                number = -1 if key in _BOUNDARIES else number_of[place]
                break
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


def find_reversals(response: str, lines: Sequence[Line], passages: Sequence[Statements]) -> Iterator[Reversal]:
    """Yield the sentences of a response whose evidence says the opposite by a negation.

    Args:
        response: the response, with its marks blanked.
        lines: its sentences.
        passages: the statements of the passages.
    """
    spans = [line.span for line in lines]
    own = [*map(_statement, [response] * len(spans), spans, words_by_sentence(response, spans))]
    # Where the passages have the words of the response.
    wanted = {key for statement in own for key in statement.keys}
    places: dict[str, list[tuple[int, Statement]]] = {}
    for passage, statements in enumerate(passages):
        for other in statements:
            for key in wanted.intersection(other.keys):
                places.setdefault(key, []).append((passage, other))
    for number, statement in enumerate(own):
        # "Are dogs allowed?" states nothing.
        is_question = response[spans[number][1] - 1] == "?"
        if is_question or not _FEWEST_WORDS <= len(statement.keys) <= _MOST_WORDS:
            continue
        found: tuple[int, int, Span] | None = None
        for passage, other in _similar(statement, places):
            changed = _changed(statement, other)
            if changed is None:
                # Another sentence of the passages says the same.
                break
            found = found or (changed[0], passage, other.spans[changed[1]])
        else:
            if found is not None:
                word, passage, evidence = found
                yield Reversal(number, *statement.spans[word], passage, evidence)


def _similar(
    statement: Statement, places: Mapping[str, Sequence[tuple[int, Statement]]]
) -> Iterator[tuple[int, Statement]]:
    """Yield the sentences of the passages that have nearly all words of a statement."""
    keys = set(statement.keys)
    needed = _LEAST_SHARED * len(keys)
    # Whatever has four of five words has at least one of the two rarest.
    rarest = sorted(keys, key=lambda key: (len(places.get(key, ())), key))
    seen: set[int] = set()
    for key in rarest[: int(len(keys) - needed) + 1]:
        for passage, other in places.get(key, ())[:_MOST_COMPARED]:
            if id(other) not in seen and len(keys.intersection(other.keys)) >= needed:
                seen.add(id(other))
                yield passage, other


def _changed(one: Statement, other: Statement) -> tuple[int, int] | None:
    """Return the places of a word that only one of two sentences negates, with a neighbour that both have."""
    # Only one of the two may negate: where both do, they may say the same in other words.
    if bool(one.negated) == bool(other.negated) or not _DENYING.isdisjoint((*one.keys, *other.keys)):
        return None
    for place, key in enumerate(one.keys):
        # A word that occurs twice may be negated once.
        if one.keys.count(key) > 1 or other.keys.count(key) != 1:
            continue
        at = other.keys.index(key)
        is_changed = (place in one.negated) != (at in other.negated)
        if is_changed and _neighbours(one.keys, place) & _neighbours(other.keys, at):
            return place, at
    return None


def _neighbours(keys: Sequence[str], place: int) -> set[str]:
    return {*keys[max(0, place - 1) : place], *keys[place + 1 : place + 2]}
