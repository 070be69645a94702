"""Words of the response in whose place the passages have another one: "opened in 1871" where they say "opened in 1869".

Only a place with the same words on both sides counts. The more of them are the same, the less it can be another
statement with the same form: that is the strength of a replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from rageval_hooks.metrics.support.faithfulness.context import Context
from rageval_hooks.metrics.support.faithfulness.line import Token, name_groups
from rageval_hooks.text.sequence import NOT
from rageval_hooks.text.word_lists.common_words import is_common
from rageval_hooks.text.word_lists.opposites import opposites_of
from rageval_hooks.text.words import STOP_WORDS, stem

__all__ = ["Replaced", "replaced"]

_REACH: Final = 4
"""Words on each side that are compared."""

_LONGEST_NAME: Final = 3
"""Words of the passages that may be in the place of a name."""

_FUNCTION: Final = 0.3
"""The weight of a function word, and of the beginning or end of a sentence; a content word has 1."""

_LEAST: Final = 0.5
_FULL: Final = 2.5
"""Weights of the neighbours at which the strength of a replacement is 0 and 1."""

_SAME_START: Final = 3
"""Letters with which two words begin that may be forms of one name."""

_LISTING: Final = frozenset(("and", "or", "nor", "with", "plus"))
_FUNCTION_KEYS: Final = frozenset(stem(word) for word in STOP_WORDS)

Place = tuple[int, int]
"""Words of the passages: the first one, and the one after the last."""

IsReplacement = Callable[[Place], bool]
"""Whether words of the passages can replace words of the response."""


class Replaced(NamedTuple):
    """Words of a sentence in whose place the passages have others, each 0..1 by its strength, summed.

    Attributes:
        roles: names that the passages have the other way round.
        names: names in whose place the passages have a name that the sentence does not have.
        numbers: numbers in whose place the passages have another.
        opposites: words in whose place the passages have their opposite.
        negations: "not" where the passages have none, or the other way round.
    """

    roles: float = 0
    names: float = 0
    numbers: float = 0
    opposites: float = 0
    negations: float = 0


def replaced(line: Sequence[Token], context: Context) -> Replaced:
    """Compare a sentence of the response with the places of the passages that have the same neighbours."""
    roles, names = _replaced_names(line, context)
    return Replaced(
        roles=roles,
        names=names,
        numbers=_sum(line, context, _is_number, _other_number),
        opposites=_sum(line, context, lambda token: _has_opposite(token, context), _opposite),
        negations=_negations(line, context),
    )


# --------------------------------------------------------------------------- kinds


def _replaced_names(line: Sequence[Token], context: Context) -> tuple[float, float]:
    groups = name_groups(line)
    all_names = {token.key for token in line if token.is_name}
    roles = names = 0.0
    for first, last in groups:
        others = frozenset(
            line[at].key
            for start, end in groups
            if start != first and not _is_list(line, (first, last), (start, end))
            for at in range(start, end + 1)
        )

        def is_other(place: Place, others: frozenset[str] = others) -> bool:
            return not others.isdisjoint(context.keys[slice(*place)])

        def is_new(place: Place) -> bool:
            return all_names.isdisjoint(context.keys[slice(*place)]) and _is_name(place, context)

        roles += _strength(line, first, last, context, is_other, _LONGEST_NAME)
        names += _strength(line, first, last, context, is_new, _LONGEST_NAME)
    return roles, names


def _is_list(line: Sequence[Token], one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return True for "Paris, Rome and London": the order says nothing."""
    first, second = sorted((one, other))
    return all(token.is_name or token.key in _LISTING for token in line[first[1] + 1 : second[0]])


def _is_name(place: Place, context: Context) -> bool:
    first = place[0]
    begins = context.starts[context.sentences[first]] == first
    if begins and is_common(context.keys[first]):
        return False
    return all(
        context.capitals[at] and context.keys[at] not in _FUNCTION_KEYS and not context.keys[at][0].isdigit()
        for at in range(*place)
    )


def _is_number(token: Token) -> bool:
    # "three" has the key "3". "One" is no content word, for it is often a pronoun.
    return token.key[0].isdigit() and token.is_content


def _other_number(token: Token, number: str) -> bool:
    if not number[0].isdigit() or number == "1":
        return False
    # "19" for "2019" is the same number.
    return not number.endswith(token.key) and not token.key.endswith(number)


def _has_opposite(token: Token, context: Context) -> bool:
    return not opposites_of(token.key).isdisjoint(context.places)


def _opposite(token: Token, key: str) -> bool:
    return key in opposites_of(token.key)


def _sum(
    line: Sequence[Token],
    context: Context,
    is_wanted: Callable[[Token], bool],
    replaces: Callable[[Token, str], bool],
) -> float:
    found = 0.0
    for position, token in enumerate(line):
        if is_wanted(token):

            def is_replacement(place: Place, token: Token = token) -> bool:
                return replaces(token, context.keys[place[0]])

            found += _strength(line, position, position, context, is_replacement, 1)
    return found


def _negations(line: Sequence[Token], context: Context) -> float:
    found = 0.0
    for position, token in enumerate(line):
        if token.key == NOT:
            found += _strength(line, position, position, context, None, 0)
    return found + sum(_omitted(line, place, context) for place in context.some_places(NOT))


