"""Words of the response in whose place the passages have another one: "opened in 1871" where they say "opened in 1869".

Only a place with the same words on both sides counts. The more of them are the same, the less it can be another
statement with the same form: that is the strength of a replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final, NamedTuple

from rageval_hooks.errors import InputTooLargeError
from rageval_hooks.metrics.support.faithfulness.context import Context
from rageval_hooks.metrics.support.faithfulness.line import Token, name_groups
from rageval_hooks.text.sequence import NOT
from rageval_hooks.text.word_lists.common_words import is_common
from rageval_hooks.text.word_lists.opposites import opposites_of
from rageval_hooks.text.words import STOP_WORDS, stem

__all__ = ["Budget", "Replaced", "replaced"]

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

_MOST_ALIKE: Final = 100
"""Places with the same neighbours that are compared for one word."""

_MOST_COMPARED: Final = 250_000
"""Places that are compared for one response: about two seconds. Of 4,250 answers of people none has more than 300."""

_NONE: Final = frozenset[int]()
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


class Budget:
    """How many places of the passages may be compared with the sentences of one response.

    Texts of a few words that are repeated thousands of times have millions of places with the same neighbours.

    Args:
        pause: is called between two comparisons, and may raise an exception.
    """

    def __init__(self, pause: Callable[[], None]) -> None:
        self._left = _MOST_COMPARED
        self._pause = pause

    def spend(self, places: int) -> None:
        """Count places before they are compared; pause.

        Raises:
            InputTooLargeError: the budget is spent.
        """
        self._pause()
        self._left -= places
        if self._left < 0:
            raise InputTooLargeError(
                f"the response and the passages repeat the same words: more than {_MOST_COMPARED:,} places to compare"
            )


def replaced(line: Sequence[Token], context: Context, budget: Budget) -> Replaced:
    """Compare a sentence of the response with the places of the passages that have the same neighbours.

    Raises:
        InputTooLargeError: the budget is spent.
    """
    search = _Search(line, context, budget)
    roles, names = _replaced_names(search)
    return Replaced(
        roles=roles,
        names=names,
        numbers=_sum(search, _is_number, _other_number),
        opposites=_sum(search, lambda token: _has_opposite(token, context), _opposite),
        negations=_negations(search),
    )


# --------------------------------------------------------------------------- kinds


def _replaced_names(search: _Search) -> tuple[float, float]:
    line, context = search.line, search.context
    groups = name_groups(line)
    lists = _lists(line, groups)
    # By key, the lists that have it: "Paris, Rome and London" are one list, and their order says nothing.
    lists_of: dict[str, set[int]] = {}
    for (first, last), number in zip(groups, lists, strict=True):
        for token in line[first : last + 1]:
            lists_of.setdefault(token.key, set()).add(number)
    all_names = {token.key for token in line if token.is_name}
    roles = names = 0.0
    for (first, last), number in zip(groups, lists, strict=True):

        def is_other(place: Place, own: int = number) -> bool:
            return any(lists_of.get(key, _NONE) - {own} for key in context.keys[slice(*place)])

        def is_new(place: Place) -> bool:
            return all_names.isdisjoint(context.keys[slice(*place)]) and _is_name(place, context)

        role, name = search.strengths(first, last, (is_other, is_new), _LONGEST_NAME)
        roles += role
        names += name
    return roles, names


def _lists(line: Sequence[Token], groups: Sequence[tuple[int, int]]) -> list[int]:
    """Return the number of the list that each name belongs to: "Paris, Rome and London" is one."""
    numbers = [0] if groups else []
    for (_, last), (first, _) in pairwise(groups):
        continues = all(token.key in _LISTING for token in line[last + 1 : first])
        numbers.append(numbers[-1] if continues else numbers[-1] + 1)
    return numbers


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


def _sum(search: _Search, is_wanted: Callable[[Token], bool], replaces: Callable[[Token, str], bool]) -> float:
    found = 0.0
    for position, token in enumerate(search.line):
        if is_wanted(token):

            def is_replacement(place: Place, token: Token = token) -> bool:
                return replaces(token, search.context.keys[place[0]])

            found += search.strengths(position, position, (is_replacement,), 1)[0]
    return found


def _negations(search: _Search) -> float:
    added = sum(
        search.strengths(position, position, (None,), 0)[0]
        for position, token in enumerate(search.line)
        if token.key == NOT
    )
    return added + search.omitted(NOT)


# --------------------------------------------------------------------------- strength


class _Search:
    """Looks for the neighbours of a sentence's words in the passages.

    Args:
        line: a sentence of the response.
        context: the passages.
        budget: how many places may be compared.
    """

    def __init__(self, line: Sequence[Token], context: Context, budget: Budget) -> None:
        self.line = line
        self.context = context
        self._budget = budget

    def strengths(self, first: int, last: int, kinds: Sequence[IsReplacement | None], longest: int) -> list[float]:
        """Return how certain it is that the passages have something else in the place of some words, 0..1 per kind.

        Args:
            first: the position of the first word.
            last: the position of the last one.
            kinds: whether words of the passages count as something else; None if nothing may be there.
            longest: how many words of the passages may be in the place, at most.
        """
        own = {self.line[at].key for at in range(first, last + 1)}
        best = [_LEAST] * len(kinds)
        places = set(islice(self._places(first, last, longest), _MOST_ALIKE))
        self._budget.spend(len(places))
        for place in places:
            # Hardly any place has the same neighbours, so this comes first.
            weight = self._weight(first, last, place)
            for number, is_replacement in enumerate(kinds):
                if weight > best[number] and (
                    is_replacement is None or (_is_something_else(place, own, self.context) and is_replacement(place))
                ):
                    best[number] = weight
        if max(best) <= _LEAST:
            return [0.0] * len(kinds)
        own_weight = self._own(first, last, max(best) - _LEAST)
        return [_scaled(weight - own_weight) if weight > _LEAST else 0.0 for weight in best]

    def omitted(self, key: str) -> float:
        """Return how certain it is that the sentence omits a word of the passages, summed over its places."""
        line, keys = self.line, self.context.keys
        positions: dict[tuple[str, str], list[int]] = {}
        for position in range(1, len(line)):
            positions.setdefault((line[position - 1].key, line[position].key), []).append(position)
        found = 0.0
        for place in self.context.some_places(key):
            # The last key of the passages is an empty one, so every word has a next key.
            neighbours = positions.get((keys[place - 1], keys[place + 1]), []) if place else []
            self._budget.spend(len(neighbours))
            best = 0.0
            for position in neighbours:
                # Nothing is between the two words, so the last word comes before the first.
                weight = self._weight(position, position - 1, (place, place + 1))
                best = max(best, _scaled(weight - self._own(position, position - 1, weight - _LEAST)))
            found += best
        return found

    def _places(self, first: int, last: int, longest: int) -> Iterator[Place]:
        """Yield places next to the nearest content word on each side, between the same words as in the sentence."""
        lengths = range(1, longest + 1) if longest else range(1)
        if before := self._distance(first, -1):
            for place in self.context.some_places(self.line[first - before].key):
                start = place + before
                yield from ((start, start + length) for length in lengths if self._fits(first, last, start, length))
        if after := self._distance(last, 1):
            for place in self.context.some_places(self.line[last + after].key):
                end = place - after + 1
                yield from ((end - length, end) for length in lengths if self._fits(first, last, end - length, length))

    def _fits(self, first: int, last: int, start: int, length: int) -> bool:
        """Return True if a place has the same words next to it as some words of the sentence.

        At an end of the sentence, any word may be next to the place; its weight shows whether a sentence ends there.
        """
        line, keys, end = self.line, self.context.keys, start + length
        if first and (not 0 < start <= len(keys) or keys[start - 1] != line[first - 1].key):
            return False
        return start >= 0 and (last + 1 == len(line) or (end < len(keys) and keys[end] == line[last + 1].key))

    def _distance(self, position: int, step: int) -> int:
        """Return how far the nearest content word is in one direction; 0 if none is near."""
        for distance in range(1, _REACH):
            at = position + step * distance
            if 0 <= at < len(self.line) and self.line[at].is_content:
                return distance
        return 0

    def _own(self, first: int, last: int, enough: float) -> float:
        """Return the weight of the neighbours that the words have in a place of their own; any that is enough."""
        best = 0.0
        for weight in self._own_weights(first, last):
            self._budget.spend(1)
            best = max(best, weight)
            if best >= enough:
                break
        return best

    def _own_weights(self, first: int, last: int) -> Iterator[float]:
        keys = self.context.keys
        places = self.context.some_places(self.line[first].key)
        if first > last:
            # Nothing between two words: where they are neighbours.
            yield from (self._weight(first, last, (place, place)) for place in places)
            return
        own = [self.line[at].key for at in range(first, last + 1)]
        for place in places:
            end = place + len(own)
            right = self._run(last + 1, 1, end) if keys[place:end] == own else 0.0
            yield self._run(first - 1, -1, place - 1) + right
        for place in self.context.some_places(self.line[last].key):
            yield self._run(last + 1, 1, place + 1)

    def _weight(self, first: int, last: int, place: Place) -> float:
        """Return the weight of the same neighbours on both sides; 0 if one side has none."""
        left = self._run(first - 1, -1, place[0] - 1)
        right = self._run(last + 1, 1, place[1]) if left else 0.0
        return left + right if right else 0.0

    def _run(self, position: int, step: int, place: int) -> float:
        """Return the weight of the words that are the same from a position on."""
        line, context = self.line, self.context
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