def _omitted(line: Sequence[Token], place: int, context: Context) -> float:
    """Return how certain it is that the sentence omits a "not" of the passages."""
    before, after = context.keys[place - 1 : place], context.keys[place + 1 : place + 2]
    best = 0.0
    for position in range(1, len(line)):
        if [line[position - 1].key] == before and [line[position].key] == after:
            # Nothing is between the two words, so the last word comes before the first.
            weight = _weight(line, position, position - 1, context, (place, place + 1))
            best = max(best, _scaled(weight - _own(line, position, position - 1, context)))
    return best


# --------------------------------------------------------------------------- strength


def _strength(
    line: Sequence[Token],
    first: int,
    last: int,
    context: Context,
    is_replacement: IsReplacement | None,
    longest: int,
) -> float:
    """Return how certain it is that the passages have something else in the place of some words, 0..1.

    Args:
        line: a sentence of the response.
        first: the position of the first word.
        last: the position of the last one.
        context: the passages.
        is_replacement: whether words of the passages count as something else; None if nothing may be there.
        longest: how many words of the passages may be in the place, at most.
    """
    own = {line[at].key for at in range(first, last + 1)}
    best = _LEAST
    for place in set(_places(line, first, last, context, longest)):
        # Hardly any place has the same neighbours, so this comes first.
        weight = _weight(line, first, last, context, place)
        if weight <= best:
            continue
        if is_replacement is None or (_is_something_else(place, own, context) and is_replacement(place)):
            best = weight
    if best <= _LEAST:
        return 0.0
    return _scaled(best - _own(line, first, last, context))


def _scaled(weight: float) -> float:
    return min(1.0, max(0.0, (weight - _LEAST) / (_FULL - _LEAST)))


def _is_something_else(place: Place, own: Collection[str], context: Context) -> bool:
    """Return False if words of the passages may name the same: "US" for "United States", "Nov" for "November"."""
    keys = context.keys[slice(*place)]
    # An empty key is between two passages.
    if len(keys) < place[1] - place[0] or "" in keys:
        return False
    initials = "".join(key[0] for key in keys).casefold()
    forms = (initials, "".join(keys), *keys)
    return not any(_is_form(word.casefold(), form) for word in own for form in forms)


def _is_form(word: str, other: str) -> bool:
    # Numbers that begin alike are different numbers.
    alike = len(other) >= _SAME_START and word[:_SAME_START] == other[:_SAME_START] and not word[0].isdigit()
    return word == other.casefold() or alike


def _places(line: Sequence[Token], first: int, last: int, context: Context, longest: int) -> Iterator[Place]:
    """Yield places next to the nearest content word on each side of some words."""
    lengths = range(1, longest + 1) if longest else (0,)
    if before := _distance(line, first, -1):
        for place in context.some_places(line[first - before].key):
            yield from ((place + before, place + before + length) for length in lengths)
    if after := _distance(line, last, 1):
        for place in context.some_places(line[last + after].key):
            end = place - after + 1
            yield from ((end - length, end) for length in lengths if end >= length)


def _distance(line: Sequence[Token], position: int, step: int) -> int:
    """Return how far the nearest content word is in one direction; 0 if none is near."""
    for distance in range(1, _REACH):
        at = position + step * distance
        if 0 <= at < len(line) and line[at].is_content:
            return distance
    return 0


def _own(line: Sequence[Token], first: int, last: int, context: Context) -> float:
    """Return the weight of the neighbours that the words have in a place of their own."""
    best = 0.0
    if first > last:
        # Nothing between two words: where they are neighbours.
        for place in context.some_places(line[first].key):
            best = max(best, _weight(line, first, last, context, (place, place)))
        return best
    length = last - first + 1
    for place in context.some_places(line[first].key):
        left = _run(line, first - 1, -1, context, place - 1)
        whole = all(
            place + at < len(context.keys) and context.keys[place + at] == line[first + at].key for at in range(length)
        )
        right = _run(line, last + 1, 1, context, place + length) if whole else 0.0
        best = max(best, left + right)
    for place in context.some_places(line[last].key):
        best = max(best, _run(line, last + 1, 1, context, place + 1))
    return best


def _weight(line: Sequence[Token], first: int, last: int, context: Context, place: Place) -> float:
    """Return the weight of the same neighbours on both sides; 0 if one side has none."""
    left = _run(line, first - 1, -1, context, place[0] - 1)
    right = _run(line, last + 1, 1, context, place[1]) if left else 0.0
    return left + right if right else 0.0


def _run(line: Sequence[Token], position: int, step: int, context: Context, place: int) -> float:
    """Return the weight of the words that are the same from a position on."""
    keys = context.keys
    weight = 0.0
    for _ in range(_REACH):
        inside = 0 <= position < len(line)
        # An end of the passages ends a sentence, and so does a change of its number.
        ends = not 0 <= place < len(keys) or keys[place] == "" or _differ(context, place, place - step)
        if not inside or ends:
            return weight + (_FUNCTION if not inside and ends else 0.0)
        if line[position].key != keys[place]:
            break
        weight += 1.0 if line[position].is_content else _FUNCTION
        position += step
        place += step
    return weight


def _differ(context: Context, place: int, other: int) -> bool:
    """Return True if two places are in different sentences."""
    return other < len(context.keys) and context.sentences[place] != context.sentences[other]
